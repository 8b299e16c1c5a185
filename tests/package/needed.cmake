# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# libretrograde needs nothing but the C library: not CUDA, whose runtime is linked into it, and not the C++
# library, which its kernels do without. libretrograde_train and the program need zlib, libpng, libjpeg and libwebp beside it.
include(${CMAKE_CURRENT_LIST_DIR}/common.cmake)

check_needed(${SHARED})
if(RG_TRAIN)
    check_needed(${TRAIN_SHARED} libretrograde.so.0 ${TRAIN_NEEDS})
endif()
if(PROGRAM)
    check_needed(${PROGRAM} ${TRAIN_NEEDS})
endif()
foreach(library ${STATIC}) # libretrograde_train opens MPI, where a launcher has started the process
    if(NOT HAVE_CUDA)
        run(${NM} -u ${library})
        if(output MATCHES " U dl(open|sym)")
            message(SEND_ERROR "${library} opens libraries")
        endif()
    endif()
endforeach()
message("the C library is all that libretrograde needs")
