/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tensors: creating, wrapping, reading and writing in both layouts, and what is refused. */
#include "api.h"

static void test_create(rg_device *device)
{
    rg_tensor *t = tensor_of(device, RG_F32, 3, DIMS(2, 3, 5));
    rg_tensor_desc desc;
    EXPECT_OK(rg_tensor_get_desc(t, &desc));
    EXPECT(desc.dtype == RG_F32 && desc.rank == 3 && desc.dims[1] == 3);
    EXPECT(desc.strides[0] == 15 && desc.strides[1] == 5 && desc.strides[2] == 1);
    EXPECT(rg_tensor_bytes(t) == 120 && rg_tensor_device(t) == device);
    EXPECT((uintptr_t)rg_tensor_data(t) % 64 == 0);
    EXPECT(!rg_tensor_is_temporary(t) && rg_tensor_read_count(t) == 0);
    rg_tensor_destroy(t);
    t = tensor_of(device, RG_F64, 0, NULL); /* one element */
    double value = 2.5, back = 0;
    EXPECT(rg_tensor_bytes(t) == 8);
    EXPECT_OK(rg_tensor_write(t, &value, 8, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(t, &back, 8, RG_LAYOUT_SAME));
    EXPECT(back == 2.5);
    rg_tensor_destroy(t);
    t = tensor_of(device, RG_I32, 8, DIMS(1, 2, 1, 3, 1, 2, 1, 2));
    int32_t numbers[24], copy[24] = { 0 };
    for (int i = 0; i < 24; i++)
        numbers[i] = i * i;
    EXPECT_OK(rg_tensor_write(t, numbers, sizeof numbers, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(t, copy, sizeof copy, RG_LAYOUT_SAME));
    EXPECT(memcmp(numbers, copy, sizeof copy) == 0);
    rg_tensor_destroy(t);
    t = tensor_of(device, RG_F16, 3, DIMS(4, 0, 7)); /* empty */
    EXPECT(rg_tensor_bytes(t) == 0);
    EXPECT_OK(rg_tensor_write(t, NULL, 0, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(t, NULL, 0, RG_LAYOUT_NCHW));
    EXPECT_FAILS(rg_tensor_read(t, numbers, 2, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT, "0 bytes");
    rg_tensor_destroy(t);
    rg_tensor_destroy(NULL);
    EXPECT(rg_tensor_data(NULL) == NULL && rg_tensor_bytes(NULL) == 0);
    EXPECT(rg_tensor_device(NULL) == NULL && rg_tensor_read_count(NULL) == 0);
}

static void test_bad_create(rg_device *device)
{
    rg_tensor *t = (rg_tensor *)1;
    rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, DIMS(4));
    EXPECT_FAILS(rg_tensor_create(NULL, &desc, &t), RG_INVALID_ARGUMENT, "device is NULL");
    EXPECT(t == NULL);
    EXPECT_FAILS(rg_tensor_create(device, NULL, &t), RG_INVALID_ARGUMENT, "desc is NULL");
    EXPECT_FAILS(rg_tensor_create(device, &desc, NULL), RG_INVALID_ARGUMENT, "tensor is NULL");
    const rg_tensor_desc bad[] = {
        rg_tensor_desc_dense((rg_dtype)12, 1, DIMS(4)),
        rg_tensor_desc_dense(RG_F32, 9, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1)),
        rg_tensor_desc_dense(RG_F32, 2, DIMS(3, -1)),
        rg_tensor_desc_dense(RG_F32, 2, DIMS(INT64_MAX, 2)),
        rg_tensor_desc_dense(RG_F32, 3, DIMS(INT64_C(1) << 31, INT64_C(1) << 31, 4)),
        rg_tensor_desc_dense(RG_F32, 1, NULL),
        { .dtype = RG_F32, .rank = 1, .dims = { 4 }, .strides = { -1 } },
        { .dtype = RG_F32, .rank = 1, .dims = { 4 }, .strides = { INT64_MAX } },
    };
    float data[4] = { 0 };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        t = (rg_tensor *)1;
        EXPECT_FAILS(rg_tensor_create(device, &bad[i], &t), RG_INVALID_ARGUMENT,
                     "rg_tensor_create");
        EXPECT(t == NULL);
        EXPECT_FAILS(rg_tensor_wrap(device, &bad[i], data, NULL, NULL, &t), RG_INVALID_ARGUMENT,
                     "rg_tensor_wrap");
    }
    EXPECT_FAILS(rg_tensor_get_desc(NULL, &desc), RG_INVALID_ARGUMENT, "tensor is NULL");
}

/* ---- wrapped memory ---- */

static void count_up(void *context)
{
    ++*(int *)context;
}

static void test_wrap(rg_device *device)
{
    _Alignas(8) float data[12];
    for (int i = 0; i < 12; i++)
        data[i] = (float)i;
    int released = 0;
    rg_tensor_desc desc = { .dtype = RG_F32, .rank = 2, .dims = { 2, 3 }, .strides = { 6, 2 } };
    rg_tensor *t = NULL;
    EXPECT_OK(rg_tensor_wrap(device, &desc, data, count_up, &released, &t));
    EXPECT(rg_tensor_data(t) == data && rg_tensor_bytes(t) == 0);
    float values[6];
    EXPECT_OK(rg_tensor_read(t, values, sizeof values, RG_LAYOUT_SAME));
    for (int i = 0; i < 6; i++)
        EXPECT(values[i] == (float)(2 * i));
    rg_tensor *view = NULL;
    EXPECT_OK(rg_tensor_slice(t, DIMS(1, 1), DIMS(1, 2), NULL, &view));
    rg_tensor_destroy(t);
    EXPECT(released == 0); /* the view is a use */
    EXPECT(rg_tensor_data(view) == data + 8);
    rg_tensor_destroy(view);
    EXPECT(released == 1);

    rg_tensor *bad = (rg_tensor *)1;
    EXPECT_FAILS(rg_tensor_wrap(device, &desc, NULL, count_up, &released, &bad),
                 RG_INVALID_ARGUMENT, "data is NULL");
    EXPECT(bad == NULL);
    EXPECT_FAILS(rg_tensor_wrap(device, &desc, (char *)data + 2, count_up, &released, &bad),
                 RG_INVALID_ARGUMENT, "aligned");
    EXPECT_FAILS(rg_tensor_wrap(NULL, &desc, data, count_up, &released, &bad), RG_INVALID_ARGUMENT,
                 "device is NULL");
    EXPECT_FAILS(rg_tensor_wrap(device, NULL, data, count_up, &released, &bad), RG_INVALID_ARGUMENT,
                 "desc is NULL");
    EXPECT_FAILS(rg_tensor_wrap(device, &desc, data, count_up, &released, NULL),
                 RG_INVALID_ARGUMENT, "tensor is NULL");
    EXPECT(released == 1);
    desc.dims[0] = 0; /* empty: no memory is needed */
    EXPECT_OK(rg_tensor_wrap(device, &desc, NULL, count_up, &released, &t));
    rg_tensor_destroy(t);
    EXPECT(released == 2);
}

/* Work in flight is a use too: recorded, and committed without anybody waiting. */
static void test_wrap_in_flight(rig *r)
{
    enum { COUNT = 64 * 1000 };
    float *data = calloc(2 * COUNT, sizeof *data);
    int released = 0;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(64, 1000));
    rg_tensor *x = NULL, *y = NULL;
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, data, count_up, &released, &x));
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, data + COUNT, count_up, &released, &y));
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    for (int i = 0; i < 20; i++)
        EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, NULL));
    rg_tensor_destroy(x);
    EXPECT(released == 0);
    EXPECT_OK(rg_commands_commit(r->commands));
    rg_tensor_destroy(y);
    rg_kernel_destroy(kernel);
    EXPECT_OK(rg_commands_wait(r->commands));
    EXPECT(released == 2);
    EXPECT(data[COUNT] == 0.001f);
    rig_renew(r);

    EXPECT_OK(rg_tensor_wrap(r->device, &desc, data, count_up, &released, &x));
    EXPECT_OK(rg_commands_read(r->commands, x, data + COUNT, COUNT * sizeof *data, RG_LAYOUT_SAME));
    rg_tensor_destroy(x);
    EXPECT(released == 2);
    rig_renew(r); /* dropped before it was committed */
    EXPECT(released == 3);
    free(data);
}

