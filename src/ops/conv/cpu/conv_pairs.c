/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording convolutions of bf16 in pairs, where a processor multiplies these. */
#include "core/integer.h"
#include "ops/conv/conv_record.h"

/* ---- rows ---- */

static int64_t pair_depth(int64_t count)
{
    return rg_round_up(count, RG_PAIR_DEPTH);
}

/* Where taps are one run, which alone has to be even, few channels need no zero each: three
 * channels of seven columns take 22 elements, not 28. A unit that reads more gains nothing. */
rg_conv_pair_steps rg_conv_pair_steps_of(const rg_conv_window_axis *column, int64_t depth)
{
    enum { MAX_ODD_CHANNELS = 16 };
    const bool run = column->step == 1 && column->taps > 1;
    const bool odd = run && depth <= MAX_ODD_CHANNELS && rg_pair_unit_best()->step == 2;
    const int64_t pixel = odd ? depth : rg_round_up(depth, 2);
    if (column->step == 1 || column->taps <= 1)
        return (rg_conv_pair_steps){ pixel, pixel, pair_depth(column->taps * pixel) };
    const int64_t tap = pair_depth(pixel);
    return (rg_conv_pair_steps){ pixel, tap, column->taps * tap };
}

/* Where runs are short or results few, most products would be of zeros. */
static bool suits_rows(const rg_conv_rows_args *k)
{
    enum { MIN_RUN = 16, MIN_RESULTS = 8 };
    const int64_t side_by_side = k->column.step == 1 ? k->column.taps : 1;
    return k->row.outputs > 0 && k->column.outputs > 0 &&
           k->row.phases * k->column.phases * k->width >= MIN_RESULTS &&
           side_by_side * k->depth >= MIN_RUN;
}

/* Whether one of the launches of forward or data suits. */
static bool suits_phase(const rg_conv_pass *p)
{
    bool suits = false;
    for (int64_t r = 0; r < rg_conv_phases(p) && !suits; r++) {
        const rg_conv_rows_args k = rg_conv_phase(p, r);
        suits = suits_rows(&k);
    }
    return suits;
}

void rg_conv_cut_pairs(rg_conv_rows_args *k, bool tall)
{
    enum { MIN_ROWS_PER_PASS = 256, SLACK_BYTES = 64 };
    const int64_t depth = k->depth, element = sizeof(uint16_t);
    k->depth = rg_conv_is_joined(k) ? k->pair_steps.pixel : pair_depth(k->pair_steps.pixel);
    rg_conv_cut_rows(k, element);
    k->depth = depth;
    const int64_t block = k->column.block, wide = rg_conv_span(&k->column, block);
    k->rows_per_pass = 1;
    if (tall && k->row.stride == 1 && k->column.stride == 1 && k->row.taps * k->column.taps > 0)
        k->rows_per_pass =
            block >= MIN_ROWS_PER_PASS ? 1 : rg_ceil_div(MIN_ROWS_PER_PASS - block, wide) + 1;
    k->rows_per_pass = rg_min(k->rows_per_pass, k->row.block);
    const int64_t inputs = rg_conv_span(&k->row, k->row.block) * wide * k->pixel;
    k->in_bytes = rg_round_up(inputs * element + SLACK_BYTES, RG_ALIGNMENT);
    k->scratch_bytes =
        k->in_bytes + ((k->rows_per_pass - 1) * wide + block + 2) * RG_CONV_PANEL * 4;
}

/* ---- weights ---- */

/* Planes of an axis: as many as there are different (tap * dilation) % stride. */
static int64_t planes_of(const rg_conv_axis *a)
{
    int64_t planes = 1;
    while (planes < a->window && planes * a->dilation % a->stride != 0)
        planes++;
    return planes;
}

