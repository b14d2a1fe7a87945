# Fails if PROGRAM calls a function of Abseil's locks in the library itself. NM is `nm`.
cmake_policy(VERSION 3.24)
execute_process(COMMAND ${NM} -DC --undefined-only ${PROGRAM} OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "absl::[a-z0-9_:]*(Mutex|CondVar|Notification|BlockingCounter)::[^\n]*" unseen
       "${symbols}")
# Constructors, destructors and signals without a mutex do not order anything, and the sanitizer
# sees inline functions.
list(FILTER unseen EXCLUDE REGEX "::(~[A-Za-z]+|BlockingCounter|Signal|SignalAll|AssertHeld|AssertReaderHeld)\\(")
if(unseen)
  list(JOIN unseen "\n  " unseen)
  message(FATAL_ERROR "${PROGRAM} calls functions missing from base/thread_sanitizer_mutex.cc:\n  ${unseen}")
endif()
