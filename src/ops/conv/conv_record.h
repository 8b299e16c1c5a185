/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Checking and recording, for conv and conv_transpose: both are the same three passes, of which the
 * transpose takes the first two the other way round. Each pass is recorded by the first strategy of
 * a list that accepts it. Strategies of a CPU are in cpu/; those of a GPU, in cuda/, are chosen at
 * launch. */
#ifndef RG_OPS_CONV_RECORD_H
#define RG_OPS_CONV_RECORD_H

#include "core/shape.h"
#include "ops/conv/cpu/conv_cpu.h"
#include "ops/fused_neuron/fused_neuron.h"
#include "ops/move/move_record.h"
#include "ops/neuron/neuron_fields.h"
#include "ops/padding/padding_fields.h"
#include "runtime/strategy.h"

#include <retrograde/padding.h>

/* ---- descriptions ---- */

/* Shared by both descriptors: non-zero defaults, and the fields before and after
 * conv_transpose's own. */
#define RG_CONV_DEFAULTS                                                 \
    .groups = 1, .stride = { 1, 1 }, .dilation = { 1, 1 }, .bias = true, \
    .neuron = { .size = sizeof(rg_neuron_desc), .kind = RG_NEURON_NONE }
#define RG_CONV_FIELDS(desc, padding_text)                                         \
    RG_FIELD_IN(desc, groups, 0, INT32_MAX,                                        \
                "number of channel groups; 0: one group per channel (depthwise)"), \
        RG_FIELD_IN(desc, stride, 1, INT32_MAX, "stride between windows"),         \
        RG_FIELD_IN(desc, dilation, 1, INT32_MAX, "dilation of the window"),       \
        RG_FIELD_STRUCT(desc, padding, rg_padding_fields, padding_text),           \
        RG_FIELD_IN(desc, output, 0, 0x1p48,                                       \
                    "rows and columns of y; 0: computed from the padding")
#define RG_CONV_LAST_FIELDS(desc)                           \
    RG_FIELD(desc, bias, "whether the bias b is an input"), \
        RG_FIELD_STRUCT(desc, neuron, rg_neuron_fields, "activation applied to the result")

/* Tensors as MPS calls them. */
#define RG_CONV_MPS_NAMES "sourceImage=x weights=w biasTerms=b destinationImage=y"
#define RG_CONV_MPS_GRADIENT_NAMES                                              \
    "sourceGradient=dy sourceImage=x weights=w biasTerms=b destinationImage=y " \
    "destinationGradient=dx gradientForWeights=dw gradientForBiases=db"

/* ---- checks; `op` is the name ---- */

/* dtypes and ranks of x, w and b. */
rg_status rg_conv_check_inputs(const rg_tensor_desc x[], bool bias, const char *op);

rg_status rg_conv_check_bias(const rg_tensor_desc *b, int64_t channels, const char *op);

/* Resolves the padding. Positions on the image fit into 31 bits, so that kernels can count in 32
 * bits. */
rg_status rg_conv_place(const rg_padding *padding, const rg_window *window, const char *op,
                        rg_placement *at);

/* The shape of the result: that of x with other rows, columns and channels. */
rg_status rg_conv_result(const rg_tensor_desc *x, const rg_placement *at, int64_t channels,
                         const char *op, rg_tensor_desc *y);

/* ---- geometry ---- */

/* The dimension of rows in (n, h, w, c) or (h, w, c). */
int32_t rg_conv_row(const rg_tensor_desc *x);

/* The groups of a descriptor, of which 0 are as many as x has channels. */
int64_t rg_conv_groups(int32_t groups, const rg_tensor_desc *x);

/* From the shapes of the image side and the window side; `w` is left to the caller. */
rg_conv_shape rg_conv_shape_of(const rg_window *window, const rg_placement *at,
                               const rg_tensor_desc *image, const rg_tensor_desc *windows,
                               int64_t groups);

/* ---- forward and gradient of the ops ---- */

/* What the passes need to know of an op: `own` of its description. */
typedef struct rg_conv_kind {
    /* The geometry, from the shapes of x (or dx), y (or dy) and w (or dw). */
    rg_conv_shape (*shape)(const void *desc, const rg_tensor_desc *x, const rg_tensor_desc *y,
                           const rg_tensor_desc *w);
    size_t neuron, bias; /* offsets of these fields in the descriptor */
    bool is_transpose;
} rg_conv_kind;

/* RG_READS_ bits of the gradient. */
uint32_t rg_conv_reads(const rg_neuron_desc *neuron, bool bias);

rg_status rg_conv_forward(rg_call *call);
rg_status rg_conv_gradient(rg_call *call);

/* ---- strategies ---- */

/* What a strategy records: its request. b and z may be NULL. */
typedef struct rg_conv_pass {
    int32_t kernel;                         /* RG_CONV_FORWARD, RG_CONV_DATA or RG_CONV_WEIGHTS */
    const rg_tensor *from, *w, *b, *to, *z; /* of forward and data */
    const rg_tensor *x, *dy, *dw;           /* of weights */
    rg_conv_shape shape;
    const rg_neuron_desc *neuron; /* or NULL */
    bool add;
    bool is_transpose; /* of conv_transpose, whose weights may have another order */
} rg_conv_pass;

