# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# The CUDA backend: built where nvcc is found, left out without complaint elsewhere. The runtime is
# linked statically and finds the driver when the program runs.

set(RG_HAVE_CUDA 0)
if(RG_CUDA AND NOT CMAKE_CROSSCOMPILING)
    set(CMAKE_CUDA_ARCHITECTURES ${RG_CUDA_ARCHITECTURES})
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
        enable_language(CUDA)
        find_package(CUDAToolkit REQUIRED)
        set(RG_HAVE_CUDA 1)
    endif()
endif()

# Sources in CUDA C, as objects. No contraction: all variants of a kernel round alike.
function(rg_cuda_sources target)
    add_library(${target} OBJECT ${ARGN})
    target_compile_features(${target} PRIVATE cuda_std_17)
    target_compile_options(${target} PRIVATE --fmad=false
        -Xcompiler=-Wall,-Wextra,-fno-exceptions,-fno-rtti,-fvisibility=hidden)
    if(RG_WERROR)
        target_compile_options(${target} PRIVATE -Werror=all-warnings)
    endif()
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include
        ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
        CUDA_RUNTIME_LIBRARY Static)
endfunction()
