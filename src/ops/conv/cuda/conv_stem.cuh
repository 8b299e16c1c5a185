/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The stem, which is the first layer of a network, in 16 bits, y and dw: images of three channels,
 * windows that move by two columns. Libraries want 8 channels and more. Here two neighbouring
 * columns and two zeros are a vector of 8 numbers, a window has half as many of them in a row, and
 * neighbouring windows begin at neighbouring vectors: rows of the image lie in shared memory once,
 * and matrices of windows by taps are read from there at overlapping places. Sums are f32.
 *
 * Zeros, and pixels beyond a window with an odd number of columns, are no part of a sum: what is
 * not finite is summed again, product by product. Tensors are dense. */
#ifndef RG_OPS_CONV_STEM_CUH
#define RG_OPS_CONV_STEM_CUH

#include "backend/cuda/mma.cuh"
#include "ops/conv/cuda/conv_strategy.cuh"

enum {
    STEM_IN = 3,
    STEM_OUT = 64,      /* channels of windows that a block has */
    STEM_SEGMENT = 128, /* windows of a row that a block has, at most */
    STEM_VLEN = 8,      /* numbers of a vector */
    STEM_BLOCK = 16     /* windows that are multiplied at once */
};

/* A strip: some rows of some columns of windows of one image. */
struct stem_grid {
    int32_t columns, rows;     /* windows of a strip; columns are whole blocks */
    int32_t across, down, all; /* strips in a row of them, in an image, of all images */
    int32_t pairs;             /* vectors of a row of a window, an even number */
    int32_t lines, pitch;      /* rows of the image that a strip sees, vectors of each */
    int32_t raw;               /* vectors of them in memory; 0: too many */
};

/* ---- rows of the image ---- */

/* Six numbers from x[i] on, which need not be aligned to words; all of them exist, and so do words
 * up to number `count`. */
static __device__ __forceinline__ uint4 load_six(const uint16_t *x, int64_t i, int64_t count)
{
    const uint32_t *words = (const uint32_t *)(x + (i & ~(int64_t)1));
    const uint32_t a = words[0], b = words[1], c = words[2];
    if ((i & 1) == 0)
        return make_uint4(a, b, c, 0);
    const uint32_t d = i + 6 < count ? words[3] : x[i + 5];
    return make_uint4(__funnelshift_r(a, b, 16), __funnelshift_r(b, c, 16),
                      __funnelshift_r(c, d, 16), 0);
}

/* Columns `column` and the next of a row, whose column 0 is number `row` of x. */
static __device__ __forceinline__ uint4 load_pair(const uint16_t *x, int64_t row, int32_t column,
                                                  int32_t columns, int64_t count)
{
    const int64_t at = row + column * STEM_IN;
    if (column >= 0 && column + 1 < columns)
        return load_six(x, at, count);
    if (column < -1 || column >= columns)
        return make_uint4(0, 0, 0, 0);
    uint32_t e[STEM_IN];
#pragma unroll
    for (int i = 0; i < STEM_IN; i++)
        e[i] = x[at + i + (column < 0 ? STEM_IN : 0)];
    return column < 0 ? make_uint4(0, e[0] << 16, e[1] | e[2] << 16, 0)
                      : make_uint4(e[0] | e[1] << 16, e[2], 0, 0);
}

struct stem_strip {
    int64_t image;
    int32_t row, column; /* its first window */
};

static __device__ __forceinline__ stem_strip strip_at(const stem_grid &g, int32_t n)
{
    const int32_t line = n / g.across, image = line / g.down;
    return { image, (line - image * g.down) * g.rows, (n - line * g.across) * g.columns };
}

/* The rows of the image that a strip reads, contiguous in memory: numbers `first` to `end` of x. */
struct stem_range {
    int64_t first, end;
    int32_t row; /* the first of its lines, which may lie outside */
};

static __device__ __forceinline__ stem_range range_of(const rg_conv_shape &s, const stem_grid &g,
                                                      const stem_strip &p)
{
    const int32_t rows = (int32_t)s.row.size;
    const int32_t row = p.row * (int32_t)s.row.stride - (int32_t)s.row.before;
    const int32_t from = row < 0 ? 0 : row < rows ? row : rows;
    const int32_t to = row + g.lines < from ? from : row + g.lines < rows ? row + g.lines : rows;
    const int64_t line = s.column.size * STEM_IN, image = p.image * rows;
    return { (image + from) * line, (image + to) * line, row };
}

/* Begins to copy a strip's rows: from the vector on in which they begin. */
static __device__ __forceinline__ void copy_range(const stem_range &r, const uint16_t *x,
                                                  uint4 *raw)
{
    const int64_t first = r.first / STEM_VLEN * STEM_VLEN;
    for (int64_t i = first + (int64_t)threadIdx.x * STEM_VLEN; i < r.end;
         i += (int64_t)blockDim.x * STEM_VLEN) {
        const int64_t left = (r.end - i) * (int64_t)sizeof *x;
        copy_async<16>(raw + (i - first) / STEM_VLEN, x + i, left < 16 ? (int)left : 16);
    }
}

