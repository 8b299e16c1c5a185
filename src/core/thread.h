/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Threads with a stack that is large enough for every kernel. */
#ifndef RG_CORE_THREAD_H
#define RG_CORE_THREAD_H

#include "core/status.h"

#include <pthread.h>

/* The least stack of a thread that runs kernels. The largest frames, sums of group_norm in f64,
 * have about 200 KiB; builds without optimization and with sanitizers need several times that. */
enum { RG_STACK_BYTES = 2 << 20 };

/* Starts a thread with the default stack of the process, but at least RG_STACK_BYTES; false if
 * there is none. A stack limit of the process, or a C library with small defaults, would let
 * kernels write beyond the stack. */
bool rg_thread_start(pthread_t *thread, void *(*body)(void *context), void *context);

#endif