/* Of `rows` rows of windows. */
static rg_conv_pair_layout layout_of_rows(const rg_conv_shape *s, int64_t rows)
{
    const int64_t shift = rg_conv_tap_step(&s->column, s->column.window - 1);
    const int64_t down = rg_conv_tap_step(&s->row, s->row.window - 1);
    rg_conv_pair_layout at = { .columns = rg_ceil_div(s->column.count + shift, 2) * 2,
                               .down = planes_of(&s->row),
                               .across = planes_of(&s->column),
                               .starts = shift > 0 ? 2 : 1,
                               .panels = rg_ceil_div(s->in, RG_CONV_PANEL),
                               .lines = rg_ceil_div(s->out, RG_CONV_PANEL) };
    at.count = pair_depth(rows * at.columns);
    /* Rows without the zeros between them, where the unit takes runs of any length. */
    const int64_t row = rg_round_up(s->column.count, 2);
    const rg_pair_unit *const unit = rg_pair_unit_best();
    at.row_run = row < at.columns && unit != NULL && unit->step == 2 ? row : 0;
    /* An odd number of steps from line to line: lines then fall into different sets of the cache.
     */
    at.y_line = at.count + (at.count % (2 * RG_PAIR_DEPTH) == 0 ? RG_PAIR_DEPTH : 0);
    at.x_plane = at.count + down * at.columns + rg_round_up(shift, 2);
    at.y_group = s->out * at.y_line;
    at.x_group = at.panels * at.down * at.across * at.starts * at.x_plane * RG_CONV_PANEL;
    return at;
}

static rg_conv_pair_layout layout_of(const rg_conv_shape *s)
{
    return layout_of_rows(s, s->row.count);
}

/* Elements of x and dy of an image. */
static double operand_elements(const rg_conv_shape *s, const rg_conv_pair_layout *at)
{
    return (double)s->groups *
           ((double)at->y_group + (double)at->x_group + 2.0 * (double)(at->panels + at->lines));
}

/* Few channels, or few pixels beside the zeros between them, are not worth it. */
static bool suits_weights(const rg_conv_shape *s)
{
    enum { MIN_CHANNELS = 8, MAX_PADDING_FACTOR = 4 };
    const rg_conv_pair_layout at = layout_of(s);
    return s->in >= MIN_CHANNELS && s->out >= MIN_CHANNELS &&
           s->row.count * s->column.count * MAX_PADDING_FACTOR >= at.count;
}

/* About how many images a launch takes: launches are equally long, and take at most MAX_ELEMENTS.
 * With slices, at least half as many images as slices, and ELEMENTS_PER_SUM elements for each sum,
 * because every launch adds to the sums. Without slices, so many that dy and a panel of x, which a
 * thread reads again and again, stay in the L2 cache. */
static int64_t images_per_launch(const rg_conv_pair_partials_args *k, int64_t slices)
{
    enum {
        L2_ELEMENTS = 3 << 18,
        MAX_ELEMENTS = 16 << 20,
        ELEMENTS_PER_SUM = 12,
        MIN_PIXELS = 1024
    }; /* elements */
    const rg_conv_shape *s = &k->shape;
    const int64_t most_images = MAX_ELEMENTS / (int64_t)operand_elements(s, &k->at);
    int64_t most;
    if (slices == 1) {
        const int64_t together = rg_ceil_div(MIN_PIXELS, k->at.count);
        most = L2_ELEMENTS / (k->at.y_group + k->at.x_group / k->at.panels);
        most = rg_max(most, together);
    } else {
        const double sums = (double)(slices * s->groups) * (double)k->sums.group_step;
        const double wanted = ELEMENTS_PER_SUM * sums / operand_elements(s, &k->at);
        most = wanted < (double)most_images ? (int64_t)wanted : most_images;
        most = rg_max(most, slices / 2);
    }
    most = rg_max(rg_min(most, most_images), 1);
    return rg_ceil_div(s->images, rg_ceil_div(s->images, most));
}

/* Images of a launch, slices, channels of a unit. */
static void cut_weights(rg_conv_pair_partials_args *k)
{
    enum { UNITS = 32, CHANNELS = RG_CONV_PAIR_CHANNELS };
    const rg_conv_shape *s = &k->shape;
    rg_conv_partial_sums *sums = &k->sums;
    k->at = layout_of(s);
    sums->in_step = 1;
    sums->tap_step = rg_round_up(s->in, RG_CONV_VECTOR);
    sums->out_step = s->row.window * s->column.window * sums->tap_step;
    sums->group_step = s->out * sums->out_step;
    k->splits = rg_ceil_div(s->out, CHANNELS);
    k->channels = rg_min(s->out, CHANNELS);
    const int64_t slices = rg_ceil_div(UNITS, s->groups * k->splits * k->at.panels);
    k->images = images_per_launch(k, slices);
    rg_conv_cut_slices(sums, s, slices, k->images, sizeof(float));
    sums->has_totals = rg_conv_is_long(s, sums->slices, k->at.count);
}

