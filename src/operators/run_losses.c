/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Runs of ONNX's losses with class weights, and of dropout with a mask. */
#include "core/memory.h"
#include "core/shape.h"
#include "operators/onnx_converters.h"
#include "operators/run.h"
#include "runtime/objects.h"

#include <retrograde/arithmetic.h>
#include <retrograde/dropout.h>
#include <retrograde/loss.h>
#include <retrograde/softmax.h>

/* ---- losses ---- */

/* The weight of each label from that of its class; 0 where it is ignored. Returns their sum. */
static rg_status spread_weights(const rg_run *run, const rg_loss_desc *d, const double classes[],
                                int64_t count, double labels[], int64_t length, double *total)
{
    *total = 0;
    for (int64_t i = 0; i < length; i++) {
        const bool ignored = d->has_ignored && labels[i] == (double)d->ignored;
        RG_CHECK(ignored || (labels[i] >= 0 && labels[i] < (double)count), RG_INVALID_ARGUMENT,
                 "%s: label %g is not the number of one of %lld classes", run->node.type, labels[i],
                 (long long)count);
        labels[i] = ignored ? 0 : classes[(int64_t)labels[i]];
        *total += labels[i];
    }
    return RG_OK;
}

/* Class weights become the op's weights of labels; a mean is divided by their sum. `given` is the
 * input with the weights of classes, `labels` that with labels. */
static rg_status take_weights(rg_run *run, rg_loss_desc *d, int32_t given, int32_t labels,
                              int64_t classes, rg_tensor **weights)
{
    static const char *const reductions[] = { "none", "sum", "mean", NULL };
    const rg_tensor_desc *shape = &run->shapes[labels];
    double *each, *of_classes, total;
    int64_t length, count;
    int32_t reduction;
    RG_TRY(rg_onnx_word(&run->node, "reduction", reductions, &reduction));
    RG_CHECK(run->shapes[given].rank == 1 && run->shapes[given].dims[0] == classes,
             RG_INVALID_ARGUMENT, "%s: %s must have one number for each of %lld classes",
             run->node.type, run->call.inputs[given].name, (long long)classes);
    RG_TRY(rg_run_read(run, run->in[given], &of_classes, &count));
    rg_status status = rg_run_read(run, run->in[labels], &each, &length);
    if (status == RG_OK) {
        status = spread_weights(run, d, of_classes, count, each, length, &total);
        if (status == RG_OK)
            status = rg_run_numbers(run, run->shapes[given].dtype, shape->rank, shape->dims, each,
                                    weights);
        rg_run_release(run, each, length);
    }
    rg_run_release(run, of_classes, count);
    RG_TRY(status);
    d->weights = true;
    d->reduction = (rg_loss_reduction)(reduction == 2 ? RG_LOSS_SUM : reduction);
    if (reduction == 2 && total != 0)
        d->weight = 1 / total;
    return RG_OK;
}

/* The descriptor, the scores (n, d…, c) and weights of labels. `first` is the number of scores. */
static rg_status begin_loss(rg_run *run, int32_t first, rg_loss_desc *d, rg_tensor *x[3])
{
    rg_onnx_node plain = run->node;
    rg_onnx_call call = run->call;
    plain.inputs += first;
    plain.input_count = 2;
    plain.outputs = 1;
    const rg_tensor_desc *scores = &run->shapes[first], *labels = &run->shapes[first + 1];
    RG_TRY(rg_onnx_loss(&plain, &call));
    memcpy(d, call.desc, sizeof *d);
    bool fits = labels->rank == scores->rank - 1 && labels->dims[0] == scores->dims[0];
    for (int32_t i = 1; i < labels->rank && fits && !run->node.nhwc; i++)
        fits = labels->dims[i] == scores->dims[i + 1];
    char left[RG_SHAPE_TEXT], right[RG_SHAPE_TEXT];
    RG_CHECK(fits, RG_INVALID_ARGUMENT,
             "%s: %s is %s and %s is %s; for scores (n, c, d…) labels are (n, d…)", run->node.type,
             run->call.inputs[first].name, rg_shape_text(scores, left),
             run->call.inputs[first + 1].name, rg_shape_text(labels, right));
    RG_TRY(rg_run_arrange(run, run->in[first], RG_ONNX_LAST, &x[0]));
    x[1] = run->in[first + 1];
    x[2] = NULL;
    if (run->in[first + 2] == NULL)
        return RG_OK;
    return take_weights(run, d, first + 2, first + 1, x[0]->desc.dims[x[0]->desc.rank - 1], &x[2]);
}

rg_status rg_run_loss(rg_run *run)
{
    rg_loss_desc d;
    rg_tensor *x[3], *loss, *log_prob;
    RG_TRY(begin_loss(run, 0, &d, x));
    RG_TRY(rg_run_forward(run, &rg_op_loss, &d, x, &loss, NULL));
    RG_TRY(rg_run_give(run, 0, loss));
    if (!rg_run_wants(run, 1))
        return RG_OK;
    rg_softmax_desc softmax = rg_softmax_desc_default();
    softmax.kind = RG_SOFTMAX_LOG;
    RG_TRY(rg_run_unary(run, &rg_op_softmax, &softmax, x[0], &log_prob));
    RG_TRY(rg_run_restore(run, log_prob, RG_ONNX_LAST, &run->shapes[0], &log_prob));
    return rg_run_give(run, 1, log_prob);
}

