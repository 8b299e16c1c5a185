/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Training with kernels alone: forward, backward and the update of every layer by hand. The same
 * network as train_graph.c, with the same losses. */
#include "bars.h"

enum { SOURCE, LABELS, SUMS, BENT, POOLED, LOGITS, LOSS, RATE, TENSORS };

typedef struct trainer {
    rg_device *device;
    rg_queue *queue;
    rg_kernel *conv, *relu, *pool, *dense, *loss, *sgd;
    rg_state *winners;                         /* of max pooling */
    rg_tensor *t[TENSORS], *d[TENSORS];        /* values and their gradients */
    rg_tensor *p[PARAMETERS], *dp[PARAMETERS]; /* parameters and theirs */
    rg_tensor *m[PARAMETERS];                  /* momentum */
} trainer;

/* ---- once ---- */

static rg_status make_kernels(trainer *t)
{
    rg_conv_desc conv = rg_conv_desc_default();
    conv.padding.policy = RG_PADDING_SAME;
    const rg_neuron_desc relu = rg_neuron_desc_default();
    const rg_pool_desc pool = rg_pool_desc_default(); /* max, 2x2 */
    const rg_dense_desc dense = rg_dense_desc_default();
    rg_loss_desc loss = rg_loss_desc_default(); /* softmax cross-entropy, mean */
    loss.labels = RG_LOSS_CLASS_LABELS;
    loss.gradient_output = true; /* of the logits, in the same pass */
    rg_sgd_desc sgd = rg_sgd_desc_default();
    sgd.momentum = 0.9;
    TRY(rg_conv_create(t->device, &conv, &t->conv));
    TRY(rg_neuron_create(t->device, &relu, &t->relu));
    TRY(rg_pool_create(t->device, &pool, &t->pool));
    TRY(rg_dense_create(t->device, &dense, &t->dense));
    TRY(rg_loss_create(t->device, &loss, &t->loss));
    return rg_sgd_create(t->device, &sgd, &t->sgd);
}

static rg_status make_tensors(trainer *t)
{
    static const struct {
        rg_dtype dtype;
        int32_t rank;
        int64_t dims[4];
    } shapes[TENSORS] = {
        [SOURCE] = { RG_F32, 4, { IMAGES, SIDE, SIDE, 1 } },
        [LABELS] = { RG_I32, 3, { IMAGES, 1, 1 } },
        [SUMS] = { RG_F32, 4, { IMAGES, SIDE, SIDE, CHANNELS } },
        [BENT] = { RG_F32, 4, { IMAGES, SIDE, SIDE, CHANNELS } },
        [POOLED] = { RG_F32, 4, { IMAGES, SIDE / 2, SIDE / 2, CHANNELS } },
        [LOGITS] = { RG_F32, 4, { IMAGES, 1, 1, CLASSES } },
        [LOSS] = { RG_F32, 0, { 0 } },
        [RATE] = { RG_F32, 0, { 0 } },
    };
    for (int i = 0; i < TENSORS; i++) {
        const rg_tensor_desc desc =
            rg_tensor_desc_dense(shapes[i].dtype, shapes[i].rank, shapes[i].dims);
        TRY(rg_tensor_create(t->device, &desc, &t->t[i]));
        if (i >= SUMS && i <= LOGITS)
            TRY(rg_tensor_create(t->device, &desc, &t->d[i]));
    }
    return rg_state_create(t->pool, &t->t[BENT], &t->winners);
}

static rg_status make_parameters(trainer *t)
{
    for (int i = 0; i < PARAMETERS; i++) {
        const rg_tensor_desc desc = parameter_desc(i);
        const float zeros[MOST] = { 0 };
        float values[MOST];
        const size_t bytes = first_weights(i, values) * sizeof(float);
        TRY(rg_tensor_create(t->device, &desc, &t->p[i]));
        TRY(rg_tensor_create(t->device, &desc, &t->dp[i]));
        TRY(rg_tensor_create(t->device, &desc, &t->m[i]));
        TRY(rg_tensor_write(t->p[i], values, bytes, RG_LAYOUT_SAME));
        TRY(rg_tensor_write(t->m[i], zeros, bytes, RG_LAYOUT_SAME));
    }
    return RG_OK;
}

static rg_status write_data(trainer *t)
{
    static float images[IMAGES][SIDE][SIDE];
    int32_t labels[IMAGES];
    const float rate = 0.05f;
    draw_bars(images, labels);
    TRY(rg_tensor_write(t->t[SOURCE], images, sizeof images, RG_LAYOUT_SAME));
    TRY(rg_tensor_write(t->t[LABELS], labels, sizeof labels, RG_LAYOUT_SAME));
    return rg_tensor_write(t->t[RATE], &rate, sizeof rate, RG_LAYOUT_SAME);
}

