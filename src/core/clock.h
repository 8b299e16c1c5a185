/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The clock by which work is timed. */
#ifndef RG_CORE_CLOCK_H
#define RG_CORE_CLOCK_H

#include "core/status.h"

#include <time.h>

/* Seconds since some moment of the past; never goes back. */
RG_INLINE double rg_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
