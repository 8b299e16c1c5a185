# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# Compiles and runs the first C example of README.md.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

if(NOT EXISTS ${SOURCE}/README.md)
    skip("there is no README.md")
    return()
endif()
file(READ ${SOURCE}/README.md text)
string(FIND "${text}" "\n```c\n" begin)
if(begin EQUAL -1)
    message(FATAL_ERROR "README.md has no ```c block")
endif()
math(EXPR begin "${begin} + 6")
string(SUBSTRING "${text}" ${begin} -1 text)
string(FIND "${text}" "\n```" end)
if(end EQUAL -1)
    message(FATAL_ERROR "README.md: the ```c block does not end")
endif()
string(SUBSTRING "${text}" 0 ${end} text)
file(WRITE ${WORK}/example.c "${text}\n")

get_filename_component(folder ${SHARED} DIRECTORY)
run(${CC} -std=c11 -Wall -Wextra -Werror -I${SOURCE}/include -I${BUILD}/include example.c -o example
    -L${folder} -lretrograde -lm)
run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${folder} ${WORK}/example)
message("the example of README.md prints\n${output}")
