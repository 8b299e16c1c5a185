/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tensors in memory whose other bytes are watched: guards before and after it, gaps between
 * elements. On a GPU the tensor and all bytes around it are in the GPU's memory; what is filled,
 * set, read and compared here is an image of them on the host. */
#ifndef RG_CLI_GUARDED_H
#define RG_CLI_GUARDED_H

#include <retrograde/kernel.h>

typedef enum rg_arrangement {
    RG_DENSE,
    RG_PADDED,    /* the last dimension contiguous, gaps between rows */
    RG_SCATTERED, /* the first dimension fastest, a gap after every element */
    RG_SPACED,    /* gaps of 16 elements, after the last dimension alone: rows stay aligned */
    RG_MIXED,     /* each tensor another of these */
    RG_UNITS,     /* dense, with odd strides of dimensions of size 1, which must not matter */
    RG_EXPANDED,  /* stride 0 along dimension 0 */
    RG_NCHW,      /* the last dimension lies before the two that precede it, as channels may */
} rg_arrangement;
const char *rg_arrangement_name(rg_arrangement arrangement);

/* Gives images, tensors of rank 3 and more, the strides of dense NCHW memory. */
void rg_arrange_nchw(rg_tensor_desc *desc);

typedef struct rg_guarded {
    rg_tensor_desc desc;
    rg_tensor *tensor;
    rg_tensor *abroad;     /* all bytes on a GPU, around `tensor`; NULL where it wraps `memory` */
    char *memory, *before; /* `bytes` each: now, and when last filled */
    char *kept;            /* as it was made */
    char *first;           /* element 0, in `memory` */
    int64_t *offsets;      /* of every element, from the first one; NULL where it is dense */
    size_t bytes, extent;  /* of all memory, and of the elements with the gaps between them */
    bool is_result;        /* its elements may change */
    bool is_changed;       /* `memory`, since the last upload */
} rg_guarded;

/* Filled with `values`, as rg_guarded_fill does it; `number` distinguishes the tensors of one call.
 */
rg_status rg_guarded_make(rg_device *device, const rg_tensor_desc *shape,
                          rg_arrangement arrangement, int number, const double *values,
                          rg_guarded *guarded);
/* The same with the strides of `desc`, `shift` elements after an aligned address. */
rg_status rg_guarded_make_view(rg_device *device, const rg_tensor_desc *desc, int64_t shift,
                               const double *values, rg_guarded *guarded);
void rg_guarded_free(rg_guarded *guarded);

/* Element i in row-major order. */
double rg_guarded_get(const rg_guarded *guarded, int64_t i);
void rg_guarded_set(rg_guarded *guarded, int64_t i, double value);

/* Sets all elements, or with NULL a byte pattern; all other bytes become guards. */
void rg_guarded_fill(rg_guarded *guarded, const double *values);

/* Makes every byte what it was when the tensor was made. */
void rg_guarded_reset(rg_guarded *guarded);

/* Bring the image to the GPU, if it has changed, and back. On the CPU they do nothing, but that
 * with the address sanitizer an upload closes the guards: until the tensor is filled, reset or
 * compared, reading them is an error. A copy of the struct stands for the same tensor: an upload of
 * both, or a download of both, does no harm. */
rg_status rg_guarded_upload(rg_guarded *guarded);
rg_status rg_guarded_download(rg_guarded *guarded);

/* Whether nothing has changed since it was filled, but the elements of a result. */
bool rg_guarded_intact(const rg_guarded *guarded);

/* A fingerprint of all elements, other than 0. */
uint64_t rg_guarded_hash(const rg_guarded *guarded);

#endif
