# tandem_folder(NAME DEPENDS a b ... [SUBFOLDERS x y ...] [WITHOUT file...])
#
# Makes the library tandem_NAME of every .cc in this folder and the named subfolders, and the test
# program NAME_test of every *_test.cc there. *_benchmark.cc and *_fuzz.cc stand alone.
function(tandem_folder name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPENDS;SUBFOLDERS;WITHOUT")
  set(globs *.cc)
  foreach(subfolder IN LISTS arg_SUBFOLDERS)
    list(APPEND globs ${subfolder}/*.cc)
  endforeach()
  file(GLOB all CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${globs})
  list(REMOVE_ITEM all ${arg_WITHOUT} "")
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_(test|benchmark|fuzz)\\.cc$")
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")

  if(sources)
    add_library(tandem_${name} STATIC ${sources})
    target_link_libraries(tandem_${name} PRIVATE $<BUILD_INTERFACE:tandem_options>)
    set(scope PUBLIC)
  else()
    add_library(tandem_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(tandem_${name} ${scope}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:include/tandem>)
  target_link_libraries(tandem_${name} ${scope} ${arg_DEPENDS})
  set_target_properties(tandem_${name} PROPERTIES EXPORT_NAME ${name})

  if(TANDEM_BUILD_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE tandem_${name} tandem_options GTest::gmock_main)
    target_compile_definitions(${name}_test PRIVATE TANDEM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    gtest_discover_tests(${name}_test DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
  endif()
endfunction()
