# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# What RG_HARDEN promises of the shared libraries and the program, as built and as installed: calls
# are bound and relocations read-only before main() begins, the stack is not executable, the program
# is loaded anywhere, no code is changed when it is loaded, no library is looked for in folders of
# the build; and buffers and the stack are checked.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

function(expect file text pattern what)
    if(NOT text MATCHES "${pattern}")
        message(SEND_ERROR "${file}: ${what}")
    endif()
endfunction()

function(expect_not file text pattern what)
    if(text MATCHES "${pattern}")
        message(SEND_ERROR "${file}: ${what}: ${CMAKE_MATCH_0}")
    endif()
endfunction()

function(check_loaded file)
    run(${READELF} -hldW ${file})
    expect(${file} "${output}" "Type: +DYN " "it is not position-independent")
    expect(${file} "${output}" "GNU_RELRO" "relocations stay writable: no RELRO")
    expect(${file} "${output}" "BIND_NOW|Flags: [^\n]*NOW" "calls are bound late: no BIND_NOW")
    expect(${file} "${output}" "GNU_STACK" "nothing is said about the stack")
    expect_not(${file} "${output}" "GNU_STACK[^\n]*RWE" "the stack is executable")
    expect_not(${file} "${output}" "LOAD [^\n]*RWE" "code is writable")
    expect_not(${file} "${output}" "TEXTREL" "code is changed when it is loaded")
    if(NOT file STREQUAL "${TRAIN_SHARED}") # which finds libretrograde in the build
        expect_not(${file} "${output}" "R(UN)?PATH" "libraries are looked for in a folder")
    endif()
endfunction()

function(check_calls file)
    run(${NM} ${ARGN} --undefined-only ${file})
    expect(${file} "${output}" " U __stack_chk_fail" "the stack is not protected")
    expect(${file} "${output}" " U __[a-z]+_chk" "no call is fortified")
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/tree)
set(files ${SHARED} ${WORK}/tree/${LIB}/libretrograde.so)
if(RG_TRAIN)
    list(APPEND files ${TRAIN_SHARED} ${WORK}/tree/${LIB}/libretrograde_train.so)
endif()
if(PROGRAM)
    list(APPEND files ${PROGRAM} ${WORK}/tree/bin/retrograde)
endif()
foreach(file ${files})
    check_loaded(${file})
    check_calls(${file} -D)
endforeach()
foreach(file ${STATIC} ${TRAIN_STATIC})
    check_calls(${file})
endforeach()
message("hardened: ${files}")
