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
    list(APPEND wanted bin/retrograde share/man/man1/retrograde.1
        share/bash-completion/completions/retrograde)
endif()
foreach(header ${headers})
    list(APPEND wanted ${INCLUDE}/${header})
endforeach()
if(NOT RG_FILES)
    list(REMOVE_ITEM wanted ${INCLUDE}/retrograde/files.h ${INCLUDE}/retrograde/safetensors.h)
endif()
if(NOT RG_TRAIN)
    list(REMOVE_ITEM wanted ${INCLUDE}/retrograde/dataset.h)
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
find_package(retrograde ${VERSION} REQUIRED COMPONENTS shared \${STATIC})
add_compile_definitions(VERSION=\"${VERSION}\")
add_executable(user_shared user.c)
target_link_libraries(user_shared PRIVATE retrograde::retrograde)
if(TARGET retrograde::static)
    add_executable(user_static user.c)
    target_link_libraries(user_static PRIVATE retrograde::static)
endif()
message(STATUS \"static: \${retrograde_static_FOUND}\")
")
set(configure ${CMAKE_COMMAND} -S user -G ${GENERATOR} -D CMAKE_C_COMPILER=${CC}
    -D CMAKE_PREFIX_PATH=${WORK}/tree)
run(${configure} -B made -D STATIC=static)
run(${CMAKE_COMMAND} --build made)
foreach(name user_shared user_static)
    run(${WORK}/made/${name})
    check_needed(${WORK}/made/${name} libretrograde.so.0)
endforeach()

# ---- the same on a machine without the CUDA toolkit ----

if(HAVE_CUDA)
    set(without -D CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
    run(${configure} ${without} -B shared)
    if(NOT output MATCHES "retrograde::static needs the CUDA toolkit.*static: FALSE")
        message(SEND_ERROR "nothing is said of the library that is missing:\n${output}")
    endif()
    run(${CMAKE_COMMAND} --build shared)
    run(${WORK}/shared/user_shared)
    execute_process(COMMAND ${configure} ${without} -B none -D STATIC=static
        WORKING_DIRECTORY ${WORK} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    string(REGEX REPLACE "[ \n]+" " " output "${output}")
    if(result EQUAL 0 OR NOT output MATCHES "retrograde::static needs the CUDA toolkit")
        message(SEND_ERROR "COMPONENTS static does not insist on it:\n${output}")
    endif()
endif()
message("installed, moved, found by CMake; shared and static programs run")
