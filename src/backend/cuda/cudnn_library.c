/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* cuDNN, opened at run time. In builds with its headers. */
#include "backend/cuda/cudnn_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

rg_cudnn_functions rg_cudnn_call;
static bool loaded;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;

/* The library is never closed: others in the process may use it, too. */
static void load(void)
{
    const char *named = getenv("RG_CUDNN");
    void *library =
        dlopen(named != NULL && named[0] != 0 ? named : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    void *found;
    loaded = true;
#define F(name)                                                             \
    found = dlsym(library, "cudnn" #name);                                  \
    memcpy((void *)&rg_cudnn_call.name, &found, sizeof rg_cudnn_call.name); \
    loaded = loaded && found != NULL
    RG_CUDNN_FUNCTIONS(F);
#undef F
}

bool rg_cudnn_load(void)
{
    pthread_once(&load_once, load);
    return loaded;
}

void rg_cudnn_descriptor_drop(rg_cudnn_descriptor it)
{
    if (it != NULL)
        (void)rg_cudnn_call.BackendDestroyDescriptor(it);
}

rg_cudnn_descriptor rg_cudnn_descriptor_make(cudnnBackendDescriptorType_t type)
{
    rg_cudnn_descriptor made = NULL;
    return rg_cudnn_call.BackendCreateDescriptor(type, &made) == CUDNN_STATUS_SUCCESS ? made : NULL;
}

bool rg_cudnn_descriptor_set(rg_cudnn_descriptor it, cudnnBackendAttributeName_t name,
                             cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    return it != NULL &&
           rg_cudnn_call.BackendSetAttribute(it, name, type, count, values) == CUDNN_STATUS_SUCCESS;
}

bool rg_cudnn_descriptor_finish(rg_cudnn_descriptor it)
{
    return rg_cudnn_call.BackendFinalize(it) == CUDNN_STATUS_SUCCESS;
}
