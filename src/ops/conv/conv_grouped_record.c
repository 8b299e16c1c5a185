/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording convolutions where groups have few channels. */
#include "ops/conv/conv_grouped_record.h"
#include "core/integer.h"

/* ---- how work is cut ---- */

static int64_t padded(int64_t channels)
{
    return rg_round_up(channels, RG_CONV_GROUPED_BLOCK);
}

/* How many rows of the source `rows` rows of the result are computed from. */
static int64_t span(const rg_conv_axis *a, bool data, int64_t rows)
{
    const int64_t taps = (a->window - 1) * a->dilation, all = data ? a->count : a->size;
    const int64_t span =
        data ? (rows - 1 + taps) / a->stride + 2 : (rows - 1) * a->stride + taps + 1;
    return span < all ? span : all;
}

/* Bytes of a thread: the source spread out. */
static double scratch(const rg_conv_shape *s, bool data, int64_t rows)
{
    const double sources = (double)(data ? s->column.count : s->column.size);
    const double picks = (double)(data ? s->out : s->in);
    return RG_CONV_GROUPED_BYTES * (double)span(&s->row, data, rows) * sources * picks;
}

/* Bytes of a thread that makes dw: both sides, and sums. */
static double parts_scratch(const rg_conv_shape *s, int64_t rows)
{
    return scratch(s, false, rows) +
           RG_CONV_GROUPED_BYTES *
               ((double)rows * (double)s->column.count + (double)rg_conv_grouped_sums(s));
}

/* Rows of a block: so many that its scratch stays in the L2 cache. */
static int64_t rows_of_block(const rg_conv_shape *s, bool data, bool weights)
{
    enum { MAX_ROWS = RG_CONV_GROUPED_ROWS, L2_BYTES = 192 << 10 };
    const int64_t all = data ? s->row.size : s->row.count;
    int64_t rows = all < MAX_ROWS ? (all < 1 ? 1 : all) : MAX_ROWS;
    while (rows > 1 && (weights ? parts_scratch(s, rows) : scratch(s, data, rows)) > L2_BYTES)
        rows--;
    return rows;
}

/* Whether groups have few channels, but more than one, a row fits the scratch in all directions,
 * and a result is a sum of at most two runs, each of which has an accumulator. */
static bool is_grouped(const rg_conv_shape *s)
{
    const double most = 0x1p22;
    const int64_t taps = s->row.window * s->column.window;
    return s->groups > 1 && s->in * s->out > 1 && s->in <= RG_CONV_GROUPED_MOST &&
           s->out <= RG_CONV_GROUPED_MOST && (s->in == 1 || s->out == 1 || s->in == s->out) &&
           taps <= RG_CONV_DEPTHWISE_TAPS &&
           taps * (s->in > s->out ? s->in : s->out) <= 2 * RG_SUM_RUN &&
           parts_scratch(s, 1) <= most && scratch(s, true, 1) <= most;
}

/* ---- launches ---- */

bool rg_conv_grouped_takes(const rg_call *call, const rg_conv_shape *s, rg_dtype dtype)
{
    return is_grouped(s) && rg_call_finds(call, RG_CONV_GROUPED, dtype);
}

static int64_t aligned_bytes(double bytes)
{
    return rg_round_up((int64_t)bytes, RG_ALIGNMENT);
}

static rg_status record_transpose(rg_call *call, const rg_conv_shape *s, bool data,
                                  const rg_tensor *w, const rg_tensor *transposed)
{
    const rg_conv_grouped_transpose_args args = { .shape = *s, .data = data };
    const rg_launch launch = { .kernel = RG_CONV_GROUPED_TRANSPOSE,
                               .dtype = w->desc.dtype,
                               RG_ARGS(args),
                               .tensors = { RG_BIND(args, w, w),
                                            RG_BIND(args, transposed, transposed) },
                               .units = rg_shape_count(&transposed->desc) / RG_CONV_GROUPED_BLOCK,
                               .grain = 16,
                               .bytes = 4 * rg_move_bytes(w) };
    return rg_record(call, &launch);
}

