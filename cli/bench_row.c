/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The tensors of a row of `bench`. */
#include "cli/bench_row.h"
#include "cli/bench_limit.h"
#include "cli/cases.h"
#include "cli/guarded.h"
#include "core/shape.h"
#include "runtime/objects.h"

#include <stdio.h>
#include <stdlib.h>

static int64_t bytes_of(const rg_tensor_desc *desc)
{
    return rg_shape_count(desc) * (int64_t)rg_dtype_size(desc->dtype);
}

static int64_t state_bytes(const rg_bench_row *row)
{
    rg_state_slot slots[RG_MAX_STATE];
    const rg_op *op = row->test->op;
    int64_t bytes = 0;
    if (!(row->reads & RG_READS_STATE) || op->state == NULL)
        return 0;
    const int32_t count = op->state(row->desc, row->x_desc, slots);
    for (int32_t i = 0; i < count; i++)
        bytes += bytes_of(&slots[i].desc);
    return bytes;
}

/* Of the forward pass: the state alone, which it writes if the gradient will read it. A case may be
 * timed without one. */
static uint32_t reads_of(const rg_op_test *test, const rg_case *c, bool gradient, const void *desc)
{
    const bool trains = test->op->gradient != NULL && !(c->flags & RG_CASE_FORWARD);
    uint32_t reads = trains ? test->op->reads(desc) : 0;
    if (reads & RG_READS_OR_STATE && c->flags & RG_CASE_STATELESS)
        return gradient ? reads & ~(uint32_t)RG_READS_OR_STATE : 0;
    if (reads & RG_READS_OR_STATE)
        return RG_READS_STATE;
    if (reads & RG_READS_WITH_STATE)
        reads |= RG_READS_STATE;
    return gradient ? reads : reads & RG_READS_STATE;
}

/* The number of the input of that name. */
static rg_status find_input(const rg_bench_row *row, const char *name, int32_t *input)
{
    const char *const *names = rg_op_input_names(row->test->op, row->desc);
    for (*input = 0; *input < row->inputs; (*input)++) {
        if (strcmp(names[*input], name) == 0)
            return RG_OK;
    }
    return rg_fail(RG_UNSUPPORTED, "%s %s has no input '%s'", row->test->op->name, row->c->name,
                   name);
}

/* Whether the row computes the gradient of input i. */
static bool gives(const rg_bench_row *row, int32_t i)
{
    return (row->only < 0 || row->only == i) && rg_op_differentiates(row->test->op, row->desc, i);
}

const char *rg_bench_row_direction(const rg_bench_row *row, char text[16])
{
    if (!row->gradient || row->only < 0)
        return row->gradient ? "gradient" : "forward";
    snprintf(text, 16, "d%s", rg_op_input_names(row->test->op, row->desc)[row->only]);
    return text;
}

/* Products of the row: the gradient of each factor is as much work as forward. */
static int products(const rg_bench_row *row)
{
    return row->gradient ? gives(row, 0) + (row->inputs > 1 && gives(row, 1)) : 1;
}

rg_status rg_bench_row_begin(const rg_op_test *test, const rg_case *c, bool gradient,
                             const char *only, rg_dtype dtype, rg_bench_row *row)
{
    *row = (rg_bench_row){ .test = test, .c = c, .gradient = gradient, .only = -1, .dtype = dtype };
    RG_TRY(rg_case_desc(test->op, c, row->desc));
    RG_TRY(rg_case_shapes(c, dtype, row->x_desc, &row->inputs));
    RG_CHECK(row->inputs == rg_op_inputs(test->op, row->desc), RG_INVALID_ARGUMENT,
             "case '%s' has %d inputs", c->name, row->inputs);
    row->outputs = rg_op_outputs(test->op, row->desc);
    row->gradients = rg_op_gradients(test->op, row->desc);
    RG_TRY(test->op->shapes(row->desc, row->x_desc, row->y_desc));
    for (int32_t i = 0; i < row->inputs && c->flags & RG_CASE_NCHW; i++)
        rg_arrange_nchw(&row->x_desc[i]);
    for (int32_t i = 0; i < row->outputs && c->flags & RG_CASE_NCHW; i++)
        rg_arrange_nchw(&row->y_desc[i]);
    if (only != NULL)
        RG_TRY(find_input(row, only, &row->only));
    row->reads = reads_of(test, c, gradient, row->desc);
    for (int32_t i = 0; i < row->inputs; i++) {
        const int64_t bytes = bytes_of(&row->x_desc[i]);
        const bool read = row->reads & (uint32_t)RG_READS_X << i;
        const bool moves = !gradient || gives(row, i);
        row->bytes += bytes * (read + moves); /* dx, or x in the forward pass */
        row->memory += bytes * (gradient + 1);
    }
    for (int32_t i = 0; i < row->outputs; i++) {
        const int64_t bytes = bytes_of(&row->y_desc[i]);
        const bool read = row->reads & (uint32_t)RG_READS_Y << i;
        row->bytes += bytes * (read + (!gradient || i < row->gradients)); /* dy or, forward, y */
        row->memory += bytes * (gradient + 1);
    }
    const rg_tensor_desc *first = gradient ? &row->y_desc[0] : &row->x_desc[0];
    row->needed = test->needs != NULL ? test->needs(row->desc, row->x_desc, row->y_desc, gradient)
                                      : rg_shape_count(first);
    row->bytes -= (rg_shape_count(first) - row->needed) * (int64_t)rg_dtype_size(first->dtype);
    row->bytes += state_bytes(row);
    row->memory += state_bytes(row);
    if (test->operations != NULL)
        row->operations = products(row) * test->operations(row->desc, row->x_desc);
    return RG_OK;
}