/* All that a strip sees, from x or from its copy. A warp has a line at a time. */
template <bool RAW>
static __device__ __forceinline__ void load_lines(const rg_conv_shape &s, const stem_grid &g,
                                                  const stem_strip &p, const uint16_t *x,
                                                  const uint4 *raw, uint4 *lines)
{
    const stem_range r = range_of(s, g, p);
    const int32_t columns = (int32_t)s.column.size, rows = (int32_t)s.row.size;
    const int64_t count = RAW ? INT64_MAX : s.images * rows * columns * STEM_IN;
    const int64_t image = p.image * rows * columns * STEM_IN;
    const int64_t shift = RAW ? r.first / STEM_VLEN * STEM_VLEN : 0;
    const int32_t column = 2 * p.column - (int32_t)s.column.before;
    for (int32_t i = (int32_t)threadIdx.x / WARP_THREADS; i < g.lines;
         i += (int32_t)blockDim.x / WARP_THREADS) {
        const int32_t row = r.row + i;
        const bool there = row >= 0 && row < rows;
        const int64_t at = image + (int64_t)row * columns * STEM_IN - shift;
        for (int32_t v = (int32_t)threadIdx.x % WARP_THREADS; v < g.pitch; v += 32)
            lines[i * g.pitch + v] = !there ? make_uint4(0, 0, 0, 0)
                                     : RAW  ? load_pair((const uint16_t *)raw, (int32_t)at,
                                                        column + 2 * v, columns, count)
                                            : load_pair(x, at, column + 2 * v, columns, count);
    }
}

/* ---- host side ---- */

/* Vectors of a row of a window, an even number. */
static inline __host__ __device__ int32_t stem_pairs(const rg_conv_shape &s)
{
    return (int32_t)(s.column.window + 3) / 4 * 2;
}

/* Bytes of shared memory that a strip takes, beside `each` for each of its windows. */
static inline size_t stem_bytes(const stem_grid *g, size_t each)
{
    return ((size_t)g->lines * (size_t)g->pitch + (size_t)g->raw) * sizeof(uint4) +
           (size_t)g->rows * (size_t)g->columns * each;
}

/* Strips of at most `rows` rows that fit into STEM_SHARED_BYTES bytes beside `fixed` ones, with a
 * copy of what they see if that fits, too; no rows: there are none. */
enum { STEM_SHARED_BYTES = 98 << 10 }; /* which all devices since 8.0 have */

static inline stem_grid stem_grid_of(const rg_conv_shape *s, int32_t rows, size_t fixed,
                                     size_t each)
{
    stem_grid g = {};
    const int64_t extent = (s->row.window - 1) * s->row.dilation + 1;
    const int64_t line = s->column.size * STEM_IN;
    g.across = (int32_t)ceil_div(s->column.count, STEM_SEGMENT);
    g.columns = (int32_t)ceil_div(ceil_div(s->column.count, g.across), STEM_BLOCK) * STEM_BLOCK;
    g.pairs = stem_pairs(*s);
    g.pitch = g.columns + g.pairs;
    for (int i = 0; i < 2 && g.rows == 0; i++) {
        for (g.rows = rows; g.rows > 0; g.rows /= 2) {
            g.lines = (int32_t)((g.rows - 1) * s->row.stride + extent);
            const int64_t vectors = ceil_div(g.lines * line, STEM_VLEN) + 2;
            g.raw = i == 0 && vectors < STEM_SHARED_BYTES ? (int32_t)vectors : 0;
            if ((i == 1 || g.raw > 0) && stem_bytes(&g, each) + fixed <= STEM_SHARED_BYTES)
                break;
        }
    }
    g.down = g.rows > 0 ? (int32_t)ceil_div(s->row.count, g.rows) : 0;
    g.all = (int32_t)s->images * g.down * g.across;
    return g;
}

/* Whether the shape is a stem that kernels can count, but for their strips. */
static inline bool stem_suits(const rg_conv_call *call)
{
    enum { MAX_VECTORS = 1 << 15 }; /* of weights, whose partial sums are in scratch */
    const rg_conv_shape *s = call->shape;
    const rg_conv_axis *r = &s->row, *c = &s->column;
    if (rg_dtype_size(call->dtype) != 2 || s->groups != 1 || s->in != STEM_IN || c->stride != 2 ||
        c->dilation != 1 || c->window < 2 || c->window > 16 || r->window > 16 || r->stride > 8 ||
        r->dilation > 8 || s->images * r->count * c->count == 0 || s->out > 1 << 16 ||
        s->out * r->window * stem_pairs(*s) > MAX_VECTORS)
        return false;
    const double x = (double)s->images * (double)r->size * (double)c->size;
    const double y = (double)s->images * (double)(r->count + 8) * (double)(c->count + 128);
    const double most = 0x1p28;
    return x < most && y < most && (double)r->size + (double)r->before < most &&
           (double)c->size + (double)c->before < most && r->before > -most && c->before > -most;
}

#endif
