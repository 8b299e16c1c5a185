/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What spatial_norm and local_contrast have in common when they are recorded. */
#include "ops/window_norm/box_record.h"
#include "core/integer.h"

rg_status rg_box_shapes(const char *who, const rg_tensor_desc *x, rg_tensor_desc *y)
{
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "%s: x is %s; f32, f64, f16 and bf16 are supported", who, rg_dtype_name(x->dtype));
    RG_CHECK(x->rank == 3 || x->rank == 4, RG_INVALID_ARGUMENT,
             "%s: x has rank %d; it must be an image (h, w, c) or a batch (n, h, w, c)", who,
             x->rank);
    *y = rg_tensor_desc_dense(x->dtype, x->rank, x->dims);
    return RG_OK;
}

/* Channels of a strip: so many that the scratch of a unit stays in the L2 cache, in whole cache
 * lines, at least one. Then rows of a strip: whole images, unless these are too few units. */
static void cut(rg_box_shape *s, int kinds, bool gradient, int64_t real)
{
    enum {
        L2_BYTES = 384 << 10,
        MIN_CHANNELS = 16,
        WANTED_STRIPS = 32
    }; /* bytes, channels, strips */
    s->block = s->channels;
    while (s->block > MIN_CHANNELS) {
        const rg_box_lines lines = rg_box_lines_of(s);
        if (rg_box_reals(&lines, kinds, gradient) * real <= L2_BYTES)
            break;
        s->block = rg_round_up(s->block / 2, MIN_CHANNELS);
    }
    s->blocks = rg_ceil_div(s->channels, s->block);
    const int64_t whole = s->images * s->blocks, least = 8 * s->row.width;
    const bool direct = s->row.width <= RG_SPAN_DIRECT;
    s->bands = direct && whole < WANTED_STRIPS
                   ? rg_clamp(WANTED_STRIPS / whole, 1, s->row.size / least)
                   : 1;
    s->bands = rg_clamp(s->bands, 1, s->row.size);
    s->band = rg_ceil_div(s->row.size, s->bands);
    s->bands = rg_ceil_div(s->row.size, s->band);
}

int64_t rg_box_lay_out(const rg_tensor *const tensors[], int count, const int32_t window[2],
                       int kinds, rg_box_shape *s, rg_launch *launch)
{
    enum { UNITS = 32, SCRATCH_BYTES = 64 << 20 }; /* unless one unit needs more */
    const rg_tensor_desc *first = &tensors[0]->desc;
    const int32_t row = first->rank - 3;
    const int64_t bytes = rg_shape_count(first) * (int64_t)rg_dtype_size(first->dtype);
    launch->dtype = first->dtype;
    launch->bytes = bytes * count;
    if (bytes == 0)
        return 0; /* no units: nothing is recorded */
    s->images = row > 0 ? first->dims[0] : 1;
    s->channels = first->dims[row + 2];
    s->row = rg_span_make(first->dims[row], window[0], false);
    s->column = rg_span_make(first->dims[row + 1], window[1], false);
    s->dense = true;
    for (int t = 0; t < count; t++) {
        const rg_tensor_desc *desc = &tensors[t]->desc;
        s->step[t][0] = row > 0 ? desc->strides[0] : 0;
        for (int i = 0; i < 3; i++)
            s->step[t][1 + i] = desc->strides[row + i];
        s->dense &= s->step[t][3] == 1 || s->channels == 1;
    }
    const bool gradient = count == RG_BOX_TENSORS;
    const int64_t real = first->dtype == RG_F64 ? 8 : 4;
    cut(s, kinds, gradient, real);
    const rg_box_lines lines = rg_box_lines_of(s);
    s->scratch_bytes = rg_box_reals(&lines, kinds, gradient) * real;
    const rg_box_plane plane = rg_box_plane_of(s, kinds);
    const int64_t wide = (plane.values + plane.prefix + plane.sums + plane.kept + 64) * real;
    if (rg_box_is_wide(s) && s->scratch_bytes < wide)
        s->scratch_bytes = wide / RG_ALIGNMENT * RG_ALIGNMENT;
    s->units = rg_clamp(s->images * s->blocks * s->bands, 1,
                        rg_clamp(SCRATCH_BYTES / s->scratch_bytes, 1, UNITS));
    launch->units = s->units;
    launch->scratch = (size_t)(s->units * s->scratch_bytes);
    return bytes;
}
