/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of matrices on the CPU, over the contraction engine. A unit copies a block of a into its
 * thread's scratch, a piece of k at a time, and multiplies it by panels of b, which were packed
 * before, or are packed by the unit itself where no other one needs them. There strides and storage
 * types end; sums stay in `real` until they are complete. */
#include "backend/cpu/long_sum_cpu.h"
#include "backend/cpu/thread_pool.h"
#include "ops/matmul/product_pairs_cpu.h"

#include <string.h>

/* ---- blocks of a, panels of b ---- */

/* to[k][i], ROWS apart. */
RG_OUTLINE void copy_across(real *to, const operand *a, int64_t k, int64_t end, rg_dtype T)
{
    const offsets *const rows = a->lines;
    while (k < end) {
        const segment s = segment_of(a->k, a->t, k, end);
        if (rows->step != 0)
            contract_block(to, ROWS, at(a->data, rows->at[0] + s.at, T), rows->step, rows->count,
                           s.step, s.count, T);
        for (int64_t i = 0; i < rows->count && rows->step == 0; i++)
            contract_load(to + i, ROWS, a->data, rows->at[i] + s.at, s.step, s.count, T);
        to += s.count * ROWS;
        k += s.count;
    }
}

/* panel[k][j] of b(k, j); zero in further columns. */
RG_OUTLINE void pack_panel(real *to, const operand *b, int64_t k, int64_t end, rg_dtype T)
{
    const offsets *const columns = b->lines;
    while (k < end) {
        const segment s = segment_of(b->k, b->t, k, end);
        if (columns->step != 0) {
            contract_pack(to, at(b->data, columns->at[0] + s.at, T), columns->step, columns->count,
                          s.step, s.count, T);
        } else {
            memset(to, 0, (size_t)(s.count * PANEL) * sizeof(real));
            for (int64_t j = 0; j < columns->count; j++)
                contract_load(to + j, PANEL, b->data, columns->at[j] + s.at, s.step, s.count, T);
        }
        to += s.count * PANEL;
        k += s.count;
    }
}

/* Adds b(j, k) to panel[k][j]. */
RG_OUTLINE void add_mirrored(real *to, const rg_product_args *args, const void *b, int64_t column,
                             int64_t width, int64_t k, int64_t end, rg_dtype T)
{
    enum { PIECE = 64 };
    real other[PIECE * PANEL];
    offsets columns;
    find_offsets(&columns, &args->k, 1, column, width);
    for (; k < end; k += PIECE) {
        const int64_t count = least(PIECE, end - k) * PANEL;
        pack_panel(other, &(operand){ b, &columns, &args->n, 0 }, k, least(k + PIECE, end), T);
        for (int64_t i = 0; i < count; i += VLEN, to += VLEN)
            vstore_full(to, 0, RG_REAL, vload_full(to, 0, RG_REAL) + vload_full(other, i, RG_REAL));
    }
}

/* ---- bf16 in pairs: bits instead of numbers ---- */

/* The unit that multiplies them, or NULL. */
RG_INLINE const rg_pair_unit *pairs_of(const rg_product_args *k, const rg_dtype T)
{
    return RG_USES_PAIRS && T == RG_BF16 && k->pairs ? rg_pair_unit_best() : NULL;
}

/* Where an even k begins in a panel: pairs take half as many rows. */
RG_INLINE int64_t panel_at(const rg_product_args *k, int64_t begin, const rg_dtype T)
{
    return (pairs_of(k, T) != NULL ? begin / 2 : begin) * PANEL;
}

#if RG_USES_PAIRS
/* pack_bits of b + its mirror image, rounded to bf16. */
RG_OUTLINE void pack_mirrored_bits(real *panel, const rg_product_args *args, const operand *b,
                                   int64_t column, int64_t k, int64_t end)
{
    enum { PIECE = 64 };
    real sums[PIECE * PANEL];
    uint16_t bits[PIECE * PANEL];
    uint16_t *to = (uint16_t *)(void *)panel;
    const int64_t whole = (end - k) / 2 * 2;
    memset(to + whole * PANEL, 0, (size_t)((pair_depth(end - k) - whole) * PANEL) * sizeof *to);
    for (; k < end; k += PIECE, to += PIECE * PANEL) {
        const int64_t last = least(k + PIECE, end);
        pack_panel(sums, b, k, last, RG_BF16);
        add_mirrored(sums, args, b->data, column, b->lines->count, k, last, RG_BF16);
        for (int64_t i = 0; i < (last - k) * PANEL; i += VLEN)
            vstore_full(bits, i, RG_BF16, vload_full(sums, i, RG_REAL));
        pack_pairs(to, bits, 1, PANEL, PANEL, last - k);
    }
}

