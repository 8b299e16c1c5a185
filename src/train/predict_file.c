/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Prediction of the image in a file, PNG, JPEG, WebP or NPY. */
#include "train/dataset.h"
#include "train/image_file.h"
#include "train/trainer.h"

#include "files/whole_file.h"

#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

static int64_t pixels_of(const rg_network_desc *n)
{
    return n->height * n->width * n->channels;
}

/* Networks that were trained on resized images resize those they classify. */
static rg_status check_size(const rg_trainer *trainer, const rg_bytes *bytes)
{
    const rg_network_desc *n = &trainer->state.network;
    rg_image_header header = { 0 };
    bool more;
    RG_TRY(rg_image_read_header(bytes->data, bytes->size, bytes->size, &header, &more));
    RG_CHECK(trainer->state.resize != 0 ||
                 (header.size.height == n->height && header.size.width == n->width),
             RG_INVALID_ARGUMENT, "the image has %lldx%lld pixels, but the network needs %lldx%lld",
             (long long)header.size.height, (long long)header.size.width, (long long)n->height,
             (long long)n->width);
    return RG_OK;
}

static rg_status predict_image(rg_trainer *trainer, const char *path, float probabilities[])
{
    const rg_network_desc *n = &trainer->state.network;
    const rg_image_form form = { .size = { n->height, n->width },
                                 .channels = (int)n->channels,
                                 .resize = trainer->state.resize != 0 };
    const size_t count = (size_t)pixels_of(n);
    rg_decoder decoder = { 0 };
    rg_bytes bytes;
    void *pixels = NULL;
    RG_CHECK(n->channels == 1 || n->channels == 3, RG_INVALID_ARGUMENT,
             "%s: the network needs %lld channels; images have 1 or 3", path,
             (long long)n->channels);
    RG_CHECK(trainer->state.pixels != RG_RANGE_NUMBERS, RG_INVALID_ARGUMENT,
             "%s: the network was trained on numbers that are no pixels; NPY files hold such",
             path);
    RG_TRY(rg_file_read(allocator, path, RG_IMAGE_BYTES, &bytes));
    rg_status status = check_size(trainer, &bytes);
    if (status == RG_OK)
        status = rg_allocate(allocator, count, &pixels);
    if (status == RG_OK)
        status = rg_image_decode(&decoder, bytes.data, bytes.size, &form, pixels);
    if (status == RG_OK)
        status = rg_trainer_predict(trainer, pixels, RG_U8, 1, probabilities);
    if (status != RG_OK)
        rg_path_prefix(path);
    rg_decoder_release(&decoder);
    rg_release(allocator, pixels, count);
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
               : predict_image(trainer, path, probabilities);
}
