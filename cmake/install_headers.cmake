# Installs the headers of include/tandem/ and every header that they include, directly or not, so that no
# private header becomes somebody's dependency. There they include each other as <tandem/...> says: who uses
# them has one folder on the path, and no "base/..." of ours beside their own.
#   TANDEM_SOURCE_DIR: the root of the sources
cmake_policy(VERSION 3.24)
set(destination $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/include/tandem)

file(GLOB waiting RELATIVE ${TANDEM_SOURCE_DIR} ${TANDEM_SOURCE_DIR}/include/tandem/*.h)
set(seen ${waiting})
while(waiting)
  list(POP_FRONT waiting header)
  file(READ ${TANDEM_SOURCE_DIR}/${header} text)
  string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "#include \"(.+)\"" "\\1" path "${include}")
    if(NOT EXISTS ${TANDEM_SOURCE_DIR}/${path})
      continue()  # another library's header
    endif()
    string(REPLACE "${include}" "#include \"tandem/${path}\"" text "${text}")
    if(NOT path IN_LIST seen)
      list(APPEND seen ${path})
      list(APPEND waiting ${path})
    endif()
  endforeach()
  string(REGEX REPLACE "^include/tandem/" "" place ${header})
  file(WRITE ${destination}/${place} "${text}")
  message(STATUS "Installing: ${destination}/${place}")
endwhile()
