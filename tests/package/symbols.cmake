# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# The shared library exports what the headers declare with RG_API, no more and no less. The static
# one defines only rg_ names, and a kernel object only its table: code compiled for AVX-512 must not
# stand in for a common function. Neither shows anything of the CUDA runtime or of C++.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

# ---- declared ----

set(declared "")
foreach(header ${headers})
    if(header MATCHES "(files|safetensors)\\.h$" AND NOT RG_FILES)
        continue()
    endif()
    if(header MATCHES "dataset\\.h$" AND NOT RG_TRAIN)
        continue()
    endif()
    set(folder ${SOURCE}/include)
    if(NOT EXISTS ${folder}/${header})
        set(folder ${BUILD}/include)
    endif()
    file(READ ${folder}/${header} text)
    string(REGEX MATCHALL "RG_API[^(;#]+rg_[a-z0-9_]+\\(" found "${text}")
    list(TRANSFORM found REPLACE "^.*[^a-z0-9_](rg_[a-z0-9_]+)\\($" "\\1")
    list(APPEND declared ${found})
endforeach()
list(SORT declared)
list(REMOVE_DUPLICATES declared)

# ---- exported ----

run(${NM} -D --defined-only ${SHARED})
string(REGEX MATCHALL " [A-Za-z] [^ \n]+" exported "${output}")
list(TRANSFORM exported REPLACE "^ . " "")
list(SORT exported)

set(missing ${declared})
list(REMOVE_ITEM missing ${exported})
set(surplus ${exported})
list(REMOVE_ITEM surplus ${declared})
if(missing)
    message(SEND_ERROR "declared but not in the library: ${missing}")
endif()
if(surplus)
    message(SEND_ERROR "exported but not declared with RG_API: ${surplus}")
endif()

# ---- the static library ----

run(${NM} -g --defined-only ${STATIC})
string(REGEX MATCHALL "\n[0-9a-f]+ [A-Za-z] [^ \n]+" all "${output}")
list(TRANSFORM all REPLACE "^.* " "")
set(foreign ${all})
list(FILTER foreign EXCLUDE REGEX "^rg_")
if(foreign)
    message(SEND_ERROR "names without rg_ in the static library: ${foreign}")
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
string(REPLACE , ";" OPS "${OPS}")
string(REPLACE , ";" ISAS "${ISAS}")
set(wanted "")
foreach(op ${OPS})
    foreach(isa ${ISAS})
        list(APPEND wanted rg_cpu_${op}_f32_${isa} rg_cpu_${op}_f64_${isa})
    endforeach()
    if(HAVE_CUDA)
        list(APPEND wanted rg_cuda_${op})
    endif()
endforeach()
list(REMOVE_ITEM wanted ${tables})
if(wanted)
    message(SEND_ERROR "tables that are not in the static library: ${wanted}")
endif()

# ---- no C++ ----

run(${NM} -u ${STATIC})
string(REGEX MATCHALL "(_Z|__cxa_|__gxx_|_Unwind_)[^ \n]*" cxx "${output}")
if(cxx)
    list(REMOVE_DUPLICATES cxx)
    message(SEND_ERROR "the static library asks for names of the C++ library: ${cxx}")
endif()

list(LENGTH exported exports)
list(LENGTH tables kernels)
message("${exports} functions exported, ${kernels} kernel tables")
