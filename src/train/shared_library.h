/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Functions of libraries that are opened when first needed. */
#ifndef RG_TRAIN_SHARED_LIBRARY_H
#define RG_TRAIN_SHARED_LIBRARY_H

#include "core/status.h"

#include <dlfcn.h>
#include <string.h>

/* Puts the function of this name into the pointer at `function`; false if there is none. */
RG_INLINE bool rg_library_find(void *library, const char *name, void *function)
{
    void *const found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

#endif