/* Rows, or images, of a block: runs of the unit that are nearly whole, and operands that stay in
 * the cache with the sums. */
static void cut_blocks(rg_conv_pair_partials_args *k)
{
    enum { BLOCK_ELEMENTS = 128 << 10, MOST_RUNS_OF_BLOCK = 4 };
    const rg_conv_shape *s = &k->shape;
    const int64_t run = rg_pair_unit_best()->run, columns = rg_round_up(s->column.count, 2);
    const int64_t rows_of_run = rg_max(run / columns, 1);
    int64_t rows = rg_min(rows_of_run, s->row.count);
    for (int64_t n = MOST_RUNS_OF_BLOCK; n > 1; n--) {
        const rg_conv_pair_layout at = layout_of_rows(s, n * rows_of_run);
        if (n * rows_of_run <= s->row.count && at.y_group + at.x_group <= BLOCK_ELEMENTS) {
            rows = n * rows_of_run;
            break;
        }
    }
    k->rows = rg_ceil_div(s->row.count, rg_ceil_div(s->row.count, rows));
    k->at = layout_of_rows(s, k->rows);
    const int64_t each = k->at.y_group + k->at.x_group;
    const int64_t of_run = rg_max(run / (s->row.count * columns), 1);
    k->images = k->rows < s->row.count ? 1 : rg_max(rg_min(of_run, BLOCK_ELEMENTS / each), 1);
    k->scratch_bytes = rg_round_up(k->images * each * (int64_t)sizeof(uint16_t), RG_ALIGNMENT);
}

/* By slices, where threads have enough of them, and the sums of one stay in the cache with the
 * operands of a block. */
static bool cut_slices(rg_conv_pair_partials_args *to)
{
    enum {
        UNITS = 32,
        MIN_UNITS = 16,
        SUM_BYTES = 256 << 10,
        PARTIAL_BYTES = 1 << 20,
        SCRATCH_BYTES = 1 << 20
    };
    rg_conv_pair_partials_args k = *to;
    const rg_conv_shape *s = &k.shape;
    const int64_t bytes = k.sums.group_step * (int64_t)sizeof(float);
    if (rg_pair_unit_best()->step != 2 || bytes > SUM_BYTES || s->images * s->groups < MIN_UNITS)
        return false;
    cut_blocks(&k);
    if (k.scratch_bytes > SCRATCH_BYTES)
        return false;
    const int64_t units = UNITS * bytes > PARTIAL_BYTES ? MIN_UNITS : UNITS;
    k.channels = rg_ceil_div(s->out, k.splits);
    rg_conv_cut_slices(&k.sums, s, rg_ceil_div(units, s->groups), s->images, sizeof(float));
    const int64_t of_block = rg_max(k.images * k.rows * k.at.columns, RG_CONV_MIN_WINDOWS);
    const int64_t blocks = rg_ceil_div(rg_ceil_div(s->images, k.sums.slices), k.images) *
                           rg_ceil_div(s->row.count, k.rows);
    k.sums.has_totals = (double)blocks * (double)of_block > RG_SUM_BLOCK;
    *to = k;
    return true;
}

/* ---- which calls ---- */

/* The unit for pairs of bf16 that the device's kernels can use, or NULL. */
static const rg_pair_unit *unit_of(const rg_call *call)
{
    return rg_call_finds(call, RG_CONV_PAIR_ROWS, RG_BF16) ? rg_pair_unit_best() : NULL;
}

static bool accepts(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    const double max_elements = 0x1p26;
    if (rg_conv_dtype(p) != RG_BF16 || !rg_conv_panels_accept(call, p) || unit_of(call) == NULL)
        return false;
    const rg_conv_pair_layout at = layout_of(&p->shape);
    return p->kernel != RG_CONV_WEIGHTS || operand_elements(&p->shape, &at) <= max_elements;
}

/* For forward and data it is enough that one phase suits: the others go without pairs. */
static bool prefers(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    return rg_conv_panels_prefer(call, p) &&
           (p->kernel == RG_CONV_WEIGHTS ? suits_weights(&p->shape) : suits_phase(p));
}

/* ---- launches ---- */