/* ---- layouts ---- */

/* Host index of (n, c, h, w) for element (n, h, w, c). */
static void test_layout_of(rg_device *device, rg_dtype dtype, int32_t rank, const int64_t dims[])
{
    const size_t size = rg_dtype_size(dtype);
    const int64_t n = rank == 4 ? dims[0] : 1;
    const int64_t h = dims[rank - 3], w = dims[rank - 2], c = dims[rank - 1];
    const int64_t count = n * h * w * c;
    const size_t bytes = (size_t)count * size;
    char *tensor_order = calloc(1, bytes + 1), *host_order = calloc(1, bytes + 1);
    char *back = calloc(1, bytes + 1);
    uint64_t seed = 5;
    for (size_t i = 0; i < bytes; i++)
        tensor_order[i] = (char)draw(&seed);
    for (int64_t i = 0; i < count; i++) {
        const int64_t ic = i % c, iw = i / c % w, ih = i / c / w % h, in = i / c / w / h;
        const int64_t at = ((in * c + ic) * h + ih) * w + iw;
        memcpy(host_order + (size_t)at * size, tensor_order + (size_t)i * size, size);
    }
    rg_tensor *t = tensor_of(device, dtype, rank, dims);
    EXPECT_OK(rg_tensor_write(t, host_order, bytes, RG_LAYOUT_NCHW));
    EXPECT(memcmp(rg_tensor_data(t), tensor_order, bytes) == 0);
    EXPECT_OK(rg_tensor_read(t, back, bytes, RG_LAYOUT_NCHW));
    EXPECT(memcmp(back, host_order, bytes) == 0);
    EXPECT_OK(rg_tensor_read(t, back, bytes, RG_LAYOUT_SAME));
    EXPECT(memcmp(back, tensor_order, bytes) == 0);
    rg_tensor_destroy(t);
    free(tensor_order);
    free(host_order);
    free(back);
}