static rg_status record_pass(rg_call *call, bool data, const rg_conv_pass *p,
                             const rg_tensor *transposed)
{
    const rg_conv_shape *s = &p->shape;
    const int64_t rows = data ? s->row.size : s->row.count;
    const int64_t channels = s->groups * (data ? s->in : s->out);
    rg_conv_grouped_args args = { .depthwise = rg_conv_depthwise_of(call, data, p),
                                  .picks = data ? s->out : s->in,
                                  .padded_channels = padded(channels) };
    args.depthwise.channels = channels;
    args.block = rows_of_block(s, data, false);
    args.blocks = rg_ceil_div(rows, args.block);
    args.scratch_bytes = aligned_bytes(scratch(s, data, args.block));
    rg_launch launch = { .kernel = RG_CONV_GROUPED,
                         .dtype = p->to->desc.dtype,
                         RG_ARGS(args),
                         .tensors = { RG_BIND(args, from, p->from), RG_BIND(args, w, transposed),
                                      RG_BIND(args, b, p->b != NULL ? p->b : p->from),
                                      RG_BIND(args, to, p->to),
                                      RG_BIND(args, z, p->z != NULL ? p->z : p->to) },
                         .thread_scratch = (size_t)args.scratch_bytes,
                         .thread_scratch_at = RG_POINTER(args, scratch) };
    rg_conv_set_cost(&launch,
                     s->images * args.blocks * (args.padded_channels / RG_CONV_GROUPED_BLOCK),
                     rg_move_bytes(p->from) + rg_move_bytes(p->to), rg_conv_products(s));
    return rg_record(call, &launch);
}

rg_status rg_conv_record_grouped(rg_call *call, bool data, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const int64_t channels = padded(s->groups * (data ? s->in : s->out));
    const int64_t dims[] = { s->row.window * s->column.window, data ? s->out : s->in, channels };
    const rg_tensor_desc desc = rg_tensor_desc_dense(rg_conv_real(p->w->desc.dtype), 3, dims);
    rg_tensor *transposed;
    RG_TRY(rg_tensor_create_temporary(call->commands, &desc, &transposed));
    rg_status status = record_transpose(call, s, data, p->w, transposed);
    if (status == RG_OK)
        status = record_pass(call, data, p, transposed);
    rg_tensor_destroy(transposed);
    return status;
}

static rg_status record_parts(rg_call *call, const rg_conv_grouped_parts_args *args,
                              const rg_tensor *x, const rg_tensor *dy, const rg_tensor *partial)
{
    rg_launch launch = { .kernel = RG_CONV_GROUPED_PARTS,
                         .dtype = x->desc.dtype,
                         RG_ARGS(*args),
                         .tensors = { RG_BIND(*args, x, x), RG_BIND(*args, dy, dy),
                                      RG_BIND(*args, partial, partial) },
                         .thread_scratch = (size_t)args->scratch_bytes,
                         .thread_scratch_at = RG_POINTER(*args, scratch) };
    rg_conv_set_cost(&launch, args->parts * (args->padded_channels / RG_CONV_GROUPED_BLOCK),
                     rg_move_bytes(x) + rg_move_bytes(dy), rg_conv_products(&args->shape));
    return rg_record(call, &launch);
}

static rg_status record_join(rg_call *call, const rg_conv_grouped_parts_args *parts,
                             const rg_tensor *partial, const rg_tensor *dw, bool add)
{
    const rg_conv_shape *s = &parts->shape;
    const rg_conv_grouped_join_args args = {
        .shape = *s, .parts = parts->parts, .padded_channels = parts->padded_channels, .add = add
    };
    const int64_t sums = s->row.window * s->column.window * s->in;
    const rg_launch launch = { .kernel = RG_CONV_GROUPED_JOIN,
                               .dtype = dw->desc.dtype,
                               RG_ARGS(args),
                               .tensors = { RG_BIND(args, partial, partial),
                                            RG_BIND(args, dw, dw) },
                               .units = sums * (args.padded_channels / RG_CONV_GROUPED_BLOCK),
                               .grain = 4,
                               .bytes = rg_move_bytes(partial) };
    return rg_record(call, &launch);
}

rg_status rg_conv_record_grouped_weights(rg_call *call, const rg_conv_shape *s, const rg_tensor *x,
                                         const rg_tensor *dy, const rg_tensor *dw, bool add)
{
    rg_conv_grouped_parts_args args = { .shape = *s,
                                        .part = rg_conv_depthwise_part(s),
                                        .padded_channels = padded(s->groups * s->out),
                                        .block = rows_of_block(s, false, true) };
    const int64_t rows = s->images * s->row.count;
    args.parts = rg_ceil_div(rows, args.part);
    args.scratch_bytes = aligned_bytes(parts_scratch(s, args.block));
    const int64_t dims[] = { args.parts, s->row.window * s->column.window, s->in,
                             args.padded_channels };
    const rg_tensor_desc desc = rg_tensor_desc_dense(rg_conv_real(x->desc.dtype), 4, dims);
    rg_tensor *partial;
    RG_TRY(rg_tensor_create_temporary(call->commands, &desc, &partial));
    rg_status status = record_parts(call, &args, x, dy, partial);
    if (status == RG_OK)
        status = record_join(call, &args, partial, dw, add);
    rg_tensor_destroy(partial);
    return status;
}
