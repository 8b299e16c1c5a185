/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A trained network in a program of one's own: reads the weights of a checkpoint and classifies
 * images with kernels alone.
 *
 *      retrograde train --data glyphs --model small --out run
 *      classify_images run/checkpoint.safetensors */
#include <retrograde/dataset.h>
#include <retrograde/retrograde.h>
#include <retrograde/safetensors.h>

#include <stdio.h>
#include <stdlib.h>

enum { IMAGES = 100, SIDE = 28, CLASSES = 10 };

#define TRY(call)                         \
    do {                                  \
        const rg_status status_ = (call); \
        if (status_ != RG_OK)             \
            return status_;               \
    } while (0)

typedef struct network {
    rg_safetensors *file;
    rg_device *device;
    rg_queue *queue;
    rg_commands *commands;
    rg_kernel *conv, *pool, *dense;
} network;

static rg_status open_network(network *n, const char *path)
{
    rg_conv_desc conv = rg_conv_desc_default();
    conv.padding.policy = RG_PADDING_SAME;
    conv.neuron.kind = RG_NEURON_RELU; /* the neuron behind each convolution is part of it */
    const rg_pool_desc pool = rg_pool_desc_default();
    const rg_dense_desc dense = rg_dense_desc_default();
    TRY(rg_safetensors_open(path, &n->file));
    TRY(rg_device_create("cpu", NULL, &n->device));
    TRY(rg_queue_create(n->device, &n->queue));
    TRY(rg_commands_create(n->queue, &n->commands));
    TRY(rg_conv_create(n->device, &conv, &n->conv));
    TRY(rg_pool_create(n->device, &pool, &n->pool));
    return rg_dense_create(n->device, &dense, &n->dense);
}

static void close_network(network *n)
{
    rg_kernel_destroy(n->conv);
    rg_kernel_destroy(n->pool);
    rg_kernel_destroy(n->dense);
    rg_commands_destroy(n->commands);
    rg_queue_destroy(n->queue);
    rg_device_destroy(n->device);
    rg_safetensors_close(n->file);
}

/* A tensor of the checkpoint, by its name. */
static rg_status weight(const network *n, const char *name, rg_tensor **tensor)
{
    size_t index;
    if (rg_safetensors_find(n->file, name, &index))
        return rg_safetensors_load(n->file, index, n->device, tensor);
    fprintf(stderr, "the checkpoint has no tensor %s: it belongs to another network\n", name);
    return RG_MALFORMED;
}

/* Puts the result of a layer in the place of *x. Weights are "<layer>.w" and "<layer>.b". */
static rg_status layer(network *n, const rg_kernel *kernel, const char *name, rg_tensor **x)
{
    rg_tensor *inputs[3] = { *x, NULL, NULL }, *y = NULL;
    rg_status status = RG_OK;
    for (int i = 1; i < rg_kernel_inputs(kernel) && status == RG_OK; i++) {
        char full[64];
        snprintf(full, sizeof full, "%s.%c", name, i == 1 ? 'w' : 'b');
        status = weight(n, full, &inputs[i]);
    }
    if (status == RG_OK)
        status = rg_kernel_forward_alloc(kernel, n->commands, 1, inputs, false, &y, NULL);
    for (int i = 0; i < 3; i++)
        rg_tensor_destroy(inputs[i]); /* what is recorded keeps them alive */
    *x = y;
    return status;
}

/* Pixels from 0 to 1, less their mean and divided by their deviation, as in training. */
static rg_status make_input(const network *n, const rg_dataset *set, rg_tensor **x)
{
    static float pixels[IMAGES][SIDE * SIDE];
    const char *mean = rg_safetensors_metadata(n->file, "mean");
    const char *deviation = rg_safetensors_metadata(n->file, "deviation");
    const rg_tensor_desc desc =
        rg_tensor_desc_dense(RG_F32, 4, (const int64_t[]){ IMAGES, SIDE, SIDE, 1 });
    for (int i = 0; i < IMAGES; i++) {
        const uint8_t *image = rg_dataset_image(set, i);
        for (int k = 0; k < SIDE * SIDE; k++)
            pixels[i][k] = (float)((image[k] / 255.0 - (mean != NULL ? atof(mean) : 0)) /
                                   (deviation != NULL ? atof(deviation) : 1));
    }
    TRY(rg_tensor_create(n->device, &desc, x));
    return rg_tensor_write(*x, pixels, sizeof pixels, RG_LAYOUT_SAME);
}

static rg_status classify(network *n, rg_tensor **x, float logits[IMAGES][CLASSES])
{
    TRY(layer(n, n->conv, "conv1", x));
    TRY(layer(n, n->pool, "", x));
    TRY(layer(n, n->conv, "conv4", x));
    TRY(layer(n, n->pool, "", x));
    TRY(layer(n, n->dense, "dense7", x));
    TRY(rg_commands_commit(n->commands));
    TRY(rg_commands_wait(n->commands));
    return rg_tensor_read(*x, logits, sizeof(float[IMAGES][CLASSES]), RG_LAYOUT_SAME);
}

static int count_right(const rg_dataset *set, float logits[IMAGES][CLASSES])
{
    int right = 0;
    for (int i = 0; i < IMAGES; i++) {
        int best = 0;
        for (int k = 1; k < CLASSES; k++)
            best = logits[i][k] > logits[i][best] ? k : best;
        if (i < 3)
            printf("image %d: label %d, predicted %d\n", i, rg_dataset_label(set, i), best);
        right += best == rg_dataset_label(set, i);
    }
    return right;
}

int main(int argc, char **argv)
{
    static float logits[IMAGES][CLASSES];
    network n = { .file = NULL };
    rg_dataset *set = NULL;
    rg_tensor *x = NULL;
    int right = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: classify_images CHECKPOINT\n");
        return 2;
    }
    rg_status status = open_network(&n, argv[1]);
    if (status == RG_OK)
        status = rg_dataset_open("glyphs", RG_DATASET_TEST, &set);
    if (status == RG_OK)
        status = make_input(&n, set, &x);
    if (status == RG_OK)
        status = classify(&n, &x, logits);
    if (status != RG_OK) {
        fprintf(stderr, "%s\n", rg_error_text());
    } else {
        right = count_right(set, logits);
        printf("%d of %d are correct\n", right, IMAGES);
    }
    rg_tensor_destroy(x);
    rg_dataset_destroy(set);
    close_network(&n);
    return right > IMAGES / 2 ? 0 : 1;
}
