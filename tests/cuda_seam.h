/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A made-up op with kernels for GPUs alone, which uses everything in the interface
 * between ops and the CUDA backend:
 *
 *      y_i = scale a_(n-1-i) b_i       a, b and y of one shape with n elements, f32
 *
 * a goes through scratch. The state holds "kept", a copy of a. The gradient reads b and the state.
 * An element of a that is 666 is a fault, whose sentence begins "seam <number>". Valid C and, up to
 * the op, valid CUDA. */
#ifndef RG_TESTS_CUDA_SEAM_H
#define RG_TESTS_CUDA_SEAM_H

#include "backend/backend.h"
#ifndef __cplusplus
#include "runtime/op.h"
#endif

enum {
    SEAM_PRODUCT,
    SEAM_KEEP,
    SEAM_GRADIENT,
    SEAM_CRASH,      /* writes where nothing is */
    SEAM_BAD_LAUNCH, /* asks for more threads than a block can have */
    SEAM_NOTHING     /* a kernel that does not exist */
};

typedef struct seam_product_args {
    float *y;
    const float *a, *b;
    float *scratch; /* as many as a */
    uint32_t *fault;
    int64_t count;
    float scale;
} seam_product_args;

typedef struct seam_keep_args {
    float *kept;
    const float *a;
    int64_t count;
} seam_keep_args;

/* out_i (+)= scale dy_j other_(n-1-i), j = n-1-i if `reverses` or else i. */
typedef struct seam_gradient_args {
    float *out;
    const float *dy, *other;
    int64_t count;
    float scale;
    bool reverses, add;
} seam_gradient_args;

#ifdef __cplusplus
extern "C" const rg_cuda_row seam_rows[SEAM_NOTHING];
#else
extern const rg_cuda_row seam_rows[SEAM_NOTHING];

/* What forward does; all but the first go wrong. */
typedef enum seam_mode {
    SEAM_WORKS,
    SEAM_CRASHES,
    SEAM_LAUNCHES_BADLY,
    SEAM_STOPS_HALF_WAY /* its second launch is refused */
} seam_mode;

typedef struct seam_desc {
    uint32_t size;
    int32_t number; /* 0 to 3 */
    seam_mode mode;
    double scale;
} seam_desc;

extern const rg_op seam_op;

/* With the default mode and scale. */
seam_desc seam_desc_of(int32_t number);
#endif

#endif
