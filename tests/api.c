/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The tools of the API tests: see api.h. */
#include "tests/api.h"

uint32_t draw(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33);
}

int64_t draw_from(uint64_t *seed, int64_t low, int64_t high)
{
    return low + (int64_t)(draw(seed) % (uint64_t)(high - low + 1));
}

/* ---- a device, a queue, commands ---- */

rig rig_open(int32_t threads)
{
    rig r = { 0 };
    rg_device_options options = rg_device_options_default();
    options.threads = threads;
    EXPECT_OK(rg_device_create("cpu", &options, &r.device));
    EXPECT_OK(rg_queue_create(r.device, &r.queue));
    EXPECT_OK(rg_commands_create(r.queue, &r.commands));
    return r;
}

void rig_renew(rig *r)
{
    rg_commands_destroy(r->commands);
    EXPECT_OK(rg_commands_create(r->queue, &r->commands));
}

rg_status rig_run(rig *r)
{
    rg_status status = rg_commands_commit(r->commands);
    if (status == RG_OK)
        status = rg_commands_wait(r->commands);
    rig_renew(r);
    return status;
}

void rig_close(rig *r)
{
    rg_commands_destroy(r->commands);
    rg_queue_destroy(r->queue);
    rg_device_destroy(r->device);
}

/* ---- tensors ---- */

int64_t count_of(const rg_tensor *tensor)
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(tensor, &desc));
    int64_t count = 1;
    for (int32_t d = 0; d < desc.rank; d++)
        count *= desc.dims[d];
    return count;
}

size_t bytes_of(const rg_tensor *tensor)
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(tensor, &desc));
    return (size_t)count_of(tensor) * rg_dtype_size(desc.dtype);
}

rg_tensor *tensor_of(rg_device *device, rg_dtype dtype, int32_t rank, const int64_t dims[])
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(dtype, rank, dims);
    rg_tensor *tensor = NULL;
    EXPECT_OK(rg_tensor_create(device, &desc, &tensor));
    return tensor;
}

void fill(rg_tensor *tensor, uint64_t seed)
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(tensor, &desc));
    const size_t count = (size_t)count_of(tensor);
    double *values = calloc(count + 1, sizeof *values);
    void *data = calloc(count + 1, 8);
    for (size_t i = 0; i < count; i++)
        values[i] = (double)draw(&seed) / 0x1p29 - 2;
    EXPECT_OK(rg_convert(data, desc.dtype, values, RG_F64, count));
    EXPECT_OK(rg_tensor_write(tensor, data, bytes_of(tensor), RG_LAYOUT_SAME));
    free(values);
    free(data);
}

rg_tensor *filled(rg_device *device, rg_dtype dtype, int32_t rank, const int64_t dims[],
                  uint64_t seed)
{
    rg_tensor *tensor = tensor_of(device, dtype, rank, dims);
    fill(tensor, seed);
    return tensor;
}

char *elements_of(const rg_tensor *tensor)
{
    char *data = calloc(1, bytes_of(tensor) + 1);
    EXPECT_OK(rg_tensor_read(tensor, data, bytes_of(tensor), RG_LAYOUT_SAME));
    return data;
}

bool same_bits(const rg_tensor *a, const rg_tensor *b)
{
    char *in_a = elements_of(a), *in_b = elements_of(b);
    const bool same = bytes_of(a) == bytes_of(b) && memcmp(in_a, in_b, bytes_of(a)) == 0;
    free(in_a);
    free(in_b);
    return same;
}

/* ---- kernels ---- */

rg_kernel *softmax_of(rg_device *device, rg_softmax_kind kind, int64_t axis)
{
    rg_softmax_desc desc = rg_softmax_desc_default();
    desc.kind = kind;
    desc.axis = axis;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_softmax_create(device, &desc, &kernel));
    return kernel;
}
