# Fails if PROGRAM calls a function of Abseil's locks that is the library's own. NM is `nm`.
cmake_policy(VERSION 3.24)
execute_process(COMMAND ${NM} -DC --undefined-only ${PROGRAM} OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "absl::[a-z0-9_:]*(Mutex|CondVar|Notification|BlockingCounter)::[^\n]*" unseen
       "${symbols}")
# Making and ending them, and signals without a mutex, order nothing; an inline function is seen.
list(FILTER unseen EXCLUDE REGEX "::(~[A-Za-z]+|BlockingCounter|Signal|SignalAll|AssertHeld|AssertReaderHeld)\\(")
if(unseen)
  list(JOIN unseen "\n  " unseen)
  message(FATAL_ERROR "${PROGRAM} calls what base/thread_sanitizer_mutex.cc lacks:\n  ${unseen}")
endif()