#endif

RG_INLINE void make_panel(real *to, const rg_product_args *k, const void *b, const offsets *columns,
                          int64_t column, int64_t begin, int64_t end, const rg_dtype T)
{
    const operand panel = { b, columns, &k->k, 1 };
#if RG_USES_PAIRS
    if (pairs_of(k, T) != NULL) {
        if (k->mirrored)
            pack_mirrored_bits(to, k, &panel, column, begin, end);
        else
            pack_bits(to, &panel, begin, end);
        return;
    }
#endif
    pack_panel(to, &panel, begin, end, T);
    if (k->mirrored)
        add_mirrored(to, k, b, column, columns->count, begin, end, T);
}

/* ---- results ---- */

/* The upper half of a symmetric c from row and column on, and the same as lower half. */
RG_OUTLINE void finish_symmetric(const finish *f, const real *sums, int64_t step, int64_t row,
                                 int64_t column, rg_dtype T)
{
    const rg_product_args *k = f->k;
    const real none = 0;
    offsets rows, columns;
    find_offsets(&columns, &k->m, 1, column, f->columns.count);
    find_offsets(&rows, &k->n, 1, row, f->rows.count);
    for (int64_t i = 0; i < rows.count; i++) {
        const int64_t first = row + i > column ? row + i - column : 0;
        if (first < columns.count)
            finish_line(f,
                        &(line){ sums + i * step + first, 1, &none, true, f->rows.at[i],
                                 &f->columns, first, columns.count - first },
                        T);
    }
    for (int64_t j = 0; j < columns.count; j++) {
        const int64_t count = least(rows.count, column + j - row);
        if (count > 0)
            finish_line(f, &(line){ sums + j, step, &none, true, columns.at[j], &rows, 0, count },
                        T);
    }
}

/* ---- units of the product ---- */

/* A block of rows in one image. */
typedef struct block {
    const rg_product_args *k;
    const char *a, *b;
    const real *panels; /* of the image */
    real *buffer_a, *buffer_b, *sums;
    double *totals; /* of sums longer than a block, at the same offsets; or NULL */
    int64_t row, height, c_step, a_step, depth;
    int64_t first, last; /* columns of the unit, the last one excluded */
    bool rounds;         /* whole panels of sums become bf16 in the tiles */
    offsets rows;        /* of a */
    finish end;
} block;

/* Whether sums from k on are added to those before. */
RG_INLINE bool adds_to_sums(const rg_product_args *k, int64_t begin)
{
    return begin % RG_SUM_BLOCK > 0 || (k->direct_c && k->add);
}

/* A panel that was packed before, from k = begin on. */
RG_INLINE const real *panel_of(const block *t, int64_t column, int64_t begin, const rg_dtype T)
{
    const rg_product_args *k = t->k;
    return t->panels + (column - k->panel * PANEL) * k->k.count + panel_at(k, begin, T);
}

/* A piece of a panel that no other unit needs. */
RG_INLINE void make_own_panel(const block *t, int64_t column, int64_t begin, int64_t end,
                              const rg_dtype T)
{
    const rg_product_args *k = t->k;
    offsets columns;
    find_offsets(&columns, &k->n, 0, column, least(PANEL, k->n.count - column));
    make_panel(t->buffer_b, k, t->b, &columns, column, begin, end, T);
}

