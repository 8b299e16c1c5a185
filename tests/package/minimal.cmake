# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# Builds and installs the least there is: no files, no program, no tests, the base instruction set alone, no
# CUDA.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

cmake_host_system_information(RESULT processors QUERY NUMBER_OF_LOGICAL_CORES)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/made -G ${GENERATOR} -D CMAKE_C_COMPILER=${CC}
    -D CMAKE_BUILD_TYPE=Debug -D RG_FILES=OFF -D RG_PROGRAM=OFF -D RG_TESTS=OFF
    -D RG_X86_ISAS=OFF -D RG_CUDA=OFF)
run(${CMAKE_COMMAND} --build made --parallel ${processors})
run(${CMAKE_COMMAND} --install made --prefix ${WORK}/tree)
file(GLOB_RECURSE unwanted ${WORK}/tree/files.h ${WORK}/tree/safetensors.h ${WORK}/tree/libretrograde_train*
    ${WORK}/tree/retrograde_train* ${WORK}/tree/bin/*)
string(REPLACE , ";" names "${TRAIN_HEADERS}")
foreach(name ${names})
    file(GLOB_RECURSE header ${WORK}/tree/${name}.h)
    list(APPEND unwanted ${header})
endforeach()
if(unwanted)
    message(FATAL_ERROR "installed although switched off: ${unwanted}")
endif()

write_program(${WORK}/user.c)
run(${CC} -DVERSION="${VERSION}" -I${WORK}/tree/include user.c -o user
    ${WORK}/tree/${LIB}/libretrograde.a -pthread -lm)
run(${WORK}/user)
message("the minimal build works")
