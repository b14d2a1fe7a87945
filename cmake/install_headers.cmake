# Installs the headers of include/tandem/ and every header that they include, directly or not, so that no
# private header becomes somebody's dependency.
#   TANDEM_SOURCE_DIR: the root of the sources
cmake_policy(VERSION 3.24)
set(destination ${CMAKE_INSTALL_PREFIX}/include/tandem)
file(GLOB waiting ${TANDEM_SOURCE_DIR}/include/tandem/*.h)
file(INSTALL ${waiting} DESTINATION ${destination})

set(seen)
while(waiting)
  list(POP_FRONT waiting header)
  file(STRINGS ${header} lines REGEX "^#include \"[^\"]+\"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" path "${line}")
    if(NOT EXISTS ${TANDEM_SOURCE_DIR}/${path} OR path IN_LIST seen)
      continue()  # another library's header, or one that is done
    endif()
    list(APPEND seen ${path})
    list(APPEND waiting ${TANDEM_SOURCE_DIR}/${path})
    get_filename_component(folder ${path} DIRECTORY)
    file(INSTALL ${TANDEM_SOURCE_DIR}/${path} DESTINATION ${destination}/${folder})
  endforeach()
endwhile()
