# TANDEM_CUDA says whether the build has a CUDA backend; TANDEM_HAS_CUDA has the result. The compiler is
# looked for in the path and where the toolkit installs it. The environment may set TANDEM_CUDA.
tandem_default(tandem_cuda TANDEM_CUDA AUTO)
set(TANDEM_CUDA ${tandem_cuda} CACHE STRING "CUDA backend: ON, OFF, or AUTO for where nvcc is found")
set_property(CACHE TANDEM_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for Ampere, Ada and Hopper (90a: with the instructions that only Hopper has), and PTX for
# later devices, on which 90a would not run. The environment may choose others with CMake's own variable.
set(tandem_architectures "80-real;89-real;90a-real;90-virtual")
# A build for this machine (TANDEM_NATIVE) has machine code for its devices only, and without a device no CUDA
# unless TANDEM_CUDA is ON.
if(TANDEM_NATIVE AND TANDEM_CUDA)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE capabilities RESULT_VARIABLE failure ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${capabilities}")
  if(capabilities AND failure EQUAL 0)
    list(REMOVE_DUPLICATES capabilities)
    list(TRANSFORM capabilities REPLACE "\\." "")
    list(TRANSFORM capabilities REPLACE "^90$" "90a")
    list(TRANSFORM capabilities APPEND "-real" OUTPUT_VARIABLE tandem_architectures)
  elseif(TANDEM_CUDA STREQUAL AUTO)
    message(STATUS "No CUDA device was found: this build has no CUDA backend, unless TANDEM_CUDA is ON")
    set(TANDEM_CUDA OFF)
  endif()
endif()
tandem_default(tandem_cuda_architectures CUDAARCHS "${tandem_architectures}")
set(CMAKE_CUDA_ARCHITECTURES "${tandem_cuda_architectures}" CACHE STRING
    "CUDA architectures to build for")

# cuBLASLt, which is loaded where a machine has it, as a reference (docs/cuda_products.md); without,
# kernels/cuda/cublas_absent.cc.
tandem_option(TANDEM_CUBLAS "Let cuBLASLt compute the reference of benchmarks" ON)
# The same in passes; without, kernels/cuda/cublas_products_absent.cc.
tandem_option(TANDEM_CUBLAS_PRODUCTS "Let cuBLASLt compute products of many rows whose bits are ours" OFF)

# NCCL, in the same way; without, kernels/cuda/nccl_absent.cc.
tandem_option(TANDEM_NCCL "Let devices of several processes gather by NCCL" ON)

set(TANDEM_HAS_CUDA OFF)
# Sanitizers know nothing of a device; they run its kernels on the host (tests/simt).
if(TANDEM_CUDA AND NOT (TANDEM_CUDA STREQUAL AUTO AND TANDEM_SANITIZE))
  find_program(TANDEM_NVCC nvcc PATHS /usr/local/cuda/bin)
  mark_as_advanced(TANDEM_NVCC)
  if(TANDEM_NVCC AND NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${TANDEM_NVCC})
  endif()
  if(NOT TANDEM_CUDA STREQUAL AUTO)
    enable_language(CUDA)
    set(TANDEM_HAS_CUDA ON)
  elseif(TANDEM_NVCC)
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      enable_language(CUDA)
      set(TANDEM_HAS_CUDA ON)
    endif()
  endif()
endif()

if(TANDEM_HAS_CUDA)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(TANDEM_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${TANDEM_CCACHE})
  endif()
  find_package(CUDAToolkit REQUIRED)
endif()
