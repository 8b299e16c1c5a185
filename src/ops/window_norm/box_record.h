/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What spatial_norm and local_contrast have in common: shape rule, forward, gradient. */
#ifndef RG_OPS_WINDOW_NORM_BOX_RECORD_H
#define RG_OPS_WINDOW_NORM_BOX_RECORD_H

#include "core/shape.h"
#include "ops/ops.h"
#include "ops/window_norm/box.h"
#include "runtime/objects.h"

/* What an op reports of a descriptor. Pixel t of y has its window around pixel offset + t of x. */
typedef struct rg_box_plan {
    const char *op;
    const int32_t *window, *offset; /* rows, columns */
    const int64_t *output;          /* 0: as many as x has */
    int kinds;                      /* of values that are summed: 1, or MOMENT_KINDS */
    rg_box_numbers numbers;         /* norm, p0, pm, ps; the others follow from shapes */
} rg_box_plan;

static inline double rg_box_count(const int32_t window[2])
{
    return (double)window[0] * window[1];
}

/* The shape rule: images, of any size. */
rg_status rg_box_shapes(const rg_box_plan *plan, const rg_tensor_desc *x, rg_tensor_desc *y);

uint32_t rg_box_reads(const void *desc);
bool rg_box_joins(const void *desc, const rg_tensor_desc x[]);

/* Records a call whose tensors all have the shape of x. */
rg_status rg_box_record(rg_call *call, const rg_box_plan *plan, bool gradient);

/* clip_record.c: the same where y is where x is; otherwise for the part of the image that windows
 * of y see, with zeros around it, and copies. */
rg_status rg_box_forward(rg_call *call, const rg_box_plan *plan);
rg_status rg_box_gradient(rg_call *call, const rg_box_plan *plan);

/* The fields that both end with; `desc` is the type of the descriptor. */
#define RG_BOX_FIELDS(desc)                                                           \
    RG_FIELD(desc, offset, "pixel of x under the first pixel of y; rows, columns"),   \
        RG_FIELD_IN(desc, output, 0, 0x1p56, "rows and columns of y; 0: those of x"), \
    {                                                                                 \
        .name = NULL                                                                  \
    }

/* The names of the tensors in MPS. */
#define RG_BOX_IMAGE          "sourceImage=x destinationImage=y"
#define RG_BOX_IMAGE_GRADIENT "sourceGradient=dy sourceImage=x destinationGradient=dx"

/* Functions of an op's description that follow from its plan_of(), and their entries in it. */
#define RG_BOX_FUNCTIONS                                                                    \
    static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[]) \
    {                                                                                       \
        const rg_box_plan plan = plan_of(desc);                                             \
        return rg_box_shapes(&plan, x, y);                                                  \
    }                                                                                       \
    static rg_status forward(rg_call *call)                                                 \
    {                                                                                       \
        const rg_box_plan plan = plan_of(call->desc);                                       \
        return rg_box_forward(call, &plan);                                                 \
    }                                                                                       \
    static rg_status gradient(rg_call *call)                                                \
    {                                                                                       \
        const rg_box_plan plan = plan_of(call->desc);                                       \
        return rg_box_gradient(call, &plan);                                                \
    }
#define RG_BOX_ENTRIES                                                                            \
    .desc = { fields, &defaults, sizeof defaults }, .inputs = (const char *const[]){ "x", NULL }, \
    .outputs = (const char *const[]){ "y", NULL }, .names = names, .shapes = shapes,              \
    .reads = rg_box_reads, .joins = rg_box_joins, .forward = forward, .gradient = gradient

#endif
