# Precompiled headers, of libraries only, for the compiler's time: it is a third less for most files
# (2 cores of Sapphire Rapids: 24 s of generate_command.cc became 17, 8.5 s of engine_test.cc 6).
# A header's missing includes are found in a build without them (tests/CMakeLists.txt).
set(tandem_usual_headers <algorithm> <array> <cmath> <cstdint> <functional> <memory> <optional>
    <string> <string_view> <utility> <vector> <absl/container/flat_hash_map.h>
    <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/types/span.h>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)  # for ccache
endif()

set(CMAKE_UNITY_BUILD ${TANDEM_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)

# tandem_folder(PATH DEPENDS a b ... [SUBFOLDERS x y ...] [WITHOUT file...]
#               [PRECOMPILED header... | PRECOMPILED_LIKE folder] [COLD] [HEAVY_TESTS])
#
# PATH is this folder's path from the root; NAME below is the same with _ for each slash: base/json, base_json.
# Makes the library tandem_NAME of every .cc in this folder and the named subfolders, the test
# program NAME_test of every *_test.cc and *_testing.cc there, and, where TANDEM_BUILD_FUZZERS is on, one program of
# every *_fuzz.cc. DEPENDS names libraries of folders to the left and of others
# (tests/tidy_test.cc). *_benchmark.cc are not built. PRECOMPILED_LIKE needs the same compiler
# options in both folders, and in all of their files. COLD: no loop over rows or weights runs here, so that release
# builds optimise little (text/chat: 0.6 of the compiler's time). HEAVY_TESTS: see tandem_test_program.
# Test programs whose cases run threads; they get the label `threads`. A build with the thread sanitizer has
# only these, because it would find nothing in the others.
set(tandem_programs_with_threads base_test kvcache_store_test kvcache_transfer_test model_ranks_test draft_test verify_test
  engine_test server_test system_test)
# Cases of these programs that a build with the thread sanitizer leaves out: they are slow there, and other
# cases run the same threads.
set(tandem_skipped_under_tsan SpeculationPolicy.* ToolCalls.* XmlArguments.* ReasoningSplitter.* RunRound.*
  All/GoldenModel* All/EveryScheme* All/QuantizedGolden* All/GgufFamily* Numerics.* QuantizedModelTest.*
  BenchProgram.* HeadProgram.* BenchChat.* Program.* ProgramOutput.* CommandLine.* SqliteFaults.* DamagedStore.*
  KnownFaults.* EngineDraftWindow.* Vocabularies.* PackedWeights.* Embedding.* Generate* SelfDrafts.* FirstPassTest.*
  Forms/EngineHead.* Endings.SlowReadersGetTheWholeAnswer HostileConstraints.AreRefusedByName
  ProveProgram.FindsNoDifferenceInOurOwnServer TerminalProgress.*IsRead)
# Cases that a build with the address sanitizer leaves out: whole programs whose parts have their own tests, numerics,
# and cases that repeat the same code many times.
set(tandem_skipped_under_asan BenchProgram.* HeadProgram.* BenchChat.* ProgramOutput.* QuantizedModelTest.* Numerics.*
  CommandLine.* Program.RefusesWrongCommandLines Program.RefusesToServeWithWrongOptions
  Program.ProvesThatSpeculationIsLossless EngineDraftWindow.DoesNotChangeTheOutputAtAnySize
  IntegerRanges.ContainExactlyTheIntegersWithin HostileConstraints.AreRefusedByName
  SpeculationPolicy.CostsNothingWhereBatchesGainNothing ToolCalls.DoNotDependOnHowTheTextIsCut KnownFaults.*
  All/GoldenModel.RowsHaveTheSameBitsInEveryChunking/* *.IsTheSameAfterARestart* CompareDraws.*
  OfLaws/ProofFault.IsCaught/* ProveRemotely.DoesNotCallArithmeticAFault
  ProveProgram.FindsNoDifferenceInOurOwnServer TerminalProgress.*IsRead)

set(tandem_cold_level $<$<CONFIG:Release>:-O1>)
# The precompiled headers of COLD folders; the libraries have them.
function(tandem_cold_headers)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/cold_headers.cc CONTENT "// Precompiled headers need a source.\n")
  add_library(tandem_cold_headers OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/cold_headers.cc)
  target_compile_features(tandem_cold_headers PRIVATE cxx_std_20)
  target_compile_options(tandem_cold_headers PRIVATE ${tandem_cold_level})
  target_link_libraries(tandem_cold_headers PRIVATE tandem_options ${ARGN})
  target_precompile_headers(tandem_cold_headers PRIVATE ${tandem_usual_headers})
endfunction()

function(tandem_folder path)
  string(REPLACE "/" "_" name ${path})
  cmake_parse_arguments(PARSE_ARGV 1 arg "COLD;HEAVY_TESTS" "PRECOMPILED_LIKE"
                        "DEPENDS;SUBFOLDERS;WITHOUT;PRECOMPILED")
  set(globs *.cc)
  foreach(subfolder IN LISTS arg_SUBFOLDERS)
    list(APPEND globs ${subfolder}/*.cc)
  endforeach()
  file(GLOB all CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${globs})
  list(REMOVE_ITEM all ${arg_WITHOUT} "")
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_(test|testing|benchmark|fuzz)\\.cc$")
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_(test|testing)\\.cc$")
  set(fuzzers ${all})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")

  if(arg_COLD AND NOT TARGET tandem_cold_headers)
    tandem_cold_headers(absl::flat_hash_map absl::statusor absl::strings absl::span)
  endif()
  if(sources)
    add_library(tandem_${name} STATIC ${sources})
    target_link_libraries(tandem_${name} PRIVATE $<BUILD_INTERFACE:tandem_options>)
    set(scope PUBLIC)
    if(arg_COLD)
      target_compile_options(tandem_${name} PRIVATE ${tandem_cold_level})
      target_precompile_headers(tandem_${name} REUSE_FROM tandem_cold_headers)
    endif()
    # Two batches of a folder instantiate the same templates: larger batches take less time in all.
    set_target_properties(tandem_${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 24)
    if(arg_PRECOMPILED)
      target_precompile_headers(tandem_${name} PRIVATE ${arg_PRECOMPILED})
    elseif(arg_PRECOMPILED_LIKE)
      target_precompile_headers(tandem_${name} REUSE_FROM tandem_${arg_PRECOMPILED_LIKE})
    endif()
  else()
    add_library(tandem_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(tandem_${name} ${scope}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:include>)
  target_compile_features(tandem_${name} ${scope} cxx_std_20)
  target_link_libraries(tandem_${name} ${scope} ${arg_DEPENDS})
  set_target_properties(tandem_${name} PROPERTIES EXPORT_NAME ${name})
  add_library(tandem::${name} ALIAS tandem_${name})
  set_property(GLOBAL APPEND PROPERTY TANDEM_FOLDERS tandem_${name})

  if(TANDEM_SANITIZE STREQUAL "thread" AND NOT ${name}_test IN_LIST tandem_programs_with_threads)
    set(tests)
  endif()
  if(TANDEM_BUILD_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE tandem_${name})
    set(heavy "")
    if(arg_HEAVY_TESTS)
      set(heavy HEAVY)
    endif()
    tandem_test_program(${name}_test ${heavy})
  endif()
  if(TANDEM_BUILD_FUZZERS)
    foreach(fuzzer IN LISTS fuzzers)
      get_filename_component(program ${fuzzer} NAME_WE)
      add_executable(${program} ${fuzzer})
      target_link_libraries(${program} PRIVATE tandem_${name} tandem_options)
      target_link_options(${program} PRIVATE -fsanitize=fuzzer)
      set_target_properties(${program} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzzers)
      add_dependencies(fuzzers ${program})
    endforeach()
  endif()
endfunction()

# Commands spend most of their time in the compiler, so they are built with little optimisation.
set(tandem_command_level $<$<CONFIG:Release>:-O1>)
if(TANDEM_SANITIZE)
  set(tandem_command_level -O0)
endif()

# tandem_commands(PATH HOT file...): the folder's library consists of commands. The HOT files, which read, fill or
# sum much data, are optimised as usual.
function(tandem_commands path)
  string(REPLACE "/" "_" name ${path})
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HOT")
  set(hot_level $<$<CONFIG:Release>:-O3>)
  if(TANDEM_SANITIZE)
    set(hot_level -O1)
  endif()
  target_compile_options(tandem_${name} PRIVATE ${tandem_command_level})
  set_source_files_properties(${arg_HOT} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "${hot_level}")
endfunction()

# tandem_embed(PATH FUNCTION file...): builds files into the folder's library, where FUNCTION() returns them
# (server/api/web_files.h). NAME=FILE gives a file another name.
function(tandem_embed path function)
  string(REPLACE "/" "_" name ${path})
  set(embed ${PROJECT_SOURCE_DIR}/cmake/embed_web_files.cmake)
  set(contents ${CMAKE_CURRENT_BINARY_DIR}/web_contents.cc)
  list(TRANSFORM ARGN REPLACE "^.*=" "" OUTPUT_VARIABLE files)
  add_custom_command(OUTPUT ${contents}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${ARGN}" -DFUNCTION=${function} -DOUTPUT=${contents} -P ${embed}
    DEPENDS ${files} ${embed} VERBATIM)
  target_sources(tandem_${name} PRIVATE ${contents})
  # The file exists only after a build, and clang-tidy reads the other files of the unity batch without it.
  set_source_files_properties(${contents} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# tandem_test_program(PROGRAM [TEST_PREFIX p] [LABELS l] [HEAVY] [OTHER_OPTIONS])
# Sets up a program of GoogleTest tests; its cases become tests of ctest. HEAVY: much of the time goes
# into the tests' own code, which is optimised under sanitizers too. OTHER_OPTIONS: some files have their
# own compiler options, so the program cannot share the precompiled headers of the first such program.
function(tandem_test_program program)
  cmake_parse_arguments(PARSE_ARGV 1 arg "HEAVY;OTHER_OPTIONS" "TEST_PREFIX;LABELS" "")
  set(labels "")
  if(program IN_LIST tandem_programs_with_threads)
    set(labels LABELS threads)
  elseif(arg_LABELS)
    set(labels LABELS ${arg_LABELS})
  endif()
  target_link_libraries(${program} PRIVATE tandem_options tandem_base_testing GTest::gmock_main)
  # Most tests take more time to compile than to run.
  set(level -O1)
  if(TANDEM_SANITIZE AND NOT arg_HEAVY)
    set(level -O0)
  endif()
  target_compile_options(${program} PRIVATE $<$<NOT:$<CONFIG:Debug>>:${level}>)
  # Undefined behaviour is looked for in the libraries. In the tests' own code the checks take a third of the
  # compile time.
  if(TANDEM_SANITIZE MATCHES "undefined")
    target_compile_options(${program} PRIVATE -fno-sanitize=undefined)
  endif()
  get_property(first GLOBAL PROPERTY TANDEM_FIRST_TEST_PROGRAM${level})
  if(NOT arg_OTHER_OPTIONS AND first)
    target_precompile_headers(${program} REUSE_FROM ${first})
  elseif(NOT arg_OTHER_OPTIONS)
    target_precompile_headers(${program} PRIVATE ${tandem_usual_headers} <gmock/gmock.h>
                              <gtest/gtest.h> <tandem/json_value.h>)
    set_property(GLOBAL PROPERTY TANDEM_FIRST_TEST_PROGRAM${level} ${program})
  endif()
  if(TANDEM_SANITIZE)
    tandem_test_parts(${program} "${arg_TEST_PREFIX}" "${labels}")
    return()
  endif()
  gtest_discover_tests(${program} DISCOVERY_TIMEOUT 60 TEST_PREFIX "${arg_TEST_PREFIX}"
    PROPERTIES TIMEOUT 600 ${labels} ENVIRONMENT "${TANDEM_TEST_ENVIRONMENT}")
endfunction()

# Deals the cases to six parts: a process for each case would load its models and compile its
# constraints once more.
function(tandem_test_parts program prefix labels)
  set(num_parts 6)
  set(cases ${tandem_skipped_under_asan})
  if(TANDEM_SANITIZE STREQUAL "thread")
    set(cases ${tandem_skipped_under_tsan})
  endif()
  list(JOIN cases ":" without)
  set(filter --gtest_filter=-${without})
  foreach(part RANGE 1 ${num_parts})
    math(EXPR index "${part} - 1")
    set(name "${prefix}${program}/part_${part}")
    add_test(NAME ${name} COMMAND ${program} --gtest_brief=1 ${filter})
    set_tests_properties(${name} PROPERTIES TIMEOUT 1800 ${labels}
      ENVIRONMENT "${TANDEM_TEST_ENVIRONMENT};GTEST_TOTAL_SHARDS=${num_parts};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

if(TANDEM_BUILD_FUZZERS)
  add_custom_target(fuzzers)
endif()
