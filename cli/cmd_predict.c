/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde predict`: images in, classes and probabilities out. */
#include "cli/cli.h"
#include "cli/print_json.h"
#include "cli/use_checkpoint.h"
#include "core/memory.h"
#include "files/whole_file.h"
#include "train/png_image.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

typedef struct request {
    rg_use_request use;
    int64_t top;
} request;

/* ---- one image, as pixels from 0 to 1 ---- */

static int64_t pixels_of(const rg_network_desc *n)
{
    return n->height * n->width * n->channels;
}

static rg_status take_png(const rg_bytes *bytes, const rg_network_desc *n, double *pixels)
{
    rg_png png;
    RG_TRY(rg_png_begin(&png, bytes->data, bytes->size));
    rg_status status = RG_OK;
    void *raw = NULL;
    const size_t count = (size_t)pixels_of(n);
    if (png.height != n->height || png.width != n->width)
        status = rg_fail(
            RG_INVALID_ARGUMENT, "the image has %lldx%lld pixels, but the network needs %lldx%lld",
            (long long)png.height, (long long)png.width, (long long)n->height, (long long)n->width);
    else if (n->channels != 1 && n->channels != 3)
        status =
            rg_fail(RG_INVALID_ARGUMENT, "the network needs %lld channels; PNG images have 1 or 3",
                    (long long)n->channels);
    if (status == RG_OK)
        status = rg_allocate(allocator, count, &raw);
    if (status == RG_OK)
        status = rg_png_pixels(&png, (int)n->channels, raw);
    for (size_t i = 0; status == RG_OK && i < count; i++)
        pixels[i] = ((const uint8_t *)raw)[i] / 255.0;
    rg_release(allocator, raw, count);
    rg_png_end(&png);
    return status;
}

static rg_status read_png(const char *path, const rg_network_desc *n, double *pixels)
{
    enum { LIMIT = 1 << 28 };
    rg_bytes bytes;
    RG_TRY(rg_file_read(allocator, path, LIMIT, &bytes));
    const rg_status status = take_png(&bytes, n, pixels);
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    rg_bytes_release(allocator, &bytes);
    return status;
}

/* An array of one image: (h, w, c), (h, w) or (1, h, w, c). */
static rg_status read_npy(const char *path, rg_device *device, const rg_network_desc *n,
                          double *pixels)
{
    rg_tensor *tensor;
    rg_tensor_desc desc;
    RG_TRY(rg_tensor_load_npy(device, path, &tensor));
    rg_status status = rg_tensor_get_desc(tensor, &desc);
    int64_t count = 1;
    for (int32_t d = 0; status == RG_OK && d < desc.rank; d++)
        count *= desc.dims[d];
    if (status == RG_OK && count != pixels_of(n))
        status = rg_fail(RG_INVALID_ARGUMENT,
                         "%s: the array has %lld elements, but an image of the network has %lld",
                         path, (long long)count, (long long)pixels_of(n));
    const size_t bytes = status == RG_OK ? (size_t)count * rg_dtype_size(desc.dtype) : 0;
    void *data = NULL;
    if (status == RG_OK)
        status = rg_allocate(allocator, bytes, &data);
    if (status == RG_OK)
        status = rg_tensor_read(tensor, data, bytes, RG_LAYOUT_SAME);
    for (int64_t i = 0; status == RG_OK && i < count; i++)
        pixels[i] = rg_element_get(data, desc.dtype, i) / (desc.dtype == RG_U8 ? 255.0 : 1.0);
    rg_release(allocator, data, bytes);
    rg_tensor_destroy(tensor);
    return status;
}

/* ---- answers ---- */

typedef struct answer {
    float probability;
    int32_t number; /* of the class */
} answer;

static int by_probability(const void *a, const void *b)
{
    const answer *x = a, *y = b;
    if (x->probability != y->probability)
        return x->probability > y->probability ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static void print_answer(const rg_run_state *c, const char *path, answer answers[],
                         const request *q)
{
    const int32_t classes = c->network.classes;
    const int64_t top = q->top < classes ? q->top : classes;
    qsort(answers, (size_t)classes, sizeof *answers, by_probability);
    if (q->use.json) {
        printf("{\"image\":");
        rg_print_json_text(path);
        printf(",\"classes\":[");
    } else {
        printf("%s:", path);
    }
    for (int64_t k = 0; k < top; k++) {
        const int32_t best = answers[k].number;
        const double probability = (double)answers[k].probability;
        if (q->use.json) {
            printf("%s{\"class\":", k > 0 ? "," : "");
            rg_print_json_text(c->class_names[best]);
            printf(",\"number\":%d,\"probability\":%.6g}", best, probability);
        } else {
            printf("%s %s %.2f %%", k > 0 ? "," : "", c->class_names[best], 100 * probability);
        }
    }
    puts(q->use.json ? "]}" : "");
}

static rg_status predict_one(rg_trainer *network, const char *path, const request *q,
                             double *pixels, float *probabilities, answer *answers)
{
    const rg_run_state *c = &network->state;
    const rg_network_desc *n = &c->network;
    const size_t length = strlen(path);
    const bool npy = length > 4 && strcmp(path + length - 4, ".npy") == 0;
    RG_TRY(npy ? read_npy(path, network->device, n, pixels) : read_png(path, n, pixels));
    RG_TRY(rg_trainer_predict_one(network, pixels, probabilities));
    for (int32_t i = 0; i < n->classes; i++) {
        RG_CHECK(!isnan(probabilities[i]), RG_MALFORMED, "%s: the network returns NaN", path);
        answers[i] = (answer){ probabilities[i], i };
    }
    print_answer(c, path, answers, q);
    return RG_OK;
}

static int predict(rg_trainer *network, int count, char **paths, const request *q)
{
    const size_t pixels = (size_t)pixels_of(&network->state.network);
    const size_t classes = (size_t)network->state.network.classes;
    double *numbers = malloc(pixels * sizeof *numbers);
    float *probabilities = malloc(classes * sizeof *probabilities);
    answer *answers = malloc(classes * sizeof *answers);
    rg_status status = RG_OK;
    if (numbers == NULL || probabilities == NULL || answers == NULL)
        status = rg_fail(RG_OUT_OF_MEMORY, "out of memory for an image");
    int result = status == RG_OK ? 0 : rg_failed();
    for (int i = 0; i < count && status == RG_OK; i++) {
        if (predict_one(network, paths[i], q, numbers, probabilities, answers) != RG_OK)
            result = rg_failed(); /* the others may be good */
    }
    free(numbers);
    free(probabilities);
    free(answers);
    return result;
}

int rg_cmd_predict(int argc, char **argv)
{
    request q = { .top = 1 };
    const rg_option top = { "top", RG_OPTION_COUNT, &q.top, "N",
                            "print the N most probable classes (default 1)" };
    int result;
    const int left = rg_use_options(
        &top, &q.use,
        "usage: retrograde predict CHECKPOINT IMAGE... [options]\n\n"
        "Classifies PNG or NPY images and prints the probabilities of the classes.\n",
        argc, argv, &result);
    if (left < 0)
        return result;
    if (left < 2 || q.top < 1)
        return rg_wrong(left < 2 ? "predict needs a checkpoint and at least one image; see --help"
                                 : "--top must be at least 1, not 0");
    rg_trainer *network;
    if (rg_used_network_open(argv[0], &q.use, &network) != RG_OK)
        return rg_failed();
    result = predict(network, left - 1, argv + 1, &q);
    rg_trainer_destroy(network);
    return result;
}