#if RG_USES_PAIRS
/* Whether tiles can end what finish_tile would: at most a bias of each column and ReLU. */
RG_INLINE bool rounds_in_tiles(const block *t)
{
    const rg_product_args *k = t->k;
    const bool relu = k->neuron == RG_NEURON_RELU;
    return rg_pair_unit_best()->ends && !k->wide && !k->direct_c && !k->add && !k->symmetric &&
           k->alpha == 1 && (k->neuron == RG_NEURON_NONE || (relu && t->end.neuron.a == 0)) &&
           !(k->has_bias && k->bias_rows) && t->end.rows.step != 0 && k->n.rank <= 1 &&
           (k->n.rank == 0 || k->n.strides[1][0] == 1) && t->totals == NULL;
}

/* Whether tiles can pack a panel on the way: its rows are as they are in b. */
RG_INLINE bool packs_in_tiles(const block *t, int64_t width, int64_t count)
{
    const rg_product_args *k = t->k;
    return rg_pair_unit_best()->ends && !k->mirrored && t->height >= RG_PAIR_PACK_ROWS &&
           width == PANEL && count % 2 == 0 && k->k.rank == 1 && k->n.rank == 1 &&
           k->n.strides[0][0] == 1;
}

/* The sums of a panel over a piece of k, with the rows of bf16 of a. */
RG_OUTLINE void add_pairs(block *t, const uint16_t *a, real *sums, int64_t column, int64_t begin,
                          int64_t end)
{
    const rg_product_args *k = t->k;
    const rg_pair_unit *unit = rg_pair_unit_best();
    const int64_t width = least(PANEL, k->n.count - column), count = end - begin;
    const rg_k_run run = { 0, 0, (count + 1) / 2 * 2 };
    const real *panel = k->packed ? panel_of(t, column, begin, RG_BF16) : t->buffer_b;
    rg_pair_tile tile = { .a = a,
                          .b = (const uint16_t *)(const void *)panel,
                          .c = sums,
                          .runs = &run,
                          .run_count = 1,
                          .a_step = t->a_step,
                          .c_step = t->c_step,
                          .add = adds_to_sums(k, begin),
                          .fetches = k->direct_pairs && column == t->first };
    if (!k->packed && packs_in_tiles(t, width, count)) {
        tile.from_step = k->k.strides[1][0];
        tile.from = (const uint16_t *)(const void *)t->b + column + begin * tile.from_step;
    } else if (!k->packed) {
        make_own_panel(t, column, begin, end, RG_BF16);
    }
    rg_bf16_results results;
    if (t->rounds && width == PANEL && end == k->k.count) {
        load_bias(t->end.column_bias, k, k->has_bias, column, width, RG_BF16);
        results = (rg_bf16_results){
            .bias = k->has_bias ? t->end.column_bias : NULL,
            .to = (uint16_t *)(void *)t->end.c + t->end.rows.at[0] + column,
            .to_step = t->end.rows.step,
            .columns = width,
            .relu = k->neuron == RG_NEURON_RELU,
        };
        tile.results = &results;
    }
    rg_pair_rows(unit, &tile, t->height, width, unit->run);
}
#endif

/* The same; a points to the block's. */
RG_INLINE void add_piece(block *t, const void *a, real *sums, int64_t column, int64_t begin,
                         int64_t end, const rg_dtype T)
{
    const rg_product_args *k = t->k;
    const int64_t width = least(PANEL, k->n.count - column);
    const rg_k_run run = { 0, 0, end - begin };
#if RG_USES_PAIRS
    if (pairs_of(k, T) != NULL) {
        add_pairs(t, a, sums, column, begin, end);
        return;
    }
#endif
    rg_tile tile = { .a = a,
                     .c = sums,
                     .runs = &run,
                     .run_count = 1,
                     .a_step = t->a_step,
                     .b_step = PANEL,
                     .c_step = t->c_step,
                     .add = adds_to_sums(k, begin) };
    if (k->packed) {
        tile.b = panel_of(t, column, begin, T);
        if (column + PANEL < t->last) { /* the next panel comes into the cache meanwhile */
            tile.ahead = (const char *)(tile.b + k->k.count * PANEL);
            tile.ahead_end = tile.ahead + (end - begin) * PANEL * (int64_t)sizeof(real);
        }
    } else if (k->direct_b) {
        tile.b_step = k->k.rank > 0 ? k->k.strides[1][0] : 0;
        tile.b = (const real *)(const void *)t->b + column + begin * tile.b_step;
    } else {
        make_own_panel(t, column, begin, end, T);
        tile.b = t->buffer_b;
    }
    (k->across ? RG_CONTRACT.columns : RG_CONTRACT.rows)(&tile, t->height, width);
}

