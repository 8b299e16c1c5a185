/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the tests of the public API share: a device with a queue and commands, tensors with values,
 * kernels, and comparison of bits. */
#ifndef RG_TESTS_API_H
#define RG_TESTS_API_H

#include "test.h"

#include <stdlib.h>
#include <unistd.h>

#define DIMS(...) ((const int64_t[]){ __VA_ARGS__ })

#define SECONDS(condition) /* waits for something that another thread does */ \
    do {                                                                      \
        for (int i_ = 0; i_ < 10000 && !(condition); i_++)                    \
            usleep(1000);                                                     \
        EXPECT(condition);                                                    \
    } while (0)

/* The same numbers in every run. */
uint32_t draw(uint64_t *seed);

int64_t draw_from(uint64_t *seed, int64_t low, int64_t high);

/* ---- a device, a queue, commands ---- */

typedef struct rig {
    rg_device *device;
    rg_queue *queue;
    rg_commands *commands;
} rig;

rig rig_open(int32_t threads);

/* Drops the commands and begins new ones. */
void rig_renew(rig *r);

/* Commits, waits, and begins new commands. */
rg_status rig_run(rig *r);

void rig_close(rig *r);

/* ---- tensors ---- */

int64_t count_of(const rg_tensor *tensor);
size_t bytes_of(const rg_tensor *tensor);
rg_tensor *tensor_of(rg_device *device, rg_dtype dtype, int32_t rank, const int64_t dims[]);

/* Values in [-2, 2). */
void fill(rg_tensor *tensor, uint64_t seed);

rg_tensor *filled(rg_device *device, rg_dtype dtype, int32_t rank, const int64_t dims[],
                  uint64_t seed);

/* A copy of all elements, to be freed. */
char *elements_of(const rg_tensor *tensor);

bool same_bits(const rg_tensor *a, const rg_tensor *b);

/* ---- kernels ---- */

rg_kernel *softmax_of(rg_device *device, rg_softmax_kind kind, int64_t axis);

#endif