/* From log_prob: the gradient of the negative log-likelihood, then that of log-softmax. */
rg_status rg_run_loss_gradient(rg_run *run)
{
    rg_loss_desc d;
    rg_softmax_desc softmax = rg_softmax_desc_default();
    rg_tensor *x[3], *dy = run->in[0], *dx[3];
    RG_TRY(begin_loss(run, 1, &d, x));
    if (d.reduction != RG_LOSS_NONE && run->shapes[0].rank > 0) {
        RG_CHECK(rg_shape_count(&run->shapes[0]) == 1, RG_INVALID_ARGUMENT,
                 "%s: dY must be one number, as the loss is", run->node.type);
        RG_TRY(rg_run_reshape(run, dy, 0, run->shapes[0].dims, &dy));
    }
    const rg_run_reads of_loss = { .dy = &dy, .x = x, .wanted = 1 };
    RG_TRY(rg_run_gradient(run, &rg_op_loss, &d, &of_loss, dx));
    softmax.kind = RG_SOFTMAX_LOG;
    const rg_run_reads of_softmax = { .dy = dx, .y = x, .wanted = 1 };
    RG_TRY(rg_run_gradient(run, &rg_op_softmax, &softmax, &of_softmax, dx));
    RG_TRY(rg_run_restore(run, dx[0], RG_ONNX_LAST, &run->shapes[1], &dx[0]));
    return rg_run_give(run, 0, dx[0]);
}

/* ---- dropout ---- */

static rg_status dropout_alone(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_onnx_node alone = *node;
    alone.outputs = 1;
    return rg_onnx_dropout(&alone, call);
}

/* The mask is 1 where dropout of ones is not 0. */
rg_status rg_run_dropout(rg_run *run)
{
    rg_tensor *y, *ones, *zero, *mask;
    const double one = 1, nothing = 0;
    const rg_tensor_desc *x = &run->shapes[0];
    RG_TRY(rg_onnx_finish(&run->node, &run->call, dropout_alone));
    RG_TRY(rg_run_unary(run, &rg_op_dropout, run->call.desc, run->in[0], &y));
    RG_TRY(rg_run_give(run, 0, y));
    if (!rg_run_wants(run, 1))
        return RG_OK;
    rg_arithmetic_desc compare = rg_arithmetic_desc_default();
    compare.kind = RG_ARITHMETIC_COMPARE;
    compare.comparison = RG_COMPARE_NOT_EQUAL;
    RG_TRY(rg_run_numbers(run, x->dtype, 0, NULL, &one, &ones));
    RG_TRY(rg_run_numbers(run, x->dtype, 0, NULL, &nothing, &zero));
    RG_TRY(rg_tensor_expand(ones, x->rank, x->dims, &mask));
    RG_TRY(rg_run_keep(run, mask));
    RG_TRY(rg_run_unary(run, &rg_op_dropout, run->call.desc, mask, &mask));
    RG_TRY(rg_run_forward(run, &rg_op_arithmetic, &compare, (rg_tensor *[]){ mask, zero }, &mask,
                          NULL));
    return rg_run_give(run, 1, mask);
}

/* The bits of a state from a mask of the caller. */
static rg_status fill_mask(rg_run *run, rg_state *state)
{
    rg_tensor *bits;
    double *mask;
    int64_t count;
    void *memory;
    RG_TRY(rg_state_tensor(state, "mask", &bits));
    const size_t bytes = (size_t)rg_shape_count(&bits->desc);
    RG_TRY(rg_run_read(run, run->in[1], &mask, &count));
    rg_status status = rg_allocate_zero(&run->device->allocator, bytes + 1, &memory);
    if (status == RG_OK) {
        uint8_t *packed = memory;
        for (int64_t i = 0; i < count; i++)
            packed[i / 8] |= (uint8_t)((mask[i] != 0) << i % 8);
        status = rg_tensor_write(bits, packed, bytes, RG_LAYOUT_SAME);
        rg_release(&run->device->allocator, memory, bytes + 1);
    }
    rg_run_release(run, mask, count);
    return status;
}

rg_status rg_run_dropout_gradient(rg_run *run)
{
    rg_kernel *kernel;
    rg_state *state;
    rg_tensor *dx;
    char left[RG_SHAPE_TEXT], right[RG_SHAPE_TEXT];
    RG_CHECK(rg_shape_same_dims(&run->shapes[0], &run->shapes[1]), RG_INVALID_ARGUMENT,
             "%s: dY is %s, but mask is %s", run->node.type, rg_shape_text(&run->shapes[0], left),
             rg_shape_text(&run->shapes[1], right));
    const double ratio = rg_onnx_float(&run->node, "ratio");
    RG_CHECK(ratio >= 0 && ratio < 1, RG_INVALID_ARGUMENT,
             "%s: ratio must be at least 0 and less than 1, not %g", run->node.type, ratio);
    ((rg_dropout_desc *)run->call.desc)->keep = 1 - ratio;
    if (ratio == 0) /* ONNX Runtime copies dY then, whatever the mask says */
        return rg_run_give(run, 0, run->in[0]);
    RG_TRY(rg_kernel_create(run->device, &rg_op_dropout, run->call.desc, &kernel));
    rg_status status = rg_state_create(kernel, &run->in[0], &state);
    rg_kernel_destroy(kernel);
    RG_TRY(status);
    status = fill_mask(run, state);
    state->filled = status == RG_OK;
    const rg_run_reads reads = { .dy = run->in, .state = state, .wanted = 1 };
    if (status == RG_OK)
        status = rg_run_gradient(run, &rg_op_dropout, run->call.desc, &reads, &dx);
    rg_state_destroy(state);
    RG_TRY(status);
    return rg_run_give(run, 0, dx);
}