/* ---- every step ---- */

/* [forward] */
static rg_status forward(trainer *t, rg_commands *c)
{
    rg_tensor *const *v = t->t, *const *p = t->p;
    TRY(rg_kernel_forward(t->conv, c, (rg_tensor *[]){ v[SOURCE], p[W1], p[B1] }, &v[SUMS], NULL));
    TRY(rg_kernel_forward(t->relu, c, &v[SUMS], &v[BENT], NULL));
    TRY(rg_kernel_forward(t->pool, c, &v[BENT], &v[POOLED], t->winners));
    TRY(rg_kernel_forward(t->dense, c, (rg_tensor *[]){ v[POOLED], p[W2], p[B2] }, &v[LOGITS],
                          NULL));
    return rg_kernel_forward(t->loss, c, (rg_tensor *[]){ v[LOGITS], v[LABELS] },
                             (rg_tensor *[]){ v[LOSS], t->d[LOGITS] }, NULL);
}
/* [end] */

/* [backward] */
static rg_status backward(trainer *t, rg_commands *c)
{
    rg_tensor *const *v = t->t, *const *d = t->d, *const *p = t->p, *const *dp = t->dp;
    TRY(rg_kernel_gradient(t->dense, c, &d[LOGITS], (rg_tensor *[]){ v[POOLED], p[W2], p[B2] },
                           NULL, NULL, (rg_tensor *[]){ d[POOLED], dp[W2], dp[B2] }, 0));
    TRY(rg_kernel_gradient(t->pool, c, &d[POOLED], NULL, NULL, t->winners, &d[BENT], 0));
    TRY(rg_kernel_gradient(t->relu, c, &d[BENT], &v[SUMS], NULL, NULL, &d[SUMS], 0));
    return rg_kernel_gradient(t->conv, c, &d[SUMS], (rg_tensor *[]){ v[SOURCE], p[W1], p[B1] },
                              NULL, NULL, (rg_tensor *[]){ NULL, dp[W1], dp[B1] }, 0);
}
/* [end] */

/* [update] */
static rg_status update(trainer *t, rg_commands *c)
{
    for (int i = 0; i < PARAMETERS; i++)
        TRY(rg_kernel_forward(t->sgd, c, (rg_tensor *[]){ t->p[i], t->dp[i], t->m[i], t->t[RATE] },
                              (rg_tensor *[]){ t->p[i], t->m[i] }, NULL));
    return RG_OK;
}
/* [end] */

/* [step] */
static rg_status step(trainer *t, rg_commands *c, float *loss)
{
    TRY(forward(t, c));
    TRY(backward(t, c));
    TRY(update(t, c));
    TRY(rg_commands_commit(c));
    TRY(rg_commands_wait(c));
    return rg_tensor_read(t->t[LOSS], loss, sizeof *loss, RG_LAYOUT_SAME);
}
/* [end] */

static rg_status train(trainer *t, float losses[STEPS])
{
    TRY(rg_device_create("cpu", NULL, &t->device));
    TRY(rg_queue_create(t->device, &t->queue));
    TRY(make_kernels(t));
    TRY(make_tensors(t));
    TRY(make_parameters(t));
    TRY(write_data(t));
    return take_steps(t, t->queue, step, losses);
}

static void release(trainer *t) /* NULL is fine: what was not made is not given back */
{
    rg_kernel *const kernels[] = { t->conv, t->relu, t->pool, t->dense, t->loss, t->sgd };
    for (int i = 0; i < 6; i++)
        rg_kernel_destroy(kernels[i]);
    for (int i = 0; i < TENSORS; i++) {
        rg_tensor_destroy(t->t[i]);
        rg_tensor_destroy(t->d[i]);
    }
    for (int i = 0; i < PARAMETERS; i++) {
        rg_tensor_destroy(t->p[i]);
        rg_tensor_destroy(t->dp[i]);
        rg_tensor_destroy(t->m[i]);
    }
    rg_state_destroy(t->winners);
    rg_queue_destroy(t->queue);
    rg_device_destroy(t->device);
}

int main(void)
{
    trainer t = { .device = NULL };
    float losses[STEPS] = { 0 };
    const rg_status status = train(&t, losses);
    const int result = report(status, losses);
    release(&t);
    return result;
}
