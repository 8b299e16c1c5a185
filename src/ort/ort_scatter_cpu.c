/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradients that put elements of dy in their places, on memory of ONNX Runtime: pooling, slices,
 * gathered rows. Sums are made in dx, so those of 16 bits have other kernels. */
#include "backend/cpu/kernel.h"
#include "ort/ort_native.h"

RG_INLINE void clear(void *data, int64_t first, int64_t count, const rg_dtype T)
{
    memset(at_out(data, first, T), 0, (size_t)count * (size_t)(vbytes(T) / VLEN));
}

/* ---- pooling ---- */

static void max_pool(const void *args, int64_t begin, int64_t end)
{
    const rg_ort_pool_args *k = args;
    const int64_t in = k->in[0] * k->in[1] * k->in[2], out = k->out[0] * k->out[1] * k->out[2];
    for (int64_t plane = begin; plane < end; plane++) {
        const real *dy = (const real *)k->dy + plane * out;
        real *dx = (real *)k->dx + plane * in;
        const int64_t *indices = k->indices + plane * out, first = plane * in;
        uint64_t outside = 0;
        clear(k->dx, first, in, RG_REAL);
        for (int64_t i = 0; i < out; i++) {
            const uint64_t to = (uint64_t)(indices[i] - first);
            if (to < (uint64_t)in)
                dx[to] += dy[i];
            else
                outside = 1;
        }
        if (outside)
            __atomic_store_n(k->fault, 1, __ATOMIC_RELAXED);
    }
}

/* The pixels of window `i` that are in the image: from *first to *last - 1. */
RG_INLINE int64_t inside(const rg_ort_pool_args *k, int axis, int64_t i, int64_t *first,
                         int64_t *last)
{
    const int64_t start = i * k->stride[axis] - k->before[axis], stop = start + k->window[axis];
    *first = start > 0 ? start : 0;
    *last = least(stop, k->in[axis]);
    return *last > *first ? *last - *first : 0;
}

/* The sum over windows of a row of dy, spread along a row of dx; `rows`: of each window. */
RG_INLINE void spread_row(const rg_ort_pool_args *k, const real *dy, int64_t rows, real *row)
{
    const int64_t whole = k->window[0] * k->window[1] * k->window[2];
    memset(row, 0, (size_t)k->in[2] * sizeof *row);
    for (int64_t i = 0; i < k->out[2]; i++) {
        int64_t first, last;
        const int64_t columns = inside(k, 2, i, &first, &last);
        const int64_t count = k->count_include_pad ? whole : rows * columns;
        const real value = dy[i] / (real)count;
        for (int64_t c = first; c < last; c++)
            row[c] += value;
    }
}

RG_INLINE void add_row(real *to, const real *row, int64_t width)
{
    int64_t c = 0;
    for (; c + VLEN <= width; c += VLEN)
        vstore_full(to, c, RG_REAL, vload_full(to, c, RG_REAL) + vload_full(row, c, RG_REAL));
    for (; c < width; c++)
        to[c] += row[c];
}

static void average_pool(const void *args, int64_t begin, int64_t end)
{
    const rg_ort_pool_args *k = args;
    real row[RG_ORT_POOL_ROW];
    const int64_t area = k->in[1] * k->in[2], in = k->in[0] * area;
    const int64_t rows_out = k->out[0] * k->out[1];
    for (int64_t plane = begin; plane < end; plane++) {
        real *dx = (real *)k->dx + plane * in;
        clear(k->dx, plane * in, in, RG_REAL);
        for (int64_t i = 0; i < rows_out; i++) {
            int64_t front, back, top, bottom;
            const int64_t deep = inside(k, 0, i / k->out[1], &front, &back);
            const int64_t high = inside(k, 1, i % k->out[1], &top, &bottom);
            spread_row(k, (const real *)k->dy + (plane * rows_out + i) * k->out[2], deep * high,
                       row);
            for (int64_t d = front; d < back; d++) {
                for (int64_t r = top; r < bottom; r++)
                    add_row(dx + d * area + r * k->in[2], row, k->in[2]);
            }
        }
    }
}

/* ---- slices ---- */

/* The row of dy that row `index` of dx comes from; -1: none. */
RG_INLINE int64_t row_of(const rg_ort_slice_args *k, const int64_t index[])
{
    int64_t row = 0;
    for (int32_t d = 0; d < k->rank - 1; d++) {
        const int64_t apart = index[d] - k->start[d];
        int64_t i = apart;
        if (k->step[d] != 1) {
            if (apart % k->step[d] != 0)
                return -1;
            i = apart / k->step[d];
        }
        if (i < 0 || i >= k->length[d])
            return -1;
        row = row * k->length[d] + (k->down >> d & 1 ? k->length[d] - 1 - i : i);
    }
    return row;
}

/* How many rows from `index` on lie beside the slice in one of the outer dimensions: at least 1. */
RG_INLINE int64_t rows_beside(const rg_ort_slice_args *k, const int64_t index[])
{
    int64_t rows = 1, found = 1;
    for (int32_t d = k->rank - 2; d >= 0; d--) {
        const int64_t apart = index[d] - k->start[d];
        const int64_t stop = (k->length[d] - 1) * k->step[d];
        if (apart < 0 || apart > stop) {
            int64_t behind = 0, inner = 1; /* rows of this index that are done */
            for (int32_t i = k->rank - 2; i > d; i--) {
                behind += index[i] * inner;
                inner *= k->dims[i];
            }
            found = (apart < 0 ? -apart : k->dims[d] - index[d]) * rows - behind;
        }
        rows *= k->dims[d];
    }
    return found;
}