static void test_layouts(rg_device *device)
{
    for (int dtype = 0; dtype < 7; dtype++) {
        test_layout_of(device, (rg_dtype)dtype, 4, DIMS(2, 3, 5, 7));
        test_layout_of(device, (rg_dtype)dtype, 3, DIMS(4, 3, 2));
        test_layout_of(device, (rg_dtype)dtype, 4, DIMS(1, 1, 1, 9));
        test_layout_of(device, (rg_dtype)dtype, 3, DIMS(1, 6, 1));
    }
    rg_tensor *t = tensor_of(device, RG_F32, 2, DIMS(2, 3));
    float data[6] = { 0 };
    EXPECT_FAILS(rg_tensor_read(t, data, sizeof data, RG_LAYOUT_NCHW), RG_INVALID_ARGUMENT, "rank");
    EXPECT_FAILS(rg_tensor_read(t, data, sizeof data, (rg_layout)7), RG_INVALID_ARGUMENT,
                 "layout 7");
    EXPECT_FAILS(rg_tensor_read(t, data, 20, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT, "24 bytes");
    EXPECT_FAILS(rg_tensor_read(t, NULL, 24, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT, "data is NULL");
    EXPECT_FAILS(rg_tensor_read(NULL, data, 24, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT,
                 "tensor is NULL");
    EXPECT_FAILS(rg_tensor_write(t, data, 28, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT, "24 bytes");
    EXPECT_FAILS(rg_tensor_write(t, NULL, 24, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT, "data is NULL");
    EXPECT_FAILS(rg_tensor_write(NULL, data, 24, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT,
                 "tensor is NULL");
    rg_tensor_destroy(t);
    /* Strides that meet: readable, not writable. */
    const rg_tensor_desc twice = {
        .dtype = RG_F32, .rank = 2, .dims = { 2, 2 }, .strides = { 1, 1 }
    };
    EXPECT_OK(rg_tensor_wrap(device, &twice, data, NULL, NULL, &t));
    float four[4];
    EXPECT_OK(rg_tensor_read(t, four, sizeof four, RG_LAYOUT_SAME));
    EXPECT_FAILS(rg_tensor_write(t, four, sizeof four, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT,
                 "overlaps itself");
    rg_tensor_destroy(t);
}

int main(void)
{
    rig r = rig_open(2);
    test_create(r.device);
    test_bad_create(r.device);
    test_wrap(r.device);
    test_wrap_in_flight(&r);
    test_layouts(r.device);
    rig_close(&r);
    return rg_test_report();
}
