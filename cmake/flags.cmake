# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# Compiler flags: for everything, and for each instruction set.

set(RG_WARNINGS -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
    -Wno-missing-field-initializers -Wno-psabi)
if(RG_WERROR)
    list(APPEND RG_WARNINGS -Werror)
endif()

# No contraction and no fast-math: the main loop and the tail of a kernel round alike.
set(RG_ARITHMETIC -ffp-contract=off -fno-math-errno -fno-trapping-math)

# The instruction sets, lowest first, and what each needs.
set(RG_ISAS base)
set(RG_ISA_FLAGS_base "")
set(RG_ONE_ISA "") # where one stands for all
if(RG_X86_ISAS AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    if(RG_SANITIZE MATCHES thread) # races do not depend on the instruction set
        set(RG_ISAS avx2)
        set(RG_ONE_ISA avx2)
        set(RG_AVX512 0)
    elseif(RG_NATIVE)
        file(STRINGS /proc/cpuinfo features LIMIT_COUNT 1 REGEX "^flags.* fma .*avx2")
        set(RG_ONE_ISA base)
        if(features MATCHES "avx512dq.*avx512bw.*avx512vl" AND features MATCHES "f16c")
            set(RG_ONE_ISA avx512)
        elseif(features MATCHES "f16c")
            set(RG_ONE_ISA avx2)
        endif()
        set(RG_ISAS ${RG_ONE_ISA})
        set(RG_AVX512 $<STREQUAL:${RG_ONE_ISA},avx512>)
    else()
        list(APPEND RG_ISAS avx2 avx512)
        set(RG_AVX512 1)
    endif()
    set(RG_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
    set(RG_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c)
    set(RG_X86 1)
    include(CheckCCompilerFlag)
    check_c_compiler_flag(-mamx-bf16 RG_KNOWS_AMX)
    check_c_compiler_flag(-mavx512bf16 RG_KNOWS_BF16)
else()
    set(RG_X86 0)
    set(RG_AVX512 0)
endif()

# Units for pairs of bf16, each in a file of its own: beside AVX-512, and where the compiler knows
# them.
set(RG_PAIR_UNITS "")
set(RG_AMX_FLAGS "")
set(RG_BF16_FLAGS "")
if(RG_AVX512 AND RG_KNOWS_AMX AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
    list(APPEND RG_PAIR_UNITS RG_HAVE_AMX=1)
    set(RG_AMX_FLAGS -mamx-tile -mamx-bf16 -mavx512f)
endif()
if(RG_AVX512 AND RG_KNOWS_BF16)
    list(APPEND RG_PAIR_UNITS RG_HAVE_BF16=1)
    set(RG_BF16_FLAGS -mavx512bf16 ${RG_ISA_FLAGS_avx512})
endif()

# Kernels under a sanitizer are the longest part of such a build. Checks that trap instead of
# printing find the same in less time, so do calls of functions that check an address where a
# function has hundreds of them, and lines without variables are enough for a report.
set(RG_SANITIZED_KERNEL -g1)
if(CMAKE_C_COMPILER_ID MATCHES Clang AND RG_SANITIZE MATCHES address)
    list(APPEND RG_SANITIZED_KERNEL "SHELL:-mllvm -asan-instrumentation-with-call-threshold=200")
endif()
if(CMAKE_C_COMPILER_ID MATCHES Clang AND RG_SANITIZE MATCHES undefined)
    list(APPEND RG_SANITIZED_KERNEL -fsanitize-trap=undefined)
endif()
# Whether an address wraps around takes half of the compile time of vector code. The expressions are the same for
# every instruction set, so that the kernels of the lowest one are enough; what is read there is checked in all.
set(RG_SANITIZED_REST "")
if(CMAKE_C_COMPILER_ID MATCHES Clang AND RG_SANITIZE MATCHES undefined)
    list(APPEND RG_SANITIZED_REST -fno-sanitize=pointer-overflow)
endif()

# What a bug could do less harm with, in builds that are optimized: buffers of known size and the
# stack are checked, and what the loader has resolved cannot be overwritten. Kernels are compiled as
# without: they are given lengths that were checked before, and their inner loops would pay.
# -fcf-protection is left to the compiler: its marks count only where the C library's own start
# files have them, and where these do the compiler sets it by itself.
set(RG_HARDEN_OPTIONS "")
set(RG_HARDEN_LINK "")
set(RG_PLAIN_STACK "")
if(RG_HARDEN AND NOT RG_SANITIZE)
    include(CheckCCompilerFlag)
    include(CheckCSourceCompiles)
    include(CheckPIESupported)
    check_pie_supported(LANGUAGES C)
    set(optimized $<CONFIG:Release,RelWithDebInfo,MinSizeRel>)
    set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
    check_c_source_compiles("#include <string.h>
int main(void) { return 0; }" RG_KNOWS_FORTIFY_3)
    unset(CMAKE_REQUIRED_FLAGS)
    set(level $<IF:$<BOOL:${RG_KNOWS_FORTIFY_3}>,3,2>)
    list(APPEND RG_HARDEN_OPTIONS $<${optimized}:-U_FORTIFY_SOURCE>
        $<${optimized}:-D_FORTIFY_SOURCE=${level}>)
    foreach(flag stack-protector-strong stack-clash-protection)
        string(MAKE_C_IDENTIFIER "RG_KNOWS_${flag}" known)
        check_c_compiler_flag(-f${flag} ${known})
        if(${known})
            list(APPEND RG_HARDEN_OPTIONS $<${optimized}:-f${flag}>)
        endif()
    endforeach()
    if(RG_KNOWS_stack_protector_strong)
        set(RG_PLAIN_STACK -fno-stack-protector)
    endif()
    set(RG_HARDEN_LINK $<${optimized}:LINKER:-z,relro,-z,now,-z,noexecstack>)
endif()

# What every target of the project is compiled with. -O3, CMake's own choice, takes longer and gains
# nothing but in loops over data: RG_LOOPS is for sources that have such. RG_QUICK is for those that
# are never waited for; at -O1 gcc takes initialized variables for uninitialized ones.
set(RG_LOOPS $<$<CONFIG:Release>:-O3>)
set(RG_QUICK -O1 $<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
function(rg_target target)
    target_compile_features(${target} PRIVATE c_std_11)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE RG_HAVE_X86_ISAS=${RG_X86}
        RG_HAVE_AVX512=${RG_AVX512} RG_HAVE_CUDA=${RG_HAVE_CUDA}
        $<$<BOOL:${RG_ONE_ISA}>:RG_ONE_ISA=${RG_ONE_ISA}>)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include
        ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    if(RG_HAVE_CUDA)
        target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    endif()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2> ${RG_WARNINGS} ${RG_ARITHMETIC}
        ${RG_HARDEN_OPTIONS})
    target_link_options(${target} PRIVATE ${RG_HARDEN_LINK})
    set_target_properties(${target} PROPERTIES C_EXTENSIONS ON C_VISIBILITY_PRESET hidden
        POSITION_INDEPENDENT_CODE ON)
    if(RG_SANITIZE)
        target_compile_options(${target} PRIVATE -fsanitize=${RG_SANITIZE}
            -fno-sanitize-recover=all -fno-omit-frame-pointer)
    endif()
    if(RG_FUZZ) # counts what an input reaches
        target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
    endif()
endfunction()

# What the libraries are linked with. A sanitizer's own functions come from the program, not from
# the shared library.
function(rg_link target)
    if(RG_SANITIZE)
        target_link_options(${target} PUBLIC -fsanitize=${RG_SANITIZE})
    else()
        target_link_options(${target} PRIVATE -Wl,-z,defs ${RG_HARDEN_LINK})
    endif()
endfunction()
