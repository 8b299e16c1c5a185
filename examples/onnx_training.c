/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* An ONNX model is trained with batches and a loop of one's own, as with ONNX Runtime's training
 * API, and written as an ONNX model for inference.
 *
 *      onnx_training model.onnx trained.onnx state.safetensors
 *
 * Without arguments a small model as text is trained instead, and nothing is written. The images
 * are noise with a bright stripe, whose place is the class. */
#include <retrograde/retrograde.h>
#include <retrograde/session.h>

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 24, STEPS = 30 };

#define TRY(call)                         \
    do {                                  \
        const rg_status status_ = (call); \
        if (status_ != RG_OK)             \
            return status_;               \
    } while (0)

typedef struct batch {
    rg_tensor *images, *labels;
} batch;

/* Fills a batch: (n, c, h, w) for an ONNX model, (n, h, w, c) for a model as text. */
static rg_status fill(const batch *b, const rg_network_desc *n, bool channels_first, unsigned seed)
{
    const size_t pixels = (size_t)(n->height * n->width * n->channels);
    float *image = malloc(BATCH * pixels * sizeof *image);
    int32_t labels[BATCH];
    if (image == NULL)
        return RG_OUT_OF_MEMORY;
    for (int i = 0; i < BATCH; i++) {
        labels[i] = i % n->classes;
        for (size_t k = 0; k < pixels; k++) {
            const int64_t at = (int64_t)k;
            const int64_t row =
                channels_first ? at / n->width % n->height : at / (n->width * n->channels);
            seed = seed * 1664525u + 1013904223u;
            image[(size_t)i * pixels + k] = (float)(seed >> 8) / (1 << 24) +
                                            (row * n->classes / n->height == labels[i] ? 1.0f : 0);
        }
    }
    rg_status status =
        rg_tensor_write(b->images, image, BATCH * pixels * sizeof *image, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_tensor_write(b->labels, labels, sizeof labels, RG_LAYOUT_SAME);
    free(image);
    return status;
}

/* Two batches for each step: gradients add up until they are reset. */
static rg_status train(rg_session *session, const batch *b, const rg_network_desc *n, bool first)
{
    TRY(rg_session_schedule_linear(session, 4, STEPS + 10));
    for (unsigned step = 0; step < STEPS; step++) {
        double loss = 0;
        for (unsigned part = 0; part < 2; part++) {
            TRY(fill(b, n, first, 2 * step + part));
            TRY(rg_session_train_step(session, b->images, b->labels, &loss));
        }
        TRY(rg_session_schedule_step(session));
        TRY(rg_session_optimizer_step(session));
        TRY(rg_session_reset_gradients(session));
        if (step % 10 == 0)
            printf("step %u: loss %.3f, rate %.5f\n", step, loss, rg_session_rate(session));
    }
    return RG_OK;
}

/* Parameters in one buffer: what federated training sends. Twice as much and back. */
static rg_status move_parameters(rg_session *session)
{
    const int64_t count = rg_session_parameters(session, true);
    float *buffer = malloc((size_t)count * sizeof *buffer);
    rg_status status = buffer != NULL ? RG_OK : RG_OUT_OF_MEMORY;
    if (status == RG_OK)
        status = rg_session_read_parameters(session, true, buffer, count);
    if (status == RG_OK)
        status = rg_session_write_parameters(session, true, buffer, count);
    printf("%lld numbers are trained\n", (long long)count);
    free(buffer);
    return status;
}

static rg_status work(rg_session *session, const rg_session_desc *desc, const batch *b, bool first,
                      char **paths)
{
    double before = 0, after = 0;
    TRY(fill(b, &desc->network, first, 999));
    TRY(rg_session_eval_step(session, b->images, b->labels, &before, NULL));
    TRY(train(session, b, &desc->network, first));
    TRY(fill(b, &desc->network, first, 999));
    TRY(rg_session_eval_step(session, b->images, b->labels, &after, NULL));
    printf("loss before %.3f, after %.3f\n", before, after);
    TRY(move_parameters(session));
    if (paths == NULL)
        return after < before ? RG_OK : RG_INVALID_STATE;
    TRY(rg_session_save(session, paths[1]));
    TRY(rg_session_train_step(session, b->images, b->labels, NULL));
    TRY(rg_session_optimizer_step(session));
    TRY(rg_session_load(session, paths[1])); /* as if that step had not been */
    TRY(rg_session_eval_step(session, b->images, b->labels, &before, NULL));
    TRY(rg_session_export(session, paths[0]));
    return before == after ? RG_OK : RG_INVALID_STATE;
}

static rg_status run(rg_device *device, const char *path, char **paths)
{
    rg_session_desc desc = rg_session_desc_default();
    rg_model *model = NULL;
    rg_session *session = NULL;
    batch b = { NULL, NULL };
    desc.rate = 0.01;
    desc.network.height = desc.network.width = 8;
    desc.network.classes = 4;
    TRY(path != NULL
            ? rg_model_open(path, &model)
            : rg_model_parse("two layers", "conv 6 window=3\nneuron\ndense classes\n", &model));
    rg_status status = rg_model_describe(model, &desc.network);
    if (status == RG_OK)
        status = rg_session_create(device, model, &desc, &session);
    const rg_network_desc *n = &desc.network;
    const int64_t first[] = { BATCH, n->channels, n->height, n->width };
    const int64_t last[] = { BATCH, n->height, n->width, n->channels };
    const rg_tensor_desc images = rg_tensor_desc_dense(RG_F32, 4, path != NULL ? first : last);
    const int64_t rows[] = { BATCH, 1, 1 };
    const rg_tensor_desc labels = rg_tensor_desc_dense(RG_I32, path != NULL ? 1 : 3, rows);
    if (status == RG_OK)
        status = rg_tensor_create(device, &images, &b.images);
    if (status == RG_OK)
        status = rg_tensor_create(device, &labels, &b.labels);
    if (status == RG_OK)
        status = work(session, &desc, &b, path != NULL, paths);
    rg_tensor_destroy(b.images);
    rg_tensor_destroy(b.labels);
    rg_session_destroy(session);
    rg_model_destroy(model);
    return status;
}

int main(int argc, char **argv)
{
    rg_device *device;
    rg_status status = rg_device_create("cpu", NULL, &device);
    if (status == RG_OK) {
        status = argc > 3 ? run(device, argv[1], argv + 2) : run(device, NULL, NULL);
        rg_device_destroy(device);
    }
    if (status != RG_OK)
        fprintf(stderr, "onnx_training: %s\n", rg_error_text());
    return status == RG_OK ? 0 : 1;
}
