# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# The stripped libretrograde stays below 8 MB, with kernels for GPUs below 16 MB.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

set(limit 8000000)
if(HAVE_CUDA)
    set(limit 16000000)
endif()
file(REAL_PATH ${SHARED} SHARED)
file(COPY_FILE ${SHARED} ${WORK}/stripped.so)
run(${STRIP} stripped.so)
file(SIZE ${WORK}/stripped.so size)
message("the stripped library has ${size} bytes; the limit is ${limit}")
if(NOT size LESS limit)
    message(FATAL_ERROR "too large")
endif()
