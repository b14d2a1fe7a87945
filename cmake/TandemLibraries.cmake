# The libraries that Tandem uses; docs/design.md lists them.
find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache must ignore these differences to keep files that were compiled with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${TANDEM_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
# For the store of pages on disk: SQLite, OpenSSL's SHA-256 and xxHash's checksums (header-only).
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3>=3.37)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
# For the wire between processes: TLS.
pkg_check_modules(SSL REQUIRED IMPORTED_TARGET libssl)
# UCX, for pages over RDMA (docs/scale_out.md). Only its headers: the library is loaded when an option
# asks for it. Without, base/net/block_path_absent.cc.
tandem_option(TANDEM_UCX "Let pages travel over RDMA by UCX" OFF)
if(TANDEM_UCX)
  pkg_check_modules(UCX ucx>=1.13)
  if(NOT UCX_FOUND)
    message(FATAL_ERROR "TANDEM_UCX: pkg-config finds no ucx >= 1.13: install libucx-dev, or set OFF")
  endif()
endif()
find_path(TANDEM_XXHASH_INCLUDE xxhash.h REQUIRED)
mark_as_advanced(TANDEM_XXHASH_INCLUDE)
# For events of the cache and messages between workers: ZeroMQ, and its C++ interface and MessagePack
# (header-only).
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)
find_path(TANDEM_CPPZMQ_INCLUDE zmq.hpp REQUIRED)
find_path(TANDEM_MSGPACK_INCLUDE msgpack/pack.hpp REQUIRED)
mark_as_advanced(TANDEM_CPPZMQ_INCLUDE TANDEM_MSGPACK_INCLUDE)
# For files of options: toml++ (header-only here).
find_path(TANDEM_TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)
mark_as_advanced(TANDEM_TOMLPLUSPLUS_INCLUDE)
# For models of a hub and `tandem prove`: HTTP with TLS, redirects and proxies. Only for the program.
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl>=7.85)
# For `tandem features`: archives of arrays.
pkg_check_modules(ZIP REQUIRED IMPORTED_TARGET libzip)
# For `tandem chat`: editing and history of lines. Its licence is BSD's, readline's is the GPL.
pkg_check_modules(EDIT REQUIRED IMPORTED_TARGET libedit)
# For the server: Beast and Asio are header-only. Only the core of prometheus-cpp is needed, which its
# CMake package cannot give without the dependencies of the rest.
find_package(Boost 1.74 REQUIRED)
pkg_check_modules(PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-core)
# For the page: reads the Markdown of answers (libjs-marked, MIT licence).
find_file(TANDEM_MARKED marked.min.js PATHS /usr/share/javascript/marked)
mark_as_advanced(TANDEM_MARKED)
if(NOT TANDEM_MARKED)
  message(FATAL_ERROR "marked.min.js is missing: install libjs-marked, or set TANDEM_MARKED to its path")
endif()
if(TANDEM_BUILD_TESTS)
  set(TANDEM_TEST_ROOT "${PROJECT_SOURCE_DIR}" CACHE STRING "Where tests look for their data")
  mark_as_advanced(TANDEM_TEST_ROOT)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# Warnings are errors in our own code only.
add_library(tandem_options INTERFACE)
target_compile_options(tandem_options INTERFACE -Wall -Wextra -Werror)
if(TANDEM_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL Debug)
  target_compile_definitions(tandem_options INTERFACE TANDEM_DCHECKS)  # base/check.h
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of overlaps that cannot be in `"x" + std::string` (GCC bug 105651), and takes what
  # its own precompiled headers do to strings for ours.
  target_compile_options(tandem_options INTERFACE -Wno-restrict -Wno-maybe-uninitialized
                         -Wno-stringop-overflow -Wno-array-bounds)
endif()
if(TANDEM_SANITIZE)
  target_compile_options(tandem_options INTERFACE -fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  target_link_options(tandem_options INTERFACE -fsanitize=${TANDEM_SANITIZE})
endif()
# The environment of tests.
set(TANDEM_TEST_ENVIRONMENT "TSAN_OPTIONS=suppressions=${CMAKE_CURRENT_LIST_DIR}/thread_sanitizer.supp")
if(TANDEM_BUILD_FUZZERS)
  target_compile_options(tandem_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
