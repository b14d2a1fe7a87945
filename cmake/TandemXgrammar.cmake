# TANDEM_XGRAMMAR says where XGrammar is; TANDEM_HAS_XGRAMMAR says whether constraints can be compiled. The
# environment may set TANDEM_XGRAMMAR.
tandem_default(tandem_xgrammar TANDEM_XGRAMMAR AUTO)
set(TANDEM_XGRAMMAR ${tandem_xgrammar} CACHE STRING
    "Grammar engine: a folder that `cmake/xgrammar.sh FOLDER` made, OFF, AUTO for build/xgrammar where that is, or FETCH to make that")
set(TANDEM_HAS_XGRAMMAR OFF)
set(xgrammar_folder ${TANDEM_XGRAMMAR})
if(TANDEM_XGRAMMAR MATCHES "^(AUTO|FETCH)$")
  set(xgrammar_folder ${PROJECT_SOURCE_DIR}/build/xgrammar)
endif()
if(TANDEM_XGRAMMAR STREQUAL FETCH)
  message(STATUS "Making the grammar engine, if it is missing: ${xgrammar_folder}")
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/cmake/xgrammar.sh ${xgrammar_folder} RESULT_VARIABLE failure)
  if(failure)
    message(FATAL_ERROR "TANDEM_XGRAMMAR: found FETCH, but XGrammar could not be fetched and built; with OFF in "
                        "the environment the build does without, and constraints are refused")
  endif()
endif()
if(EXISTS ${xgrammar_folder}/libxgrammar.a)
  set(TANDEM_HAS_XGRAMMAR ON)
  add_library(xgrammar::xgrammar STATIC IMPORTED GLOBAL)
  set_target_properties(xgrammar::xgrammar PROPERTIES
    IMPORTED_LOCATION ${xgrammar_folder}/libxgrammar.a
    INTERFACE_INCLUDE_DIRECTORIES ${xgrammar_folder}/include)
elseif(TANDEM_XGRAMMAR AND NOT TANDEM_XGRAMMAR STREQUAL AUTO)
  message(FATAL_ERROR "TANDEM_XGRAMMAR: ${xgrammar_folder}/libxgrammar.a is missing; `cmake/xgrammar.sh "
                      "${xgrammar_folder}` makes it, OFF does without")
endif()
