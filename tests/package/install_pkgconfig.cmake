# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# Installs, moves the tree elsewhere, and builds programs with pkg-config, with each library,
# shared and static.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

find_program(pkgconfig NAMES pkg-config pkgconf)
if(NOT pkgconfig)
    skip("no pkg-config (Debian: pkg-config), so retrograde.pc was not tried")
    return()
endif()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/tree)
write_program(${WORK}/retrograde.c)
write_train_program(${WORK}/retrograde_train.c)
set(ENV{PKG_CONFIG_PATH} ${WORK}/tree/${LIB}/pkgconfig)
set(packages retrograde)
if(RG_TRAIN)
    list(APPEND packages retrograde_train)
endif()

# Builds and runs the program of a package; further names are libraries that it may need.
function(try package form)
    set(form_option "")
    if(form STREQUAL static)
        set(form_option --static)
    endif()
    run(${pkgconfig} --cflags --libs ${form_option} ${package})
    separate_arguments(flags UNIX_COMMAND "${output}")
    run(${CC} -DVERSION="${VERSION}" ${package}.c -o ${package}_${form} ${flags})
    run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${WORK}/tree/${LIB} ${WORK}/${package}_${form})
    check_needed(${WORK}/${package}_${form} ${ARGN})
endfunction()

foreach(package ${packages})
    run(${pkgconfig} --modversion ${package})
    if(NOT output STREQUAL VERSION)
        message(FATAL_ERROR "${package}.pc has version ${output}, the header ${VERSION}")
    endif()
    try(${package} shared libretrograde.so.0 libretrograde_train.so.0)
endforeach()

# ---- a libretrograde of another release, which the loader refuses beside this libretrograde_train ----

if(RG_TRAIN)
    string(REGEX REPLACE "[0-9]" "9" other ${VERSION})
    file(MAKE_DIRECTORY ${WORK}/other)
    file(COPY_FILE ${WORK}/tree/${LIB}/libretrograde.so.${VERSION} ${WORK}/other/libretrograde.so.0)
    run(sed -i s/RETROGRADE_PRIVATE_${VERSION}/RETROGRADE_PRIVATE_${other}/ other/libretrograde.so.0)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env
        LD_LIBRARY_PATH=${WORK}/other:${WORK}/tree/${LIB} ${WORK}/retrograde_train_shared
        RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(result EQUAL 0 OR NOT output MATCHES "RETROGRADE_PRIVATE_${VERSION}")
        message(SEND_ERROR "libraries of two releases were loaded together:\n${output}")
    endif()
endif()

# ---- as where only the archives are installed ----

file(GLOB shared ${WORK}/tree/${LIB}/*.so*)
file(REMOVE ${shared})
try(retrograde static)
if(RG_TRAIN)
    try(retrograde_train static ${TRAIN_NEEDS})
endif()
message("installed, moved, found by pkg-config; shared and static programs run")