/* Whether the tiles of a panel have stored its results. */
RG_INLINE bool rounded(const block *t, int64_t column)
{
    return t->rounds && column + PANEL <= t->k->n.count;
}

RG_OUTLINE void finish_panel(block *t, const real *sums, int64_t column, rg_dtype T)
{
    const rg_dtype to = dtype_of_c(t->k, T);
    finish_columns(&t->end, column, least(PANEL, t->k->n.count - column), T);
    if (t->k->symmetric)
        finish_symmetric(&t->end, sums, t->c_step, t->row, column, to);
    else
        finish_tile(&t->end, sums, t->c_step, to);
}

/* A piece of the block's a; it is copied unless it can be read in place. */
RG_INLINE const void *take_a(const block *t, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_product_args *k = t->k;
    const operand a = { t->a, &t->rows, &k->k, 0 };
#if RG_USES_PAIRS
    if (pairs_of(k, T) != NULL && k->direct_pairs)
        return (const uint16_t *)(const void *)t->a + t->rows.at[0] + begin;
    if (pairs_of(k, T) != NULL) {
        copy_rows_of_bits(t->buffer_a, t->a_step, &a, begin, end);
        return t->buffer_a;
    }
#endif
    if (k->direct_a) {
        const int64_t step = k->across ? t->a_step : 1;
        return (const real *)(const void *)t->a + t->rows.at[0] + begin * step;
    }
    if (k->across)
        copy_across(t->buffer_a, &a, begin, end, T);
    else
        copy_rows(t->buffer_a, t->a_step, &a, begin, end, T);
    return t->buffer_a;
}

/* Adds the sums of a panel, which begin at `at`, to their totals when a block of k ends, and takes
 * them back when all have ended. */
RG_OUTLINE void end_blocks(const block *t, int64_t at, int64_t width, int64_t end)
{
    const bool last = end == t->k->k.count, first = end <= RG_SUM_BLOCK;
    for (int64_t m = 0; m < t->height && (last || end % RG_SUM_BLOCK == 0); m++) {
        double *const totals = t->totals + m * t->c_step + at;
        real *const sums = t->sums + m * t->c_step + at;
        add_to_totals(totals, sums, width, first);
        for (int64_t j = 0; last && j < width; j++)
            sums[j] = (real)totals[j];
    }
}

/* The columns of the unit. A panel is finished at once if there is one piece. */
RG_INLINE void product_block(block *t, const rg_dtype T)
{
    const rg_product_args *k = t->k;
    const int64_t first = t->first, last = t->last;
    const bool whole = k->k.count <= DEPTH && !k->direct_c;
    for (int64_t begin = 0; begin < k->k.count || begin == 0; begin += DEPTH) {
        const int64_t end = least(begin + DEPTH, k->k.count);
        const void *a = take_a(t, begin, end, T);
        for (int64_t column = first; column < last; column += PANEL) {
            real *sums = t->sums + (whole ? 0 : k->direct_c ? column : column - first);
            if (k->symmetric && column + PANEL <= t->row)
                continue;
            add_piece(t, a, sums, column, begin, end, T);
            if (t->totals != NULL)
                end_blocks(t, column - first, least(PANEL, k->n.count - column), end);
            if (whole && !rounded(t, column))
                finish_panel(t, sums, column, T);
        }
    }
    for (int64_t column = first; column < last && !whole && !k->direct_c; column += PANEL) {
        if ((!k->symmetric || column + PANEL > t->row) && !rounded(t, column))
            finish_panel(t, t->sums + (column - first), column, T);
    }
}

