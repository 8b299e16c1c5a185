# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# Compiles every public header alone, twice in one file, as C11 or as C++, warnings as errors.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

set(flags -fsyntax-only -Wall -Wextra -Wshadow -Wconversion -Wundef -pedantic -Werror
    -I${SOURCE}/include -I${BUILD}/include)
if(LANGUAGE STREQUAL C)
    set(compiler ${CC})
    list(APPEND flags -std=c11 -Wstrict-prototypes -x c)
else()
    set(names c++ g++ clang++)
    if(CC MATCHES clang)
        set(names clang++ c++ g++)
    endif()
    find_program(compiler NAMES ${names})
    if(NOT compiler)
        skip("no C++ compiler (Debian: g++), so the headers were not tried as C++")
        return()
    endif()
    list(APPEND flags -std=c++11 -Wold-style-cast -x c++)
endif()
foreach(header ${headers})
    file(WRITE ${WORK}/alone.c "#include <${header}>\n#include <${header}>\nextern int rg_not_empty;\n")
    run(${compiler} ${flags} alone.c)
endforeach()
list(LENGTH headers count)
message("${count} headers compile alone as ${LANGUAGE} with ${compiler}")