/* ---- values ---- */

/* Writes `pattern` again and again. */
static rg_status repeat(rg_tensor *flat, const void *pattern, int64_t length, rg_dtype dtype)
{
    rg_tensor_desc desc;
    RG_TRY(rg_tensor_get_desc(flat, &desc));
    for (int64_t start = 0; start < desc.dims[0]; start += length) {
        const int64_t rest = desc.dims[0] - start, count = rest < length ? rest : length;
        rg_tensor *piece;
        RG_TRY(rg_tensor_slice(flat, &start, &count, NULL, &piece));
        const rg_status status =
            rg_tensor_write(piece, pattern, (size_t)count * rg_dtype_size(dtype), RG_LAYOUT_SAME);
        rg_tensor_destroy(piece);
        RG_TRY(status);
    }
    return RG_OK;
}

/* A dense tensor, or a view of NCHW memory, as a vector in the order of its memory. */
static rg_status flatten(rg_tensor *tensor, const rg_tensor_desc *desc, rg_tensor **flat)
{
    const int64_t count = rg_shape_count(desc);
    const int32_t last = desc->rank - 1;
    if (rg_shape_is_dense(desc))
        return rg_tensor_reshape(tensor, 1, &count, flat);
    int32_t order[RG_MAX_RANK];
    for (int32_t d = 0; d <= last; d++)
        order[d] = d == last - 2 ? last : d > last - 2 ? d - 1 : d;
    rg_tensor *view;
    RG_TRY(rg_tensor_permute(tensor, order, &view));
    const rg_status status = rg_tensor_reshape(view, 1, &count, flat);
    rg_tensor_destroy(view);
    return status;
}

static rg_status fill(rg_tensor *tensor, const rg_fill *f, const char *seed)
{
    enum { LENGTH = 65521 }; /* a prime: no two rows are alike */
    rg_tensor_desc desc;
    RG_TRY(rg_tensor_get_desc(tensor, &desc));
    /* Each write to a GPU waits for its end: the pattern is handed over many times at once. */
    const int64_t times = rg_bench_on_gpu(rg_tensor_device(tensor)) ? 64 : 1;
    const size_t bytes = LENGTH * rg_dtype_size(desc.dtype);
    char *pattern = malloc((size_t)times * bytes);
    RG_CHECK(pattern != NULL, RG_OUT_OF_MEMORY, "out of memory for the values of a case");
    rg_random random = rg_random_seed(1, seed);
    const bool plain = f->low == 0 && f->high == 0;
    const double low = plain ? -2 : f->low, high = plain ? 2 : f->high;
    for (int64_t i = 0; i < LENGTH; i++) {
        const double u = rg_random_uniform(&random);
        rg_element_set(pattern, desc.dtype, i, f->at != NULL ? f->at(i) : low + (high - low) * u);
    }
    for (int64_t i = 1; i < times; i++)
        memcpy(pattern + (size_t)i * bytes, pattern, bytes);
    rg_tensor *flat = NULL;
    rg_status status = flatten(tensor, &desc, &flat);
    if (status == RG_OK)
        status = repeat(flat, pattern, times * LENGTH, desc.dtype);
    rg_tensor_destroy(flat);
    free(pattern);
    return status;
}

/* ---- tensors ---- */

/* Makes a tensor and has the threads that will use it touch its pages. */
static rg_status make(const rg_bench_row *row, const rg_tensor_desc *desc, rg_tensor **tensor)
{
    rg_commands *commands;
    RG_TRY(rg_tensor_create(rg_kernel_device(row->kernel), desc, tensor));
    RG_TRY(rg_commands_create(row->queue, &commands));
    rg_status status = rg_limit_record(commands, NULL, 0, tensor, 1, false);
    return rg_commands_finish(commands, status);
}

rg_status rg_bench_row_spare(const rg_bench_row *row, const rg_tensor_desc *desc, bool filled,
                             rg_tensor **tensor)
{
    RG_TRY(make(row, desc, tensor));
    return filled ? fill(*tensor, &row->c->x_fill[0], row->test->op->inputs[0]) : RG_OK;
}

static rg_status run_forward(rg_bench_row *row)
{
    rg_commands *commands;
    RG_TRY(rg_commands_create(row->queue, &commands));
    rg_status status = rg_kernel_forward(row->kernel, commands, row->x, row->y, row->state);
    return rg_commands_finish(commands, status);
}

static void drop(rg_tensor **tensor)
{
    rg_tensor_destroy(*tensor);
    *tensor = NULL;
}

