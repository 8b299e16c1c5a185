/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Copies between host and GPU: every dtype and layout, views, temporaries, at once and recorded. */
#include "cuda_rig.h"

static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16, RG_U8, RG_I32, RG_I64 };
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

/* ---- copies ---- */

/* At once, or through commands. */
static void copy(rig *r, rg_tensor *tensor, void *data, rg_layout layout, bool to_host,
                 bool recorded)
{
    const size_t bytes = bytes_of(tensor);
    if (recorded) {
        EXPECT_OK(to_host ? rg_commands_read(r->commands, tensor, data, bytes, layout)
                          : rg_commands_write(r->commands, tensor, data, bytes, layout));
        EXPECT_OK(rig_run(r));
    } else {
        EXPECT_OK(to_host ? rg_tensor_read(tensor, data, bytes, layout)
                          : rg_tensor_write(tensor, data, bytes, layout));
    }
}

static void test_dense(rig *r, bool recorded)
{
    static const int64_t counts[] = { 1, 3, 255, 4096, (1 << 20) + 3 };
    for (size_t i = 0; i < DTYPES * 5; i++) {
        rg_tensor *t = tensor_of(r->device, dtypes[i / 5], 1, &counts[i % 5]);
        const size_t bytes = bytes_of(t);
        char *in = malloc(bytes), *out = calloc(1, bytes);
        draw_bytes(in, bytes, i);
        EXPECT(rg_tensor_bytes(t) == bytes && (uintptr_t)rg_tensor_data(t) % 64 == 0);
        copy(r, t, in, RG_LAYOUT_SAME, false, recorded);
        copy(r, t, out, RG_LAYOUT_SAME, true, recorded);
        EXPECT(memcmp(in, out, bytes) == 0);
        free(in);
        free(out);
        rg_tensor_destroy(t);
    }
    rg_tensor *scalar = tensor_of(r->device, RG_F64, 0, NULL);
    double in = 2.5, out = 0;
    copy(r, scalar, &in, RG_LAYOUT_SAME, false, recorded);
    copy(r, scalar, &out, RG_LAYOUT_SAME, true, recorded);
    EXPECT(out == 2.5);
    rg_tensor_destroy(scalar);
}

/* The offset of element i in the order of the host, in elements. */
static int64_t place_of(const rg_tensor_desc *desc, rg_layout layout, int64_t i)
{
    static const int32_t planes[2][4] = { { 2, 0, 1 }, { 0, 3, 1, 2 } }; /* (c, h, w) first */
    int64_t place = 0;
    for (int32_t d = desc->rank - 1; d >= 0; d--) {
        const int32_t from = layout == RG_LAYOUT_NCHW ? planes[desc->rank - 3][d] : d;
        place += i % desc->dims[from] * desc->strides[from];
        i /= desc->dims[from];
    }
    return place;
}

/* Copies the elements of a view between `whole`, a host copy of all that `of` holds, and `host`. */
static void model(char *whole, const rg_tensor *of, const rg_tensor *view, char *host,
                  rg_layout layout, bool to_host)
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(view, &desc));
    const size_t element = rg_dtype_size(desc.dtype);
    char *first = whole + ((char *)rg_tensor_data(view) - (char *)rg_tensor_data(of));
    const int64_t count = count_of(view);
    for (int64_t i = 0; i < count; i++) {
        char *at = first + (size_t)place_of(&desc, layout, i) * element;
        memcpy(to_host ? host + (size_t)i * element : at, to_host ? at : host + (size_t)i * element,
               element);
    }
}

/* Reads and writes a view of `of` and compares with the model; destroys the view. */
static void expect_view(rig *r, rg_tensor *of, rg_tensor *view, rg_layout layout, bool recorded,
                        bool writes)
{
    const size_t all = bytes_of(of), part = bytes_of(view);
    char *whole = malloc(all), *now = malloc(all), *got = calloc(1, part), *want = malloc(part);
    draw_bytes(whole, all, 1);
    EXPECT_OK(rg_tensor_write(of, whole, all, RG_LAYOUT_SAME));
    copy(r, view, got, layout, true, recorded);
    model(whole, of, view, want, layout, true);
    EXPECT(memcmp(got, want, part) == 0);
    if (writes) {
        draw_bytes(got, part, 2);
        copy(r, view, got, layout, false, recorded);
        model(whole, of, view, got, layout, false);
        EXPECT_OK(rg_tensor_read(of, now, all, RG_LAYOUT_SAME));
        EXPECT(memcmp(now, whole, all) == 0); /* and nothing else was written */
    }
    free(whole);
    free(now);
    free(got);
    free(want);
    rg_tensor_destroy(view);
}

