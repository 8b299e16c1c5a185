/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Prediction of the image in a file, PNG or NPY. */
#include "train/png_image.h"
#include "train/trainer.h"

#include "files/whole_file.h"

#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

static int64_t pixels_of(const rg_network_desc *n)
{
    return n->height * n->width * n->channels;
}

static rg_status predict_pixels(rg_trainer *trainer, const rg_png *png, float probabilities[])
{
    const rg_network_desc *n = &trainer->state.network;
    const size_t count = (size_t)pixels_of(n);
    void *pixels;
    RG_CHECK(png->height == n->height && png->width == n->width, RG_INVALID_ARGUMENT,
             "the image has %lldx%lld pixels, but the network needs %lldx%lld",
             (long long)png->height, (long long)png->width, (long long)n->height,
             (long long)n->width);
    RG_CHECK(n->channels == 1 || n->channels == 3, RG_INVALID_ARGUMENT,
             "the network needs %lld channels; PNG images have 1 or 3", (long long)n->channels);
    RG_TRY(rg_allocate(allocator, count, &pixels));
    rg_status status = rg_png_pixels(png, (int)n->channels, pixels);
    if (status == RG_OK)
        status = rg_trainer_predict(trainer, pixels, RG_U8, 1, probabilities);
    rg_release(allocator, pixels, count);
    return status;
}

static rg_status predict_png(rg_trainer *trainer, const char *path, float probabilities[])
{
    enum { LIMIT = 1 << 28 };
    rg_bytes bytes;
    rg_png png;
    RG_TRY(rg_file_read(allocator, path, LIMIT, &bytes));
    rg_status status = rg_png_begin(&png, bytes.data, bytes.size);
    if (status == RG_OK) {
        status = predict_pixels(trainer, &png, probabilities);
        rg_png_end(&png);
    }
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    rg_bytes_release(allocator, &bytes);
    return status;
}

/* The elements of a dense tensor of one image. */
static rg_status predict_tensor(rg_trainer *trainer, const char *path, const rg_tensor *tensor,
                                float probabilities[])
{
    const int64_t wanted = pixels_of(&trainer->state.network);
    rg_tensor_desc desc;
    int64_t count = 1;
    void *data;
    RG_TRY(rg_tensor_get_desc(tensor, &desc));
    for (int32_t d = 0; d < desc.rank; d++)
        count *= desc.dims[d];
    RG_CHECK(count == wanted, RG_INVALID_ARGUMENT,
             "%s: the array has %lld elements, but an image of the network has %lld", path,
             (long long)count, (long long)wanted);
    const size_t bytes = (size_t)count * rg_dtype_size(desc.dtype);
    RG_TRY(rg_allocate(allocator, bytes, &data));
    rg_status status = rg_tensor_read(tensor, data, bytes, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_trainer_predict(trainer, data, desc.dtype, 1, probabilities);
    rg_release(allocator, data, bytes);
    return status;
}

static rg_status predict_npy(rg_trainer *trainer, const char *path, float probabilities[])
{
    rg_tensor *tensor;
    RG_TRY(rg_tensor_load_npy(trainer->device, path, &tensor));
    const rg_status status = predict_tensor(trainer, path, tensor, probabilities);
    rg_tensor_destroy(tensor);
    return status;
}

rg_status rg_trainer_predict_file(rg_trainer *trainer, const char *path, float probabilities[])
{
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(path);
    RG_CHECK_NOT_NULL(probabilities);
    const size_t length = strlen(path);
    const bool npy = length > 4 && strcmp(path + length - 4, ".npy") == 0;
    return npy ? predict_npy(trainer, path, probabilities)
               : predict_png(trainer, path, probabilities);
}
