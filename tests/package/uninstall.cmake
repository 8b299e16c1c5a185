# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# `make install` says when the loader does not find the libraries; `make uninstall` removes what was
# installed and nothing else. The build folder is a small one of its own.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

find_program(MAKE NAMES gmake make)
if(NOT MAKE)
    skip("there is no make")
    return()
endif()
set(script [[
file(WRITE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/libretrograde.so" "library")
file(WRITE "${CMAKE_CURRENT_LIST_DIR}/install_manifest.txt" "${CMAKE_INSTALL_PREFIX}/lib/libretrograde.so")
]])

# Runs make with `all` taken as done.
function(make_it folder destination target)
    execute_process(COMMAND ${MAKE} -C ${SOURCE} -o all ${target} BUILD=${folder}/build
        PREFIX=${folder}/tree DESTDIR=${destination} RESULT_VARIABLE status OUTPUT_VARIABLE output
        ERROR_VARIABLE errors)
    set(status ${status} PARENT_SCOPE)
    set(output "${output}" PARENT_SCOPE)
endfunction()

foreach(destination "" ${WORK}/stage)
    set(folder ${WORK}/at)
    file(REMOVE_RECURSE ${WORK})
    file(WRITE ${folder}/build/cmake_install.cmake "${script}")
    make_it(${folder} "${destination}" install)
    set(made ${destination}${folder}/tree/lib)
    file(WRITE ${made}/other "somebody else's")
    if(status OR NOT EXISTS ${made}/libretrograde.so)
        message(FATAL_ERROR "make install failed: ${output}")
    endif()
    string(FIND "${output}" "ldconfig" at)
    if((destination STREQUAL "" AND at EQUAL -1) OR (NOT destination STREQUAL "" AND NOT at EQUAL -1))
        message(FATAL_ERROR "make install with DESTDIR='${destination}' says '${output}'")
    endif()
    make_it(${folder} "${destination}" uninstall)
    if(status OR EXISTS ${made}/libretrograde.so OR NOT EXISTS ${made}/other)
        message(FATAL_ERROR "make uninstall with DESTDIR='${destination}' left or took too much")
    endif()
    file(REMOVE ${folder}/build/install_manifest.txt)
    make_it(${folder} "${destination}" uninstall)
    if(NOT status)
        message(FATAL_ERROR "make uninstall succeeds where nothing was installed")
    endif()
endforeach()