/* Every second element, and zeros between them: words of twice the width. */
RG_INLINE void spread_words(char *to, const char *from, int64_t count)
{
    typedef uint32_t words __attribute__((vector_size(RG_VECTOR_BYTES / 2)));
    typedef uint64_t pairs __attribute__((vector_size(RG_VECTOR_BYTES)));
    enum { EACH = RG_VECTOR_BYTES / 8 };
    int64_t i = 0;
    for (; i + EACH <= count; i += EACH) {
        words some;
        memcpy(&some, from + i * 4, sizeof some);
        const pairs wide = __builtin_convertvector(some, pairs);
        memcpy(to + i * 8, &wide, sizeof wide);
    }
    for (; i < count; i++) {
        uint32_t one;
        memcpy(&one, from + i * 4, sizeof one);
        const uint64_t wide = one;
        memcpy(to + i * 8, &wide, sizeof wide);
    }
}

RG_INLINE void spread_halves(char *to, const char *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint16_t one;
        memcpy(&one, from + i * 2, sizeof one);
        const uint32_t wide = one;
        memcpy(to + i * 4, &wide, sizeof wide);
    }
}

/* A row that dy has elements of. */
RG_INLINE void slice_row(const rg_ort_slice_args *k, char *to, const char *from, const rg_dtype T)
{
    const int32_t last = k->rank - 1;
    const int64_t width = k->dims[last], start = k->start[last], step = k->step[last];
    const int64_t length = k->length[last], element = vbytes(T) / VLEN;
    const int64_t pairs = start + 2 * length <= width ? length : length - 1;
    if (k->down >> last & 1) {
        clear(to, 0, width, T);
        for (int64_t i = 0; i < length; i++)
            store_one(to, start + i * step, T, load_one(from, length - 1 - i, T));
        return;
    }
    if (step == 2 && element <= 4) {
        const int64_t end = start + 2 * pairs;
        clear(to, 0, start, T);
        if (element == 4)
            spread_words(at_out(to, start, T), from, pairs);
        else
            spread_halves(at_out(to, start, T), from, pairs);
        clear(to, end, width - end, T);
        if (pairs < length)
            store_one(to, end, T, load_one(from, pairs, T));
        return;
    }
    if (length < width)
        clear(to, 0, width, T);
    if (step == 1)
        memcpy(at_out(to, start, T), from, (size_t)(length * element));
    for (int64_t i = 0; step != 1 && i < length; i++)
        store_one(to, start + i * step, T, load_one(from, i, T));
}

RG_INLINE void slice(const rg_ort_slice_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const int32_t last = k->rank - 1;
    const int64_t width = k->dims[last];
    int64_t index[RG_MAX_RANK];
    for (int64_t d = last - 1, left = begin; d >= 0; d--) {
        index[d] = left % k->dims[d];
        left /= k->dims[d];
    }
    for (int64_t unit = begin; unit < end;) {
        const int64_t row = row_of(k, index);
        const int64_t rows = row < 0 ? least(rows_beside(k, index), end - unit) : 1;
        if (row < 0)
            clear(k->dx, unit * width, rows * width, T);
        else
            slice_row(k, at_out(k->dx, unit * width, T), at(k->dy, row * k->length[last], T), T);
        unit += rows;
        int64_t carry = rows;
        for (int32_t d = last - 1; d >= 0 && carry > 0; d--) {
            index[d] += carry;
            carry = index[d] / k->dims[d];
            index[d] -= carry * k->dims[d];
        }
    }
}
RG_KERNEL(slice, rg_ort_slice_args)

/* ---- gathered rows ---- */

static void gather(const void *args, int64_t begin, int64_t end)
{
    const rg_ort_gather_args *k = args;
    const int64_t *indices = k->indices;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t outer = unit / k->blocks, first = unit % k->blocks * RG_ORT_COLUMNS;
        const int64_t width = least(RG_ORT_COLUMNS, k->inner - first);
        real *dx = (real *)k->dx + outer * k->rows * k->inner + first;
        const real *dy = (const real *)k->dy + outer * k->count * k->inner + first;
        for (int64_t row = 0; row < k->rows; row++)
            clear(dx, row * k->inner, width, RG_REAL);
        for (int64_t i = 0; i < k->count; i++) {
            const int64_t row = indices[i] < 0 ? indices[i] + k->rows : indices[i];
            if (row < 0 || row >= k->rows) {
                __atomic_store_n(k->fault, 1, __ATOMIC_RELAXED);
                continue;
            }
            real *to = dx + row * k->inner;
            const real *from = dy + i * k->inner;
            for (int64_t c = 0; c < width; c++)
                to[c] += from[c];
        }
    }
}

#define IN_REAL(name)        \
    {                        \
        {                    \
            [RG_REAL] = name \
        }                    \
    }

RG_CPU_TABLE(ort_scatter, RG_ORT_KERNELS) = {
    [RG_ORT_MAX_POOL] = IN_REAL(max_pool),
    [RG_ORT_AVERAGE_POOL] = IN_REAL(average_pool),
    [RG_ORT_SLICE] = RG_ROW(slice),
    [RG_ORT_GATHER] = IN_REAL(gather),
};
