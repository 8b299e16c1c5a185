# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# Everything that follows from src/ops/ops.def and the folders beside it: sources, kernels per
# instruction set, their tables, the header that includes all ops.

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/src/ops/ops.def)
file(STRINGS ${PROJECT_SOURCE_DIR}/src/ops/ops.def lines REGEX "^RG_OP\\(")
set(RG_OPS "")
set(RG_OPS_INCLUDES "")
set(RG_OPS_NODES "")
set(RG_OPS_NODE_MACROS "")
foreach(line ${lines})
    if(NOT line MATCHES "^RG_OP\\(([a-z0-9_]+)\\)$")
        message(FATAL_ERROR "src/ops/ops.def: '${line}' is not RG_OP(name)")
    endif()
    set(op ${CMAKE_MATCH_1})
    list(APPEND RG_OPS ${op})
    string(APPEND RG_OPS_INCLUDES "#include <retrograde/${op}.h>\n")
    string(APPEND RG_OPS_NODES
        "RG_API rg_node *rg_graph_${op}(rg_graph *graph, const rg_${op}_desc *desc,\n"
        "    rg_value *const x[]);\n"
        "RG_API rg_node *rg_graph_${op}_counted(rg_graph *graph, const rg_${op}_desc *desc,\n"
        "    rg_value *const x[], size_t count);\n"
        "RG_API rg_node *rg_graph_${op}_gradient(rg_graph *graph, const rg_${op}_desc *desc,\n"
        "    rg_value *const dy[], rg_value *const x[], rg_value *const y[], rg_node *state_of);\n"
        "RG_API rg_node *rg_graph_${op}_gradient_counted(rg_graph *graph,\n"
        "    const rg_${op}_desc *desc, rg_value *const dy[], size_t dy_count, rg_value *const x[],\n"
        "    size_t x_count, rg_value *const y[], size_t y_count, rg_node *state_of);\n")
    string(APPEND RG_OPS_NODE_MACROS
        "#define rg_graph_${op}(graph, desc, ...) \\\n"
        "    rg_graph_${op}_counted(graph, desc, __VA_ARGS__, RG_VALUES_LENGTH(__VA_ARGS__))\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/include/retrograde/ops.h CONTENT
"/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Made from src/ops/ops.def: one header per op. */
#ifndef RETROGRADE_OPS_H
#define RETROGRADE_OPS_H
@RG_OPS_INCLUDES@
#endif
" @ONLY)

file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/include/retrograde/nodes.h CONTENT
"/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Made from src/ops/ops.def: builders of nodes, two for each op, and each once more with the
 *  lengths of its arrays. `x` and `dy` have as many entries as the descriptor says; `y` may be NULL
 *  if the gradient does not read it, and `state_of`, the node whose state it reads, if it reads no
 *  state. The gradient node has an output for each input that has a gradient.
 *
 *  The counted forms refuse an array that is shorter than the descriptor needs, with a sentence that
 *  names what is missing; extra entries are ignored. In C, with GCC and Clang, rg_graph_<op>() is a
 *  macro that passes the length of `x` if the compiler knows it. Put a compound-literal descriptor
 *  in parentheses there, because its commas would separate macro arguments. */
#ifndef RETROGRADE_NODES_H
#define RETROGRADE_NODES_H

#include <retrograde/graph.h>
#include <retrograde/ops.h>

#ifdef __cplusplus
extern \"C\" {
#endif

@RG_OPS_NODES@
#ifdef __cplusplus
}
#endif

#ifdef RG_VALUES_LENGTH
@RG_OPS_NODE_MACROS@#endif

#endif
" @ONLY)

# ---- the sources of each folder ----