RG_INLINE void start_block(block *t, const rg_product_args *k, int64_t image, int64_t row,
                           const rg_dtype T)
{
    const rg_product_buffer buffer = rg_product_buffer_of(k);
    int64_t offset[RG_WALK_TENSORS];
    rg_walk_offsets(&k->batch, 3, image, offset);
    t->k = k;
    t->a = at(k->a, offset[0], T);
    t->b = at(k->b, offset[1], T);
    t->panels = (const real *)k->panels + (image - k->image) * k->panel_count * k->k.count * PANEL;
    t->buffer_a = (real *)(void *)((char *)k->scratch + rg_thread_pool_index() * k->thread_bytes);
    t->buffer_b = t->buffer_a + buffer.a;
    t->sums = t->buffer_b + buffer.b;
    t->totals = buffer.totals > 0 ? (double *)(void *)(t->sums + buffer.c) : NULL;
    t->row = row;
    t->height = least(ROWS, k->m.count - row);
    t->c_step = buffer.c_step;
    if (k->direct_c) {
        t->c_step = k->m.rank > 0 ? k->m.strides[1][0] : 0;
        t->sums = (real *)k->c + offset[2] + row * t->c_step;
    }
    const rg_walk *walk = k->across ? &k->k : &k->m;
    const int64_t direct = walk->rank > 0 ? walk->strides[0][0] : 0;
    const bool pairs = pairs_of(k, T) != NULL;
    t->a_step = (pairs ? k->direct_pairs : k->direct_a) ? direct
                : k->across && !pairs                   ? ROWS
                                                        : buffer.depth + RG_PRODUCT_GAP;
    find_offsets(&t->rows, &k->m, 0, row, t->height);
    if (!k->direct_c)
        finish_rows(&t->end, k, at_out(k->c, offset[2], dtype_of_c(k, T)), row, t->height, T);
    t->rounds = false;
#if RG_USES_PAIRS
    t->rounds = pairs && rounds_in_tiles(t);
#endif
}

RG_INLINE void product(const rg_product_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const int64_t width = k->group * PANEL, blocks = (k->m.count + ROWS - 1) / ROWS;
    const int64_t groups = (k->panel_count + k->group - 1) / k->group;
    const int64_t most = least((k->panel + k->panel_count) * PANEL, k->n.count);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = k->panel * PANEL + unit % groups * width;
        const int64_t row = unit / groups % blocks * ROWS;
        block t;
        if (k->symmetric && first + width <= row)
            continue;
        start_block(&t, k, k->image + unit / groups / blocks, row, T);
        t.first = first;
        t.last = least(first + width, most);
        product_block(&t, T);
    }
}

/* ---- panels for all units ---- */

/* Those of a launch. Some adjacent panels at once, so that a page is visited once for all of
 * them. */
RG_INLINE void pack(const rg_product_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    enum { TOGETHER = RG_PACK_PANELS, STEP = 64 };
    const int64_t panels = k->panel_count;
    const int64_t pieces = (k->k.count + RG_PACK_DEPTH - 1) / RG_PACK_DEPTH;
    const int64_t groups = (panels + TOGETHER - 1) / TOGETHER;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit % pieces * RG_PACK_DEPTH;
        const int64_t last = least(first + RG_PACK_DEPTH, k->k.count);
        const int64_t image = unit / pieces / groups, panel = unit / pieces % groups * TOGETHER;
        const int64_t count = least(TOGETHER, panels - panel);
        offsets columns[TOGETHER];
        int64_t offset[RG_WALK_TENSORS];
        rg_walk_offsets(&k->batch, 3, k->image + image, offset);
        const char *b = at(k->b, offset[1], T);
        real *to = (real *)k->panels + (image * panels + panel) * k->k.count * PANEL;
        for (int64_t p = 0; p < count; p++) {
            const int64_t column = (k->panel + panel + p) * PANEL;
            find_offsets(&columns[p], &k->n, 0, column, least(PANEL, k->n.count - column));
        }
        for (int64_t at_ = first; at_ < last; at_ += STEP) {
            for (int64_t p = 0; p < count; p++)
                make_panel(to + p * k->k.count * PANEL + panel_at(k, at_, T), k, b, &columns[p],
                           (k->panel + panel + p) * PANEL, at_, least(at_ + STEP, last), T);
        }
    }
}

RG_KERNEL(product, rg_product_args)
RG_KERNEL(pack, rg_product_args)

RG_CPU_TABLE(product, RG_MATMUL_KERNELS) = {
    [RG_MATMUL_PRODUCT] = RG_ROW(product),
    [RG_MATMUL_PACK] = RG_ROW(pack),
};