static void test_views(rig *r, rg_dtype dtype, rg_layout layout, bool recorded)
{
    rg_tensor *t = tensor_of(r->device, dtype, 4, DIMS(3, 8, 6, 5)), *view = NULL;
    expect_view(r, t, sliced(t, DIMS(0, 0, 0, 0), DIMS(3, 8, 6, 5), NULL), layout, recorded, true);
    expect_view(r, t, sliced(t, DIMS(1, 2, 1, 3), DIMS(2, 5, 4, 2), NULL), layout, recorded, true);
    expect_view(r, t, sliced(t, DIMS(0, 1, 0, 0), DIMS(2, 3, 3, 2), DIMS(2, 2, 2, 4)), layout,
                recorded, true);
    expect_view(r, t, sliced(t, DIMS(2, 7, 5, 4), DIMS(1, 1, 1, 1), NULL), layout, recorded, true);
    expect_view(r, t, permuted(t, ORDER(3, 1, 0, 2)), layout, recorded, true);
    expect_view(r, t, permuted(t, ORDER(0, 3, 1, 2)), layout, recorded, true);
    rg_tensor *inner = sliced(t, DIMS(0, 3, 0, 1), DIMS(3, 2, 6, 3), DIMS(1, 3, 1, 1));
    expect_view(r, t, permuted(inner, ORDER(2, 0, 3, 1)), layout, recorded, true);
    rg_tensor_destroy(inner);
    inner = sliced(t, DIMS(1, 0, 2, 0), DIMS(1, 8, 1, 5), NULL);
    EXPECT_OK(rg_tensor_expand(inner, 4, DIMS(4, 8, 3, 5), &view));
    expect_view(r, t, view, layout, recorded, false);
    rg_tensor_destroy(inner);
    rg_tensor_destroy(t);

    t = tensor_of(r->device, dtype, 3, DIMS(4, 7, 3)); /* (h, w, c) */
    expect_view(r, t, permuted(t, ORDER(0, 1, 2)), layout, recorded, true);
    expect_view(r, t, sliced(t, DIMS(1, 0, 1), DIMS(2, 4, 2), DIMS(1, 2, 1)), layout, recorded,
                true);
    rg_tensor_destroy(t);
}

/* As many dimensions as there can be, and more elements than one grid has threads. */
static void test_large_views(rig *r)
{
    rg_tensor *t = tensor_of(r->device, RG_I32, 8, DIMS(2, 3, 1, 2, 2, 3, 2, 2));
    expect_view(r, t, permuted(t, ORDER(7, 5, 2, 6, 0, 3, 1, 4)), RG_LAYOUT_SAME, false, true);
    expect_view(r, t, permuted(t, ORDER(6, 5, 4, 3, 2, 1, 0, 7)), RG_LAYOUT_SAME, true, true);
    rg_tensor_destroy(t);
    t = tensor_of(r->device, RG_U8, 2, DIMS(4097, 4099));
    expect_view(r, t, permuted(t, ORDER(1, 0)), RG_LAYOUT_SAME, true, true);
    rg_tensor_destroy(t);
}

/* The same bytes, written down. */
static void test_planes(rig *r)
{
    rg_tensor *image = tensor_of(r->device, RG_U8, 3, DIMS(2, 1, 3)); /* (h, w, c) */
    const unsigned char planes[6] = { 1, 2, 3, 4, 5, 6 };             /* (c, h, w) */
    unsigned char back[6] = { 0 }, same[6] = { 0 };
    EXPECT_OK(rg_commands_write(r->commands, image, planes, 6, RG_LAYOUT_NCHW));
    EXPECT_OK(rg_commands_read(r->commands, image, back, 6, RG_LAYOUT_NCHW));
    EXPECT_OK(rg_commands_read(r->commands, image, same, 6, RG_LAYOUT_SAME));
    EXPECT(back[0] == 0); /* recording does no work */
    EXPECT_OK(rig_run(r));
    EXPECT(memcmp(back, planes, 6) == 0);
    EXPECT(memcmp(same, (const unsigned char[]){ 1, 3, 5, 2, 4, 6 }, 6) == 0);
    rg_tensor_destroy(image);
}

