/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A made-up op that uses everything in the interface between ops and runtime:
 *
 *      y = scale a b [+ c]     a, b, c and y of one shape, f32
 *
 * A negative scale runs the product backwards. Its state holds "kept", a copy of a, and "total",
 * one element. The gradient reads b and the state. An element of a that is 666 is a fault. */
#ifndef RG_TESTS_API_SEAM_H
#define RG_TESTS_API_SEAM_H

#include "runtime/op.h"

typedef struct mix_desc {
    uint32_t size;
    bool bias; /* whether there is a c */
    double scale;
} mix_desc;
mix_desc mix_desc_default(void);

extern const rg_op mix_op;
extern const rg_op one_way_op; /* the same without a gradient */

enum { MIX_MOST = 1 << 16 };
enum { MIX_GRAIN = 7 };

/* What the kernels have done since mix_forget(). */
extern _Atomic int mix_products[MIX_MOST]; /* how often each unit was multiplied */
extern _Atomic int mix_tiles;              /* calls of the product's function */
extern _Atomic int mix_odd_tiles;          /* of them with borders that are no border of a tile */
extern _Atomic int mix_first;              /* the unit that the first of them began with */
extern _Atomic int mix_launches;           /* of any kernel, counted by their first unit */
void mix_forget(void);

#endif
