# Files of an instruction set are compiled for it; nothing else is, so that the binary runs on every x86-64.
file(GLOB_RECURSE lode_avx2_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cpu/avx2/*.cc)
set(lode_avx2_flags -mavx2 -mfma -mf16c)
if(NOT LODE_SANITIZE)  # -O3 with a sanitizer takes the compiler minutes a file.
  list(APPEND lode_avx2_flags -O3)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND lode_avx2_flags -fno-tree-reassoc)
endif()
set_source_files_properties(${lode_avx2_sources} PROPERTIES COMPILE_OPTIONS "${lode_avx2_flags}")

# The AVX-512 table's kernels; its table.cc and tests run on any processor.
file(GLOB lode_avx512_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cpu/avx512/*.cc)
list(FILTER lode_avx512_sources EXCLUDE REGEX "(_test|/table)\\.cc$")
set(lode_avx512_flags ${lode_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
    -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 takes its own headers' undefined vectors for uninitialized ones (GCC bug 105593).
  list(APPEND lode_avx512_flags -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
set_source_files_properties(${lode_avx512_sources} PROPERTIES COMPILE_OPTIONS "${lode_avx512_flags}")

option(LODE_STATIC_KERNELS "Targets that test the kernels on another machine" OFF)
if(LODE_STATIC_KERNELS)
  include(${CMAKE_CURRENT_LIST_DIR}/static.cmake)
endif()

# The CUDA backend. LODE_CUDA: ON, OFF, or AUTO: on where nvcc is found. OFF by default, since five architectures take
# nvcc minutes. LODE_CUDA_ARCHS as CMake's CUDA_ARCHITECTURES; a release has the five below.
set(LODE_CUDA OFF CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set(LODE_CUDA_ARCHS "75;80;86;89;90" CACHE STRING "CUDA architectures to compile for, such as 90a alone while developing")
set(lode_cuda ${LODE_CUDA})
if(LODE_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  set(lode_cuda OFF)
  if(CMAKE_CUDA_COMPILER)
    set(lode_cuda ON)
  endif()
endif()
if(lode_cuda)
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  find_package(CUDAToolkit REQUIRED)
  file(GLOB lode_cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cuda/*.cu)
  # -fmad=false: every fma is written as one.
  set_source_files_properties(${lode_cuda_sources} PROPERTIES COMPILE_OPTIONS "-O3;-fmad=false;-diag-suppress=2810")
  target_sources(lode_kernels PRIVATE ${lode_cuda_sources})
  set_target_properties(lode_kernels PROPERTIES CUDA_ARCHITECTURES "${LODE_CUDA_ARCHS}" CUDA_SEPARABLE_COMPILATION OFF)
  target_compile_definitions(lode_kernels PRIVATE LODE_HAS_CUDA)
  target_link_libraries(lode_kernels PUBLIC CUDA::cudart_static CUDA::cublas)
  message(STATUS "CUDA backend for ${LODE_CUDA_ARCHS}")
else()
  message(STATUS "CUDA backend: not built (LODE_CUDA=${LODE_CUDA})")
endif()
