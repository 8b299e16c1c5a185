# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# The shared library and the program need nothing but the C library: not CUDA, whose runtime is
# linked into them, and not the C++ library, which its kernels do without.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

foreach(file ${SHARED} ${PROGRAM})
    check_needed(${file})
endforeach()
message("the C library is all that is needed")
