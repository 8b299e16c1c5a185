# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# Installs, moves the tree elsewhere, and builds a program with the CMake package, shared and static.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/tree)

# ---- what must be there ----

set(wanted ${LIB}/libretrograde.a ${LIB}/libretrograde.so ${LIB}/libretrograde.so.0
    ${LIB}/libretrograde.so.${VERSION} ${LIB}/pkgconfig/retrograde.pc
    ${LIB}/cmake/retrograde/retrograde-config.cmake share/doc/retrograde/LICENSE)
if(RG_PROGRAM)
    list(APPEND wanted bin/retrograde)
endif()
foreach(header ${headers})
    list(APPEND wanted ${INCLUDE}/${header})
endforeach()
if(NOT RG_FILES)
    list(REMOVE_ITEM wanted ${INCLUDE}/retrograde/files.h)
endif()
foreach(file ${wanted})
    if(NOT EXISTS ${WORK}/tree/${file})
        message(SEND_ERROR "${file} was not installed")
    endif()
endforeach()
file(GLOB installed RELATIVE ${WORK}/tree ${WORK}/tree/${INCLUDE}/*/*)
list(REMOVE_ITEM installed ${wanted})
if(installed)
    message(SEND_ERROR "installed beside the public headers: ${installed}")
endif()
if(RG_PROGRAM)
    run(${WORK}/tree/bin/retrograde --version)
    if(NOT output STREQUAL "retrograde ${VERSION}")
        message(SEND_ERROR "the program says '${output}', the header ${VERSION}")
    endif()
endif()

# ---- a program of three lines ----

write_program(${WORK}/user/user.c)
file(WRITE ${WORK}/user/CMakeLists.txt "cmake_minimum_required(VERSION 3.21)
project(user C)
find_package(retrograde ${VERSION} REQUIRED)
add_compile_definitions(VERSION=\"${VERSION}\")
add_executable(user_shared user.c)
target_link_libraries(user_shared PRIVATE retrograde::retrograde)
add_executable(user_static user.c)
target_link_libraries(user_static PRIVATE retrograde::static)
")
run(${CMAKE_COMMAND} -S user -B made -G ${GENERATOR} -D CMAKE_C_COMPILER=${CC}
    -D CMAKE_PREFIX_PATH=${WORK}/tree)
run(${CMAKE_COMMAND} --build made)
run(${WORK}/made/user_shared)
run(${WORK}/made/user_static)
message("installed, moved, found by CMake; shared and static programs run")
