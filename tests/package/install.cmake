# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# Installs, moves the tree elsewhere, and builds programs with the CMake package, with each
# library, shared and static.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/tree)

# ---- what must be there ----

set(wanted ${LIB}/libretrograde.a ${LIB}/libretrograde.so ${LIB}/libretrograde.so.0
    ${LIB}/libretrograde.so.${VERSION} ${LIB}/pkgconfig/retrograde.pc
    ${LIB}/cmake/retrograde/retrograde-config.cmake share/doc/retrograde/LICENSE)
if(RG_TRAIN)
    list(APPEND wanted ${LIB}/libretrograde_train.a ${LIB}/libretrograde_train.so
        ${LIB}/libretrograde_train.so.0 ${LIB}/libretrograde_train.so.${VERSION}
        ${LIB}/pkgconfig/retrograde_train.pc)
endif()
if(RG_PROGRAM)
    list(APPEND wanted bin/retrograde share/man/man1/retrograde.1
        share/bash-completion/completions/retrograde)
endif()
foreach(header ${core_headers} ${train_headers})
    list(APPEND wanted ${INCLUDE}/${header})
endforeach()
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

# ---- programs of a few lines ----

write_program(${WORK}/user/user.c)
write_train_program(${WORK}/user/train_user.c)
file(WRITE ${WORK}/user/CMakeLists.txt "cmake_minimum_required(VERSION 3.21)
project(user C)
find_package(retrograde ${VERSION} REQUIRED COMPONENTS shared \${WANTED})
add_compile_definitions(VERSION=\"${VERSION}\")
add_executable(user_shared user.c)
target_link_libraries(user_shared PRIVATE retrograde::retrograde)
if(TARGET retrograde::static)
    add_executable(user_static user.c)
    target_link_libraries(user_static PRIVATE retrograde::static)
endif()
if(TARGET retrograde::train)
    add_executable(train_user_shared train_user.c)
    target_link_libraries(train_user_shared PRIVATE retrograde::train)
endif()
if(TARGET retrograde::train_static)
    add_executable(train_user_static train_user.c)
    target_link_libraries(train_user_static PRIVATE retrograde::train_static)
endif()
message(STATUS \"static: \${retrograde_static_FOUND}\")
")
set(configure ${CMAKE_COMMAND} -S user -G ${GENERATOR} -D CMAKE_C_COMPILER=${CC}
    -D CMAKE_PREFIX_PATH=${WORK}/tree)
set(components static)
set(programs user_shared user_static)
if(RG_TRAIN)
    set(components "static\\;train\\;train_static")
    list(APPEND programs train_user_shared train_user_static)
endif()
run(${configure} -B made -D WANTED=${components})
run(${CMAKE_COMMAND} --build made)
foreach(name ${programs})
    run(${WORK}/made/${name})
endforeach()
check_needed(${WORK}/made/user_shared libretrograde.so.0)
check_needed(${WORK}/made/user_static)
if(RG_TRAIN)
    check_needed(${WORK}/made/train_user_shared libretrograde.so.0 libretrograde_train.so.0)
    check_needed(${WORK}/made/train_user_static ${TRAIN_NEEDS})
endif()

# ---- components that are not there ----

# Configures without something; `pattern` is what must be said of it.
function(expect_refused folder wanted pattern)
    execute_process(COMMAND ${configure} -B ${folder} -D WANTED=${wanted} ${ARGN}
        WORKING_DIRECTORY ${WORK} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    string(REGEX REPLACE "[ \n]+" " " output "${output}")
    if(result EQUAL 0 OR NOT output MATCHES "${pattern}")
        message(SEND_ERROR "COMPONENTS ${wanted} does not insist on it:\n${output}")
    endif()
endfunction()

expect_refused(no_component trian "there is no component trian, only shared")
if(NOT RG_TRAIN)
    expect_refused(no_train train "without libretrograde_train")
elseif(TRAIN_PACKAGES)
    expect_refused(no_zlib train_static "retrograde::train_static needs"
        -D CMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON -D CMAKE_DISABLE_FIND_PACKAGE_PNG=ON)
    run(${configure} -B train_alone -D WANTED=train -D CMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON
        -D CMAKE_DISABLE_FIND_PACKAGE_PNG=ON) # the shared one does without their files
endif()

# ---- the same on a machine without the CUDA toolkit ----

if(HAVE_CUDA)
    set(without -D CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
    run(${configure} ${without} -B shared)
    if(NOT output MATCHES "retrograde::static needs the CUDA toolkit.*static: FALSE")
        message(SEND_ERROR "nothing is said of the library that is missing:\n${output}")
    endif()
    run(${CMAKE_COMMAND} --build shared)
    run(${WORK}/shared/user_shared)
    expect_refused(none static "retrograde::static needs the CUDA toolkit" ${without})
endif()
message("installed, moved, found by CMake; shared and static programs run")
