# Installs the build in BINARY_DIR, builds examples/ against the installation and runs them.
cmake_policy(VERSION 3.24)
set(prefix ${BINARY_DIR}/package_test/prefix)
set(build ${BINARY_DIR}/package_test/build)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(result)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}: ${result}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${prefix} ${build} ${prefix}-moved)
run(${CMAKE_COMMAND} --install ${BINARY_DIR} --prefix ${prefix})

# Exactly the headers of include/tandem/ are installed.
file(GLOB_RECURSE public RELATIVE ${SOURCE_DIR}/include ${SOURCE_DIR}/include/*)
file(GLOB_RECURSE installed RELATIVE ${prefix}/include ${prefix}/include/*)
if(NOT installed STREQUAL public)
  message(FATAL_ERROR "the installed headers are ${installed}, not ${public}")
endif()
file(GLOB roots RELATIVE ${prefix}/include ${prefix}/include/*)
if(NOT roots STREQUAL "tandem")
  message(FATAL_ERROR "headers are installed next to tandem/: ${roots}")
endif()

# Pages without a warning for all commands, and completions.
set(pages ${prefix}/share/man/man1)
file(GLOB found RELATIVE ${pages} ${pages}/*)
foreach(page tandem tandem-serve tandem-bench-speculation)
  if(NOT "${page}.1" IN_LIST found)
    message(FATAL_ERROR "${page}.1 is not one of the manual pages: ${found}")
  endif()
endforeach()
find_program(groff groff)
if(groff)
  list(TRANSFORM found PREPEND ${pages}/)
  execute_process(COMMAND ${groff} -ww -man -Tutf8 -z ${found} RESULT_VARIABLE result ERROR_VARIABLE warnings)
  if(result OR NOT warnings STREQUAL "")
    message(FATAL_ERROR "groff: ${result}\n${warnings}")
  endif()
endif()
foreach(file bash-completion/completions/tandem zsh/vendor-completions/_tandem fish/vendor_completions.d/tandem.fish)
  file(READ ${prefix}/share/${file} text)
  if(NOT text MATCHES "complete")
    message(FATAL_ERROR "${file} is:\n${text}")
  endif()
endforeach()

# The installation works after it is moved.
file(RENAME ${prefix} ${prefix}-moved)
set(prefix ${prefix}-moved)
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples -B ${build} -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${build})

set(models ${prefix}/share/tandem/models)
set(pair ${models}/storyteller-7m ${models}/storyteller-1m)
run(${build}/story ${pair})
string(REGEX MATCHALL "[A-Za-z]+" words "${output}")
list(LENGTH words count)
if(count LESS 20)
  message(FATAL_ERROR "story wrote only ${count} words:\n${output}")
endif()
message(STATUS "story wrote ${count} words")

run(${build}/chat ${pair} "Tell me of a king." 24)
if(NOT output MATCHES "message: [0-9]+ tokens, prompt: [0-9]+\n.*[a-z].*\nanswer: [0-9]+ tokens, ended by (cancelled|stop)\n")
  message(FATAL_ERROR "chat wrote:\n${output}")
endif()

# Standard output has only the example's output, nothing of the library's.
if(output MATCHES "\\[(info|warning|error)\\]")
  message(FATAL_ERROR "the library writes to standard output:\n${output}")
endif()