/* In the order in which they are asked; the last one is for any shape. */
/* clang-format off */
#define RG_CONV_STRATEGIES(STRATEGY) \
    STRATEGY(rg_conv_by_depthwise_pairs) \
    STRATEGY(rg_conv_by_depthwise) \
    STRATEGY(rg_conv_by_permute) \
    STRATEGY(rg_conv_by_grouped) \
    STRATEGY(rg_conv_by_patches) \
    STRATEGY(rg_conv_by_pair_taps) \
    STRATEGY(rg_conv_by_pairs) \
    STRATEGY(rg_conv_by_panels) \
    STRATEGY(rg_conv_by_any)
/* clang-format on */
RG_CONV_STRATEGIES(RG_STRATEGY_DECLARE)
/* The lists of conv and conv_transpose, for their descriptions. */
extern const rg_strategy *const *const rg_conv_strategies[];

/* The dtype of the tensors that a pass reads. */
rg_dtype rg_conv_dtype(const rg_conv_pass *p);

/* Multiplications of one direction. */
double rg_conv_products(const rg_conv_shape *s);

/* Args of RG_CONV_FORWARD and RG_CONV_DATA; other kernels take the epilogue from them. */
rg_conv_args rg_conv_args_of(const rg_call *call, const rg_conv_pass *p);

/* Sets the cost of a launch of `units` units: bytes moved and products; 8 products cost as much
 * as 1 byte. */
void rg_conv_set_cost(rg_launch *launch, int64_t units, int64_t bytes, double products);

/* A launch of forward or data with `w` as the kernel reads it. The args begin with an rg_conv_args.
 */
rg_launch rg_conv_launch(const rg_conv_pass *p, int32_t kernel, const rg_tensor *w,
                         const void *args, size_t args_size);
void rg_conv_set_pass_cost(rg_launch *launch, const rg_conv_pass *p, int64_t units,
                           double products);

/* A temporary of `count` elements in the type that kernels of `dtype` compute in. */
rg_status rg_conv_temporary(const rg_call *call, rg_dtype dtype, double count, rg_tensor **made);

/* A temporary for partial sums of dw, and the launch that joins them. */
rg_status rg_conv_partials(const rg_call *call, const rg_conv_pass *p,
                           const rg_conv_partial_sums *sums, rg_tensor **made);
rg_status rg_conv_record_join(rg_call *call, const rg_conv_pass *p,
                              const rg_conv_partial_sums *sums, const rg_tensor *partials);

/* ---- what depthwise, grouped and permute share ---- */

/* Args, but for what grouped and permute alone have. */
rg_conv_grouped_args rg_conv_grouped_args_of(const rg_call *call, const rg_conv_pass *p);
/* Transposes the weights by a kernel of theirs, in blocks of `block` channels of the result, and
 * records the launch with them. */
rg_status rg_conv_record_between(rg_call *call, const rg_conv_pass *p, int32_t kernel,
                                 int64_t block, rg_launch *launch);

/* The same with any number of units, and of vectors of `block` words. */
rg_status rg_conv_record_weights_before(rg_call *call, const rg_conv_pass *p, int32_t kernel,
                                        int64_t block, int64_t units, int64_t vectors,
                                        rg_launch *launch);

/* ---- what panels and pairs share ---- */

/* Of panels, for pairs: whether the engine can run the pass, and whether it is worth it. */
bool rg_conv_panels_accept(const rg_call *call, const void *request);
bool rg_conv_panels_prefer(const rg_call *call, const void *request);
/* How many launches forward or data takes; and the geometry of one, without blocks. */
int64_t rg_conv_phases(const rg_conv_pass *p);
rg_conv_rows_args rg_conv_phase(const rg_conv_pass *p, int64_t r);
/* One launch, by the unit for pairs; NULL: without pairs. */
rg_status rg_conv_record_rows(rg_call *call, const rg_conv_pass *p, rg_conv_rows_args *k,
                              const rg_pair_unit *pairs);
/* Cuts outputs into blocks whose inputs stay in L2, enough blocks for all threads. */
void rg_conv_cut_rows(rg_conv_rows_args *k, int64_t element);
/* As many slices of dw as wanted, by images and by the size of all partial sums. */
void rg_conv_cut_slices(rg_conv_partial_sums *sums, const rg_conv_shape *s, int64_t wanted,
                        int64_t images, int64_t element);
/* Whether the sum over a slice, with `windows` windows of each of its images, is longer than a
 * block of core/long_sum.h. */
bool rg_conv_is_long(const rg_conv_shape *s, int64_t slices, int64_t windows);

/* Of pairs, for panels: */
rg_conv_pair_steps rg_conv_pair_steps_of(const rg_conv_window_axis *column, int64_t depth);
/* Chooses blocks. If a unit needs many rows, rows are summed together with the unused columns
 * between them. */
void rg_conv_cut_pairs(rg_conv_rows_args *k, bool tall);

#endif