/* What is read of x[0] or dy[0]: all of it, or its first elements, as many as are needed. */
static rg_status read_first(rg_bench_row *row, rg_tensor *tensor)
{
    rg_tensor_desc desc;
    RG_TRY(rg_tensor_get_desc(tensor, &desc));
    const int64_t count = rg_shape_count(&desc), start = 0;
    row->read[row->read_count++] = tensor;
    if (row->needed == count)
        return RG_OK;
    rg_tensor *flat;
    RG_TRY(rg_tensor_reshape(tensor, 1, &count, &flat));
    const rg_status status = rg_tensor_slice(flat, &start, &row->needed, NULL, &row->part);
    rg_tensor_destroy(flat);
    row->read[row->read_count - 1] = row->part;
    return status;
}

static rg_status add_state(rg_bench_row *row, rg_tensor *list[], int32_t *count)
{
    for (int32_t i = 0; row->state != NULL && i < rg_state_count(row->state); i++)
        RG_TRY(rg_state_tensor(row->state, rg_state_name(row->state, i), &list[(*count)++]));
    return RG_OK;
}

/* The input that output i takes the place of, or -1: an op without a gradient updates what it is
 * given, as in training. */
static int32_t updated_by(const rg_bench_row *row, int32_t i)
{
    const rg_op *op = row->test->op;
    for (int32_t j = 0; j < row->inputs && op->gradient == NULL; j++)
        if (rg_op_may_alias(op, row->desc, RG_X_AS_Y(j, i)))
            return j;
    return -1;
}

static rg_status make_output(rg_bench_row *row, int32_t i)
{
    const rg_tensor_desc *desc = &row->y_desc[i];
    const int32_t input = updated_by(row, i);
    if (input < 0)
        return make(row, desc, &row->y[i]);
    RG_TRY(make(row, desc, &row->limit[i]));
    return rg_tensor_reshape(row->x[input], desc->rank, desc->dims, &row->y[i]);
}

/* Where the kernel updates x, the loops of the limit update a tensor of their own. */
static rg_status open_forward(rg_bench_row *row)
{
    RG_TRY(read_first(row, row->x[0]));
    for (int32_t i = 1; i < row->inputs; i++)
        row->read[row->read_count++] = row->x[i];
    for (int32_t i = 0; i < row->outputs; i++) {
        if (row->limit[i] != NULL)
            row->read[updated_by(row, i)] = row->limit[i];
        row->written[row->written_count++] = row->limit[i] != NULL ? row->limit[i] : row->y[i];
    }
    return add_state(row, row->written, &row->written_count);
}

static rg_status open_gradient(rg_bench_row *row)
{
    RG_TRY(run_forward(row));
    for (int32_t i = 0; i < row->outputs; i++) {
        if (!(row->reads & (uint32_t)RG_READS_Y << i))
            drop(&row->y[i]);
        if (i < row->gradients) {
            RG_TRY(make(row, &row->y_desc[i], &row->dy[i]));
            RG_TRY(fill(row->dy[i], &row->c->dy_fill, "dy"));
            if (i == 0)
                RG_TRY(read_first(row, row->dy[0]));
            else
                row->read[row->read_count++] = row->dy[i];
        }
        if (row->y[i] != NULL)
            row->read[row->read_count++] = row->y[i];
    }
    for (int32_t i = 0; i < row->inputs; i++) {
        if (!(row->reads & (uint32_t)RG_READS_X << i))
            drop(&row->x[i]);
        else
            row->read[row->read_count++] = row->x[i];
        if (!gives(row, i))
            continue;
        RG_TRY(make(row, &row->x_desc[i], &row->dx[i]));
        row->written[row->written_count++] = row->dx[i];
    }
    return add_state(row, row->read, &row->read_count);
}

rg_status rg_bench_row_open(rg_queue *queue, rg_bench_row *row)
{
    row->queue = queue;
    RG_TRY(rg_kernel_create(queue->device, row->test->op, row->desc, &row->kernel));
    for (int32_t i = 0; i < row->inputs; i++) {
        RG_TRY(make(row, &row->x_desc[i], &row->x[i]));
        RG_TRY(fill(row->x[i], &row->c->x_fill[i], rg_op_input_names(row->test->op, row->desc)[i]));
    }
    for (int32_t i = 0; i < row->outputs; i++)
        RG_TRY(make_output(row, i));
    if (row->reads & RG_READS_STATE)
        RG_TRY(rg_state_create(row->kernel, row->x, &row->state));
    return row->gradient ? open_gradient(row) : open_forward(row);
}

void rg_bench_row_close(rg_bench_row *row)
{
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        drop(&row->x[i]);
        drop(&row->dx[i]);
    }
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++) {
        drop(&row->y[i]);
        drop(&row->dy[i]);
        drop(&row->limit[i]);
    }
    drop(&row->part);
    rg_replay_destroy(row->kept);
    rg_state_destroy(row->state);
    rg_kernel_destroy(row->kernel);
    row->kept = NULL;
    row->state = NULL;
    row->kernel = NULL;
}
