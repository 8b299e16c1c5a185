# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# Installs, moves the tree elsewhere, and builds a program with pkg-config, shared and static.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

find_program(pkgconfig NAMES pkg-config pkgconf)
if(NOT pkgconfig)
    skip("no pkg-config (Debian: pkg-config), so retrograde.pc was not tried")
    return()
endif()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/tree)
write_program(${WORK}/user.c)
set(ENV{PKG_CONFIG_PATH} ${WORK}/tree/${LIB}/pkgconfig)

run(${pkgconfig} --modversion retrograde)
if(NOT output STREQUAL VERSION)
    message(FATAL_ERROR "retrograde.pc has version ${output}, the header ${VERSION}")
endif()

# ---- shared ----

run(${pkgconfig} --cflags --libs retrograde)
separate_arguments(flags UNIX_COMMAND "${output}")
run(${CC} -DVERSION="${VERSION}" user.c -o user_shared ${flags})
run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${WORK}/tree/${LIB} ${WORK}/user_shared)
check_needed(${WORK}/user_shared libretrograde.so.0)

# ---- static: as where only the archive is installed ----

file(GLOB shared ${WORK}/tree/${LIB}/*.so*)
file(REMOVE ${shared})
run(${pkgconfig} --cflags --libs --static retrograde)
separate_arguments(flags UNIX_COMMAND "${output}")
run(${CC} -DVERSION="${VERSION}" user.c -o user_static ${flags})
run(${WORK}/user_static)
check_needed(${WORK}/user_static)
message("installed, moved, found by pkg-config; shared and static programs run")
