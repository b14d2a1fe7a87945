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

file(REMOVE_RECURSE ${prefix} ${build})
run(${CMAKE_COMMAND} --install ${BINARY_DIR} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples -B ${build} -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${build})

# Only what <tandem/*.h> need is public.
foreach(private kernels/cpu tools)
  if(EXISTS ${prefix}/include/tandem/${private})
    message(FATAL_ERROR "a private folder was installed: ${private}")
  endif()
endforeach()

set(models ${prefix}/share/tandem/models)
run(${build}/story ${models}/storyteller-7m ${models}/storyteller-1m)
string(REGEX MATCHALL "[A-Za-z]+" words "${output}")
list(LENGTH words count)
if(count LESS 20)
  message(FATAL_ERROR "story wrote only ${count} words:\n${output}")
endif()
message(STATUS "story wrote ${count} words")