/* Many in one list: they share the heap with each other and with what strided copies need. */
static void test_temporaries(rig *r)
{
    enum { ROUNDS = 20, COUNT = 4 * 5 * 6 };
    static float in[ROUNDS][COUNT], transposed[ROUNDS][COUNT], planes[ROUNDS][COUNT];
    static float back[ROUNDS][COUNT];
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 3, DIMS(4, 5, 6));
    for (int i = 0; i < ROUNDS; i++) {
        rg_tensor *t = NULL, *u = NULL;
        draw_floats(in[i], COUNT, (uint64_t)i);
        EXPECT_OK(rg_tensor_create_temporary(r->commands, &desc, &t));
        EXPECT_OK(rg_tensor_set_read_count(t, 2));
        EXPECT_OK(rg_commands_write(r->commands, t, in[i], sizeof in[i], RG_LAYOUT_SAME));
        rg_tensor *view = permuted(t, ORDER(2, 0, 1));
        EXPECT_OK(rg_commands_read(r->commands, view, transposed[i], sizeof in[i], RG_LAYOUT_SAME));
        EXPECT_OK(rg_commands_read(r->commands, t, planes[i], sizeof in[i], RG_LAYOUT_NCHW));
        EXPECT(rg_tensor_read_count(t) == 0);
        EXPECT_OK(rg_tensor_create_temporary(r->commands, &desc, &u));
        EXPECT_OK(rg_commands_write(r->commands, u, in[i], sizeof in[i], RG_LAYOUT_NCHW));
        EXPECT_OK(rg_commands_read(r->commands, u, back[i], sizeof in[i], RG_LAYOUT_SAME));
        rg_tensor_destroy(view);
        rg_tensor_destroy(t);
        rg_tensor_destroy(u);
    }
    EXPECT_OK(rig_run(r));
    int wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        for (int hw = 0; hw < 20; hw++) {
            for (int c = 0; c < 6; c++) {
                wrong += transposed[i][c * 20 + hw] != in[i][hw * 6 + c];
                wrong += planes[i][c * 20 + hw] != in[i][hw * 6 + c];
                wrong += back[i][hw * 6 + c] != in[i][c * 20 + hw];
            }
        }
    }
    EXPECT(wrong == 0);
}

static void test_empty(rig *r)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    for (int i = 0; i < DTYPES; i++) {
        rg_tensor *t = tensor_of(r->device, dtypes[i], 3, DIMS(4, 0, 7)), *y = NULL;
        EXPECT(rg_tensor_bytes(t) == 0);
        EXPECT_OK(rg_tensor_write(t, NULL, 0, RG_LAYOUT_SAME));
        EXPECT_OK(rg_tensor_read(t, NULL, 0, RG_LAYOUT_NCHW));
        EXPECT_OK(rg_commands_write(r->commands, t, NULL, 0, RG_LAYOUT_NCHW));
        EXPECT_OK(rg_commands_read(r->commands, t, NULL, 0, RG_LAYOUT_SAME));
        if (dtypes[i] <= RG_BF16)
            EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &t, false, &y, NULL));
        rg_tensor_destroy(y);
        rg_tensor_destroy(t);
    }
    EXPECT_OK(rig_run(r));
    rg_tensor *none = NULL;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, DIMS(0));
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, NULL, NULL, NULL, &none));
    rg_tensor_destroy(none);
    rg_kernel_destroy(kernel);
}

int main(void)
{
    if (!has_gpu())
        return skip(rg_error_text());
    rig r = rig_open_cuda();
    for (int recorded = 0; recorded < 2; recorded++) {
        test_dense(&r, recorded);
        for (int i = 0; i < DTYPES; i++) {
            test_views(&r, dtypes[i], RG_LAYOUT_SAME, recorded);
            test_views(&r, dtypes[i], RG_LAYOUT_NCHW, recorded);
        }
    }
    test_large_views(&r);
    test_planes(&r);
    test_temporaries(&r);
    test_empty(&r);
    rig_close(&r);
    return rg_test_report();
}
