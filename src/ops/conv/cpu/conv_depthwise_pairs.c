/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording depthwise convolutions of bf16 by pairs of rows, see conv_cpu.h. */
#include "backend/cpu/bf16_unit.h"
#include "core/integer.h"
#include "ops/conv/conv_record.h"

/* Three taps, stride 1. */
static bool suits_axis(const rg_conv_axis *a)
{
    return a->window == RG_CONV_PAIR_WINDOW && a->stride == 1 && a->dilation == 1;
}

/* Results of a row. */
static int64_t results_of(const rg_conv_axis *a, bool data)
{
    return data ? a->size : a->count;
}

/* Bytes of a thread for RG_CONV_GROUPED_BLOCK channels: four rows of inputs, two of results, and
 * their sums. */
static double block_bytes(const rg_conv_shape *s, bool data)
{
    const double inputs = (double)results_of(&s->column, !data);
    const double results = (double)results_of(&s->column, data);
    return RG_CONV_GROUPED_BLOCK *
           (sizeof(uint16_t) * (4 * inputs + 2 * results) + sizeof(float) * 2 * results);
}

static bool accepts(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    const rg_conv_shape *s = &p->shape;
    const bool data = p->kernel == RG_CONV_DATA;
    const double max_bytes = 0x1p20;
    return rg_conv_dtype(p) == RG_BF16 && p->kernel != RG_CONV_WEIGHTS && rg_conv_is_depthwise(s) &&
           suits_axis(&s->row) && suits_axis(&s->column) && block_bytes(s, data) <= max_bytes &&
           rg_bf16_unit() == RG_BF16_UNIT_AVX512 &&
           rg_call_finds(call, RG_CONV_PAIR_DEPTHWISE, RG_BF16);
}

/* Blocks of channels, and of columns, that are mostly full. */
static bool prefers(const rg_call *call, const void *request)
{
    enum { MIN_CHANNELS = 12, MIN_COLUMNS = 5 };
    const rg_conv_pass *p = request;
    (void)call;
    return p->shape.groups >= MIN_CHANNELS &&
           results_of(&p->shape.column, p->kernel == RG_CONV_DATA) >= MIN_COLUMNS;
}

/* Units: channels whose rows stay in L2, and an even number of rows. */
static void cut(rg_conv_grouped_args *k)
{
    enum { L2_BYTES = 256 << 10, WANTED_UNITS = 32, MAX_ROWS = 32 };
    const rg_conv_shape *s = &k->conv.shape;
    const int64_t all = rg_ceil_div(k->channels, RG_CONV_GROUPED_BLOCK);
    const int64_t rows = results_of(&s->row, k->data);
    const int64_t each = rg_round_up((int64_t)block_bytes(s, k->data), RG_ALIGNMENT);
    const int64_t most = rg_max(L2_BYTES / rg_max(each, 1), 1);
    k->padded_channels = all * RG_CONV_GROUPED_BLOCK;
    k->unit_channels = rg_ceil_div(all, rg_ceil_div(all, most)) * RG_CONV_GROUPED_BLOCK;
    const int64_t units = s->images * rg_ceil_div(k->padded_channels, k->unit_channels);
    const int64_t wanted = rg_ceil_div(rg_max(units, 1) * rows, WANTED_UNITS);
    const int64_t blocks = rg_ceil_div(rows, rg_max(rg_min(wanted, MAX_ROWS), 1));
    k->block = rg_round_up(rg_ceil_div(rows, rg_max(blocks, 1)), 2);
    k->blocks = rg_ceil_div(rows, rg_max(k->block, 1));
    k->scratch_bytes = each * (k->unit_channels / RG_CONV_GROUPED_BLOCK);
}

static rg_status record(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    rg_conv_grouped_args args = rg_conv_grouped_args_of(call, p);
    cut(&args);
    rg_launch launch = rg_conv_launch(p, RG_CONV_PAIR_DEPTHWISE, NULL, &args, sizeof args);
    launch.thread_scratch = (size_t)args.scratch_bytes;
    launch.thread_scratch_at = RG_POINTER(args, conv.scratch);
    rg_conv_set_pass_cost(&launch, p,
                          p->shape.images * args.blocks *
                              rg_ceil_div(args.padded_channels, args.unit_channels),
                          rg_conv_products(&p->shape));
    const int64_t blocks = args.padded_channels / RG_CONV_GROUPED_BLOCK;
    return rg_conv_record_weights_before(call, p, RG_CONV_PAIR_DEPTHWISE_WEIGHTS,
                                         RG_CONV_GROUPED_BLOCK, blocks,
                                         blocks * RG_CONV_PAIR_DEPTHWISE_WORDS, &launch);
}

const rg_strategy rg_conv_by_depthwise_pairs = { "depthwise_pairs", accepts, record, prefers };