/* x and dy of some images as pairs, and their partial sums. */
static rg_status record_partials(rg_call *call, const rg_conv_pair_partials_args *k,
                                 const rg_conv_pass *p, const rg_tensor *operands,
                                 const rg_tensor *partials)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t images = rg_min(s->images - k->image, k->images);
    const double share = (double)images / (double)s->images;
    const int64_t bytes = (int64_t)(share * (double)(rg_move_bytes(p->x) + rg_move_bytes(p->dy)));
    rg_launch launch = { .kernel = RG_CONV_PAIR_OPERANDS,
                         .dtype = RG_BF16,
                         RG_ARGS(*k),
                         .tensors = { RG_BIND(*k, x, p->x), RG_BIND(*k, dy, p->dy),
                                      RG_BIND(*k, operands, operands),
                                      RG_BIND(*k, partials, partials) } };
    rg_conv_set_cost(&launch, images * s->groups * (k->at.panels + k->at.lines), 2 * bytes, 0);
    RG_TRY(rg_record(call, &launch));
    launch.kernel = RG_CONV_PAIR_PARTIALS;
    rg_conv_set_cost(&launch, k->sums.slices * s->groups * k->splits * k->at.panels, bytes,
                     share * rg_conv_products(s));
    return rg_record(call, &launch);
}

/* All images, some of them with each launch. */
static rg_status record_images(rg_call *call, rg_conv_pair_partials_args *k, const rg_conv_pass *p,
                               const rg_tensor *operands, const rg_tensor *partials)
{
    const int64_t images = p->shape.images;
    double pending = 0; /* elements of k in the block of a slice */
    for (; k->image < images; k->image += k->images) {
        pending += (double)rg_ceil_div(k->images, k->sums.slices) * (double)k->at.count;
        k->ends_block =
            k->sums.has_totals && (pending >= RG_SUM_BLOCK || k->image + k->images >= images);
        RG_TRY(record_partials(call, k, p, operands, partials));
        pending = k->ends_block ? 0 : pending;
        k->add = true;
        k->add_totals |= k->ends_block;
    }
    return rg_conv_record_join(call, p, &k->sums, partials);
}

/* By slices: one launch. */
static rg_status record_slices(rg_call *call, const rg_conv_pair_partials_args *k,
                               const rg_conv_pass *p)
{
    const rg_conv_shape *s = &k->shape;
    rg_tensor *partials;
    RG_TRY(rg_conv_partials(call, p, &k->sums, &partials));
    rg_launch launch = { .kernel = RG_CONV_PAIR_SLICES,
                         .dtype = RG_BF16,
                         RG_ARGS(*k),
                         .tensors = { RG_BIND(*k, x, p->x), RG_BIND(*k, dy, p->dy),
                                      RG_BIND(*k, partials, partials) },
                         .thread_scratch = (size_t)k->scratch_bytes,
                         .thread_scratch_at = RG_POINTER(*k, scratch) };
    rg_conv_set_cost(&launch, k->sums.slices * s->groups,
                     rg_move_bytes(p->x) + rg_move_bytes(p->dy), rg_conv_products(s));
    rg_status status = rg_record(call, &launch);
    if (status == RG_OK)
        status = rg_conv_record_join(call, p, &k->sums, partials);
    rg_tensor_destroy(partials);
    return status;
}

static rg_status record_weights(rg_call *call, const rg_conv_pass *p)
{
    rg_conv_pair_partials_args k = { .shape = p->shape };
    cut_weights(&k);
    if (cut_slices(&k))
        return record_slices(call, &k, p);
    const double size = (double)k.images * operand_elements(&p->shape, &k.at) / 2;
    rg_tensor *partials, *operands = NULL;
    RG_TRY(rg_conv_partials(call, p, &k.sums, &partials));
    rg_status status = rg_conv_temporary(call, RG_BF16, size, &operands);
    if (status == RG_OK)
        status = record_images(call, &k, p, operands, partials);
    rg_tensor_destroy(operands);
    rg_tensor_destroy(partials);
    return status;
}

/* Phases that do not suit go without pairs, unless none suits: then the strategy is forced. */
static rg_status record(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    if (p->kernel == RG_CONV_WEIGHTS)
        return record_weights(call, p);
    const bool is_forced = !suits_phase(p);
    for (int64_t r = 0; r < rg_conv_phases(p); r++) {
        rg_conv_rows_args k = rg_conv_phase(p, r);
        RG_TRY(
            rg_conv_record_rows(call, p, &k, is_forced || suits_rows(&k) ? unit_of(call) : NULL));
    }
    return RG_OK;
}

const rg_strategy rg_conv_by_pairs = { "pairs", accepts, record, prefers };