# All of src/ops. A folder that ops.def does not name holds what several ops share.
file(GLOB_RECURSE RG_OPS_SOURCES CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src/ops
    ${PROJECT_SOURCE_DIR}/src/ops/*.c ${PROJECT_SOURCE_DIR}/src/ops/*.cu)
set(RG_OPS_FOLDERS ${RG_OPS_SOURCES})
list(FILTER RG_OPS_FOLDERS INCLUDE REGEX /)
list(TRANSFORM RG_OPS_FOLDERS REPLACE "/.*" "")
list(REMOVE_DUPLICATES RG_OPS_FOLDERS)

# The sources of src/ops/<folder> by what they are:
#     <name>_cpu.c    kernels, compiled for each instruction set and real; ends with the table <name>
#     <name>_cuda.cu  kernels for GPUs, ends with the table <name>; other .cu have none
#     <op>_ref.c, <op>_test.c  the definition and the cases
#     any other .c    host code, compiled once
function(rg_folder_sources folder host cpu cuda tests)
    set(sources ${RG_OPS_SOURCES})
    list(FILTER sources INCLUDE REGEX "^${folder}/")
    foreach(kind host cpu cuda tests)
        set(found_${kind} "")
    endforeach()
    foreach(source ${sources})
        if(source MATCHES "_(ref|test)[.]c$")
            set(kind tests)
        elseif(source MATCHES "_cpu[.]c$")
            set(kind cpu)
        elseif(source MATCHES "[.]cu$")
            set(kind cuda)
        else()
            set(kind host)
        endif()
        list(APPEND found_${kind} ${PROJECT_SOURCE_DIR}/src/ops/${source})
    endforeach()
    foreach(kind host cpu cuda tests)
        set(${${kind}} ${found_${kind}} PARENT_SCOPE)
    endforeach()
endfunction()

# The names of the tables in `sources`, appended to the list `all`; and lines of `text` with @name@
# replaced.
function(rg_tables_of sources ending text all result)
    set(lines "")
    set(names ${${all}})
    foreach(source ${sources})
        if(source MATCHES "/([^/]+)${ending}$")
            string(REPLACE @name@ ${CMAKE_MATCH_1} line "${text}")
            list(APPEND names ${CMAKE_MATCH_1})
            string(APPEND lines " \\\n    ${line}")
        endif()
    endforeach()
    set(${all} ${names} PARENT_SCOPE)
    set(${result} "${lines}" PARENT_SCOPE)
endfunction()

# The folders whose kernels in double are compiled for AVX-512, too: those that compute much. The others wait for
# memory, which AVX2 does as well, and what they do not have is looked for there.
set(RG_WIDE_F64 conv contract matmul fused_neuron softmax neuron lrn local_contrast spatial_norm loss)

set(RG_OPS_TABLES "")
set(RG_CPU_TABLES "")
set(RG_CPU_NARROW_TABLES "") # of which there is none of double and AVX-512
set(RG_CUDA_TABLES "")
macro(rg_define_tables name cpu cuda)
    rg_tables_of("${cpu}" "_cpu[.]c" "TABLE(@name@, real, isa)" RG_CPU_TABLES lines)
    string(APPEND RG_OPS_TABLES "#define RG_CPU_TABLES_${name}(TABLE, real, isa)${lines}\n")
    if(NOT "${name}" IN_LIST RG_WIDE_F64)
        rg_tables_of("${cpu}" "_cpu[.]c" "" RG_CPU_NARROW_TABLES none)
        set(lines "")
    endif()
    string(APPEND RG_OPS_TABLES "#define RG_CPU_WIDE_F64_${name}(TABLE, real, isa)${lines}\n")
    rg_tables_of("${cuda}" "_cuda[.]cu" "TABLE(@name@)" RG_CUDA_TABLES lines)
    string(APPEND RG_OPS_TABLES "#define RG_CUDA_TABLES_${name}(TABLE)${lines}\n")
endmacro()
foreach(op ${RG_OPS})
    rg_folder_sources(${op} host cpu cuda tests)
    rg_define_tables(${op} "${cpu}" "${cuda}")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/tables/ops/op_tables.h CONTENT
"/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Made from the sources in src/ops: which of them hold kernels of an op, each with its table. */
#ifndef RG_OPS_OP_TABLES_H
#define RG_OPS_OP_TABLES_H
@RG_OPS_TABLES@
#endif
" @ONLY)

# How kernels are optimized. -O3 doubles the time and the size of these files and gains nothing: they are unrolled
# by hand. gcc's -O1 takes two thirds of the time of -O2; loops are up to 1.4 times slower, so it is for kernels
# that few wait for: those in double, which results are checked with, and, beside better instruction sets, those of
# the lowest one.
set(RG_KERNEL_LEVEL -O2)
set(RG_RARE_KERNEL_LEVEL ${RG_QUICK} -fstrict-aliasing -finline-small-functions -findirect-inlining)

# Sources compiled once for each instruction set and each real; appends to the list `objects`. With NARROW_F64
# there are none of double and AVX-512, but where AVX-512 stands for all.
function(rg_compile_isas name sources objects)
    cmake_parse_arguments(PARSE_ARGV 3 arg NARROW_F64 "" "")
    set(RG_HARDEN_OPTIONS "")
    set(RG_FUZZ OFF) # for rg_target: an input chooses what ops record, and kernels follow
    foreach(isa ${RG_ISAS})
        foreach(real f32 f64)
            if(arg_NARROW_F64 AND real STREQUAL f64 AND isa STREQUAL avx512 AND NOT RG_ONE_ISA)
                continue()
            endif()
            set(target ${name}_${real}_${isa})
            add_library(${target} OBJECT ${sources})
            rg_target(${target})
            set(level ${RG_KERNEL_LEVEL})
            if(real STREQUAL f64 OR (isa STREQUAL base AND NOT RG_ISAS STREQUAL base))
                set(level ${RG_RARE_KERNEL_LEVEL})
            endif()
            target_compile_options(${target} PRIVATE ${RG_ISA_FLAGS_${isa}}
                "$<$<CONFIG:Release>:${level}>")
            target_compile_definitions(${target} PRIVATE RG_ISA=${isa}
                RG_REAL_F64=$<STREQUAL:${real},f64>)
            if(RG_SANITIZE)
                target_compile_options(${target} PRIVATE ${RG_SANITIZED_KERNEL})
                if(NOT isa STREQUAL base)
                    target_compile_options(${target} PRIVATE ${RG_SANITIZED_REST})
                endif()
            endif()
            list(APPEND ${objects} $<TARGET_OBJECTS:${target}>)
        endforeach()
    endforeach()
    set(${objects} ${${objects}} PARENT_SCOPE)
endfunction()

# All of src/ops into `target`; kernels to RG_KERNEL_OBJECTS; what checks the ops into RG_OP_TESTS.
macro(rg_add_ops target)
    set(RG_OP_TESTS "")
    foreach(folder ${RG_OPS_FOLDERS})
        rg_folder_sources(${folder} host cpu cuda tests)
        target_sources(${target} PRIVATE ${host})
        set(narrow NARROW_F64)
        if(folder IN_LIST RG_WIDE_F64)
            set(narrow "")
        endif()
        if(cpu)
            rg_compile_isas(rg_${folder} "${cpu}" RG_KERNEL_OBJECTS ${narrow})
        endif()
        if(cuda AND RG_HAVE_CUDA)
            rg_cuda_sources(rg_${folder}_cuda ${cuda})
            list(APPEND RG_KERNEL_OBJECTS ${rg_${folder}_cuda_objects})
        endif()
        list(APPEND RG_OP_TESTS ${tests})
    endforeach()
    set_property(SOURCE src/ops/ops.c APPEND PROPERTY
        INCLUDE_DIRECTORIES ${PROJECT_BINARY_DIR}/tables)
endmacro()
