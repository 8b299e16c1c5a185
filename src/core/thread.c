/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Starting threads. */
#include "core/thread.h"

#include "core/private_api.h"

RG_PRIVATE_API bool rg_thread_start(pthread_t *thread, void *(*body)(void *context), void *context)
{
    pthread_attr_t attributes;
    size_t stack = 0;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    if (pthread_attr_getstacksize(&attributes, &stack) != 0 || stack < RG_STACK_BYTES)
        (void)pthread_attr_setstacksize(&attributes, RG_STACK_BYTES);
    const bool started = pthread_create(thread, &attributes, body, context) == 0;
    (void)pthread_attr_destroy(&attributes);
    return started;
}
