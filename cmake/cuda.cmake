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
        if(NOT CMAKE_CUDA_COMPILER_ID STREQUAL NVIDIA OR CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
            message(STATUS "CUDA is left out: nvcc 12.8 or later is needed, but "
                "${CMAKE_CUDA_COMPILER_ID} ${CMAKE_CUDA_COMPILER_VERSION} was found")
        else()
            find_package(CUDAToolkit REQUIRED)
            set(RG_HAVE_CUDA 1)
        endif()
    else()
        unset(CMAKE_CUDA_COMPILER CACHE) # it may be installed later
    endif()
endif()

if(RG_HAVE_CUDA)
    # All is linked as C. The host side of kernels has no need of the C++ library, and the runtime
    # is named where it is wanted.
    set(CMAKE_CUDA_LINKER_PREFERENCE_PROPAGATES 0)
    set(CMAKE_CUDA_IMPLICIT_LINK_LIBRARIES "")
    set(CMAKE_CUDA_RUNTIME_LIBRARY None)
endif()

# cuDNN and cuBLASLt are opened when the program first needs them; building needs their headers
# alone, and without these their kernels are left out.
set(RG_HAVE_CUDNN 0)
set(RG_HAVE_CUBLASLT 0)
if(RG_HAVE_CUDA)
    include(CheckCSourceCompiles)
    set(CMAKE_REQUIRED_INCLUDES ${CUDAToolkit_INCLUDE_DIRS})
    check_c_source_compiles("#include <cudnn.h>
#if CUDNN_MAJOR != 9
#error another version
#endif
int main(void) { return 0; }" RG_FOUND_CUDNN)
    check_c_source_compiles("#include <cublasLt.h>
int main(void) { return CUBLAS_VER_MAJOR == 0; }" RG_FOUND_CUBLASLT)
    unset(CMAKE_REQUIRED_INCLUDES)
    foreach(library CUDNN CUBLASLT)
        if(RG_FOUND_${library})
            set(RG_HAVE_${library} 1)
        else()
            unset(RG_FOUND_${library} CACHE) # it may be installed later
        endif()
    endforeach()
endif()

# Sources in CUDA C, as objects. No contraction: all variants of a kernel round alike. The form of
# launches that is switched off would need the C++ library, for guards around its static variables.
function(rg_cuda_objects target architectures)
    add_library(${target} OBJECT ${ARGN})
    target_compile_features(${target} PRIVATE cuda_std_17)
    target_compile_options(${target} PRIVATE --fmad=false --compress-mode=size
        -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers,-O2,-fno-exceptions,-fno-rtti,-fvisibility=hidden
        -Xcompiler=-D__NV_LEGACY_LAUNCH)
    if(RG_WERROR)
        target_compile_options(${target} PRIVATE -Werror=all-warnings)
    endif()
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include
        ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
        CUDA_ARCHITECTURES "${architectures}")
endfunction()

# The same for all architectures, into the list `<target>_objects`. A source that uses what Hopper has
# and nothing else will have names it, and is compiled for that instead.
function(rg_cuda_sources target)
    set(sources ${ARGN})
    set(hopper "")
    foreach(source ${ARGN})
        file(STRINGS ${source} features REGEX "RG_CUDA_FEATURES 90a")
        if(features)
            list(REMOVE_ITEM sources ${source})
            list(APPEND hopper ${source})
        endif()
    endforeach()
    rg_cuda_objects(${target} "${RG_CUDA_ARCHITECTURES}" ${sources})
    set(objects $<TARGET_OBJECTS:${target}>)
    if(hopper)
        string(REPLACE "90-real" "90a-real" architectures "${RG_CUDA_ARCHITECTURES}")
        rg_cuda_objects(${target}_hopper "${architectures}" ${hopper})
        list(APPEND objects $<TARGET_OBJECTS:${target}_hopper>)
    endif()
    set(${target}_objects ${objects} PARENT_SCOPE)
endfunction()
