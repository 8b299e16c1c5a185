# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# A shared library exports what its headers declare with RG_API, no more and no less; libretrograde also what
# it shares with libretrograde_train, under a version that says so. The static ones define only rg_ names, none
# of them twice, and a kernel object only its table: code compiled for AVX-512 must not stand in for a common
# function. None shows anything of the CUDA runtime or of C++.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

# ---- shared libraries ----

# Names that headers declare with RG_API, into `result`.
function(declared_by result)
    set(declared "")
    foreach(header ${ARGN})
        set(folder ${SOURCE}/include)
        if(NOT EXISTS ${folder}/${header})
            set(folder ${BUILD}/include)
        endif()
        file(READ ${folder}/${header} text)
        string(REGEX MATCHALL "RG_API[^(;#]+rg_[a-z0-9_]+\\(" found "${text}")
        list(TRANSFORM found REPLACE "^.*[^a-z0-9_](rg_[a-z0-9_]+)\\($" "\\1")
        list(APPEND declared ${found})
    endforeach()
    set(${result} ${declared} PARENT_SCOPE)
endfunction()

# Compares what a library exports with a list of names; `count` receives how many there are.
function(check_exports library)
    set(declared ${ARGN})
    list(SORT declared)
    list(REMOVE_DUPLICATES declared)
    run(${NM} -D --defined-only ${library})
    string(REGEX MATCHALL " [B-Zb-z] [^ \n]+" exported "${output}") # A: the version itself
    list(TRANSFORM exported REPLACE "^ . " "")
    set(missing ${declared})
    list(REMOVE_ITEM missing ${exported})
    set(surplus ${exported})
    list(REMOVE_ITEM surplus ${declared})
    if(missing)
        message(SEND_ERROR "declared but not in ${library}: ${missing}")
    endif()
    if(surplus)
        message(SEND_ERROR "exported by ${library} but not declared with RG_API: ${surplus}")
    endif()
    list(LENGTH exported count)
    set(count ${count} PARENT_SCOPE)
endfunction()

string(REPLACE , ";" PRIVATE_NAMES "${PRIVATE_NAMES}")
list(TRANSFORM PRIVATE_NAMES APPEND "@@RETROGRADE_PRIVATE_${VERSION}")
declared_by(declared ${core_headers})
check_exports(${SHARED} ${declared} ${PRIVATE_NAMES})
set(exports ${count})
if(RG_TRAIN)
    declared_by(declared ${train_headers})
    check_exports(${TRAIN_SHARED} ${declared})
    math(EXPR exports "${exports} + ${count}")
endif()

# ---- static libraries ----

set(all "")
foreach(library ${TRAIN_STATIC} ${STATIC}) # the kernels of the last one are looked at below
    run(${NM} -g --defined-only ${library})
    string(REGEX MATCHALL "\n[0-9a-f]+ [A-Za-z] [^ \n]+" found "${output}")
    list(TRANSFORM found REPLACE "^.* " "")
    list(APPEND all ${found})
endforeach()
set(foreign ${all})
list(FILTER foreign EXCLUDE REGEX "^rg_")
if(foreign)
    message(SEND_ERROR "names without rg_ in the static libraries: ${foreign}")
endif()
set(once ${all})
list(REMOVE_DUPLICATES once)
list(LENGTH all count)
list(LENGTH once different)
if(NOT count EQUAL different)
    message(SEND_ERROR "${count} names are defined in the static libraries, and ${different} of them differ")
endif()

string(REGEX MATCHALL "[a-z0-9_]+_(cpu\\.c|cuda\\.cu)\\.o:(\n[0-9a-f]+ [A-Za-z] [^ \n]+)*" objects
    "${output}")
set(tables "")
foreach(object ${objects})
    string(REGEX MATCHALL " [A-Za-z] [^ \n]+" symbols "${object}")
    if(NOT symbols MATCHES "^ [RD] (rg_(cpu|cuda)_[a-z0-9_]+)$")
        message(SEND_ERROR "a kernel object defines more than its table: ${object}")
    endif()
    list(APPEND tables ${CMAKE_MATCH_1})
endforeach()
string(REPLACE , ";" CPU_TABLES "${CPU_TABLES}")
string(REPLACE , ";" NARROW_TABLES "${NARROW_TABLES}")
string(REPLACE , ";" CUDA_TABLES "${CUDA_TABLES}")
string(REPLACE , ";" ISAS "${ISAS}")
set(wanted "")
foreach(name ${CPU_TABLES})
    foreach(isa ${ISAS})
        list(APPEND wanted rg_cpu_${name}_f32_${isa})
        if(NOT (isa STREQUAL avx512 AND name IN_LIST NARROW_TABLES))
            list(APPEND wanted rg_cpu_${name}_f64_${isa})
        endif()
    endforeach()
endforeach()
if(HAVE_CUDA)
    list(TRANSFORM CUDA_TABLES PREPEND rg_cuda_)
    list(APPEND wanted ${CUDA_TABLES})
endif()
list(REMOVE_ITEM wanted ${tables})
if(wanted)
    message(SEND_ERROR "tables that are not in the static library: ${wanted}")
endif()

# ---- no C++ ----

run(${NM} -u ${STATIC} ${TRAIN_STATIC})
string(REGEX MATCHALL "(_Z|__cxa_|__gxx_|_Unwind_)[^ \n]*" cxx "${output}")
if(cxx)
    list(REMOVE_DUPLICATES cxx)
    message(SEND_ERROR "the static libraries ask for names of the C++ library: ${cxx}")
endif()

list(LENGTH tables kernels)
message("${exports} functions exported, ${kernels} kernel tables")
