/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Images as in MPS: softmax over channels, offsets and clip rectangles, reading and writing bytes,
 *  batches, sub-images. On any device, but for memory of the host that is wrapped. docs/mps.md
 * names these tests. */
#include "any_device.h"
#include "mps.h"

enum { N = 3, H = 4, W = 5, C = 12 };

static rg_tensor *cut(rg_tensor *image, const int64_t start[], const int64_t length[])
{
    rg_tensor *view = NULL;
    EXPECT_OK(rg_tensor_slice(image, start, length, NULL, &view));
    return view;
}

/* All pixels of (n, h, w, c) tensors of one shape, against the formulas. */
static void expect_pixels(const rg_tensor *x, const rg_tensor *y, bool log_kind)
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(x, &desc));
    const int64_t *d = desc.dims;
    for (int64_t pixel = 0; pixel < d[0] * d[1] * d[2]; pixel++) {
        const int64_t n = pixel / (d[1] * d[2]), i = pixel / d[2] % d[1], j = pixel % d[2];
        double in[C], want[C];
        for (int64_t c = 0; c < d[3]; c++)
            in[c] = element_at(x, DIMS(n, i, j, c));
        forward_of(in, want, (int)d[3], log_kind);
        for (int64_t c = 0; c < d[3]; c++)
            EXPECT(is_near(element_at(y, DIMS(n, i, j, c)), want[c], 1e-5));
    }
}

/* ---- the four kernels ---- */

/* MPSCNNSoftMax, MPSCNNLogSoftMax and their gradients, over the channels of each pixel. The image
 * given to a gradient beside the incoming gradient is the result of forward. */
static void test_channels(rig *r)
{
    for (int log_kind = 0; log_kind < 2; log_kind++) {
        rg_kernel *kernel = softmax_of(r->device, log_kind ? RG_SOFTMAX_LOG : RG_SOFTMAX_PLAIN, -1);
        rg_tensor *x = filled(r->device, RG_F32, 4, DIMS(N, H, W, C), 1);
        rg_tensor *dy = filled(r->device, RG_F32, 4, DIMS(N, H, W, C), 2);
        rg_tensor *y = tensor_of(r->device, RG_F32, 4, DIMS(N, H, W, C));
        rg_tensor *dx = tensor_of(r->device, RG_F32, 4, DIMS(N, H, W, C));
        EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, NULL));
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, &y, NULL, &dx, 0));
        EXPECT_OK(rig_run(r));
        expect_pixels(x, y, log_kind == 1);
        char *const elements[] = { elements_of(dy), elements_of(y), elements_of(dx) };
        const float *in = (const float *)(const void *)elements[0];
        const float *out = (const float *)(const void *)elements[1];
        const float *got = (const float *)(const void *)elements[2];
        for (int pixel = 0; pixel < N * H * W; pixel++) {
            double g[C], v[C], want[C];
            for (int c = 0; c < C; c++) {
                g[c] = (double)in[pixel * C + c];
                v[c] = (double)out[pixel * C + c];
            }
            gradient_of(g, v, want, C, log_kind == 1);
            for (int c = 0; c < C; c++)
                EXPECT(is_near((double)got[pixel * C + c], want[c], 1e-5));
        }
        for (int i = 0; i < 3; i++)
            free(elements[i]);
        rg_tensor_destroy(x);
        rg_tensor_destroy(y);
        rg_tensor_destroy(dy);
        rg_tensor_destroy(dx);
        rg_kernel_destroy(kernel);
    }
}

/* ---- offset, clipRect, channel offsets ---- */

/* A kernel without a window: destination pixel clipRect.origin + t comes from source pixel
 * offset + t; offset.z and clipRect.origin.z are the first images; channels from
 * sourceFeatureChannelOffset on, sourceFeatureChannelMaxCount of them, go to
 * destinationFeatureChannelOffset. All of it is two slices. */
static void test_offset_and_clip(rig *r)
{
    rg_tensor *source = filled(r->device, RG_F32, 4, DIMS(N, H, W, C), 1);
    rg_tensor *destination = filled(r->device, RG_F32, 4, DIMS(N, H + 1, W + 2, C + 4), 2);
    float *before = (float *)(void *)elements_of(destination);
    rg_tensor *from = cut(source, DIMS(1, 0, 2, 4), DIMS(2, 3, 3, 8));
    rg_tensor *to = cut(destination, DIMS(0, 2, 1, 8), DIMS(2, 3, 3, 8));
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &from, &to, NULL));
    EXPECT_OK(rig_run(r));
    expect_pixels(from, to, false);
    float *after = (float *)(void *)elements_of(destination);
    int changed = 0;
    for (int i = 0; i < N * (H + 1) * (W + 2) * (C + 4); i++) {
        const int c = i % (C + 4), w = i / (C + 4) % (W + 2), h = i / (C + 4) / (W + 2) % (H + 1);
        const int n = i / (C + 4) / (W + 2) / (H + 1);
        const bool inside = n < 2 && h >= 2 && w >= 1 && w < 4 && c >= 8;
        EXPECT(after[i] == before[i] || inside);
        changed += after[i] != before[i];
    }
    EXPECT(changed == 2 * 3 * 3 * 8);
    free(before);
    free(after);
    rg_tensor_destroy(from);
    rg_tensor_destroy(to);
    rg_tensor_destroy(source);
    rg_tensor_destroy(destination);
    rg_kernel_destroy(kernel);
}

/* Several kernels fill channel ranges of one destination: concatenation without a copy. Ranges that
 * lie side by side do not overlap, so one may be read while the other is written. */
static void test_channel_ranges(rig *r)
{
    rg_tensor *image = filled(r->device, RG_F32, 4, DIMS(1, H, W, C), 1);
    rg_tensor *left = cut(image, DIMS(0, 0, 0, 0), DIMS(1, H, W, C / 2));
    rg_tensor *right = cut(image, DIMS(0, 0, 0, C / 2), DIMS(1, H, W, C / 2));
    rg_tensor *across = cut(image, DIMS(0, 0, 0, 1), DIMS(1, H, W, C / 2));
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &left, &right, NULL));
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, &left, &across, NULL), RG_INVALID_ARGUMENT,
                 "overlaps");
    EXPECT_OK(rig_run(r));
    expect_pixels(left, right, false);
    rg_tensor_destroy(left);
    rg_tensor_destroy(right);
    rg_tensor_destroy(across);
    rg_tensor_destroy(image);
    rg_kernel_destroy(kernel);
}

/* ---- readBytes and writeBytes ---- */

static float value_at(int n, int i, int j, int c)
{
    return (float)(((n * H + i) * W + j) * C + c);
}

/* Whole images, dense: HeightxWidthxFeatureChannels is RG_LAYOUT_SAME, FeatureChannelsxHeightxWidth
 * is RG_LAYOUT_NCHW. No number is converted. */
static void test_bytes(rig *r)
{
    static float hwc[N][H][W][C], chw[N][C][H][W], back[N * H * W * C];
    for (int n = 0; n < N; n++)
        for (int i = 0; i < H; i++)
            for (int j = 0; j < W; j++)
                for (int c = 0; c < C; c++)
                    hwc[n][i][j][c] = chw[n][c][i][j] = value_at(n, i, j, c);
    rg_tensor *image = tensor_of(r->device, RG_F32, 4, DIMS(N, H, W, C));
    EXPECT_OK(rg_tensor_write(image, chw, sizeof chw, RG_LAYOUT_NCHW));
    EXPECT_OK(rg_tensor_read(image, back, sizeof back, RG_LAYOUT_SAME));
    EXPECT(memcmp(back, hwc, sizeof back) == 0);
    EXPECT(!is_cpu(r) ||
           memcmp(rg_tensor_data(image), hwc, sizeof hwc) == 0); /* channels fastest */
    EXPECT_OK(rg_tensor_read(image, back, sizeof back, RG_LAYOUT_NCHW));
    EXPECT(memcmp(back, chw, sizeof back) == 0);

    /* imageIndex, region and featureChannelReadWriteInfo: a slice. */
    static float part[4][2][3], few[2][2][3][4];
    rg_tensor *one = cut(image, DIMS(1, 1, 2, 4), DIMS(1, 2, 3, 4));
    EXPECT_OK(rg_tensor_read(one, part, sizeof part, RG_LAYOUT_NCHW));
    rg_tensor *two = cut(image, DIMS(1, 1, 2, 4), DIMS(2, 2, 3, 4)); /* size.depth of the region */
    EXPECT_OK(rg_tensor_read(two, few, sizeof few, RG_LAYOUT_SAME));
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int c = 0; c < 4; c++) {
                EXPECT(part[c][i][j] == value_at(1, 1 + i, 2 + j, 4 + c));
                EXPECT(few[1][i][j][c] == value_at(2, 1 + i, 2 + j, 4 + c));
            }
    rg_tensor_destroy(one);
    rg_tensor_destroy(two);
    rg_tensor_destroy(image);
}

/* bytesPerRow, bytesPerImage, bytesPerColumn: host memory with gaps is copied row by row through
 * slices, or wrapped with its strides and used where it is. */
static void test_padded_bytes(rig *r)
{
    enum { ROW = W * C + 3 };
    static float host[H][ROW];
    rg_tensor *image = filled(r->device, RG_F32, 3, DIMS(H, W, C), 1), *wrapped = NULL;
    for (int64_t i = 0; i < H; i++) {
        rg_tensor *row = cut(image, DIMS(i, 0, 0), DIMS(1, W, C));
        EXPECT_OK(rg_tensor_read(row, host[i], W * C * sizeof(float), RG_LAYOUT_SAME));
        rg_tensor_destroy(row);
    }
    rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 3, DIMS(H, W, C));
    desc.strides[0] = ROW;
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, host, NULL, NULL, &wrapped));
    EXPECT(same_bits(image, wrapped) && host[1][W * C] == 0);
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &image, &image, NULL));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &wrapped, &wrapped, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT(same_bits(image, wrapped) && host[1][W * C] == 0);
    rg_tensor_destroy(image);
    rg_tensor_destroy(wrapped);
    rg_kernel_destroy(kernel);
}

/* Planar images, (n, c, h, w) in memory, run where they are: a permuted view, or axis 1. */
static void test_planar(rig *r)
{
    rg_tensor *planes = filled(r->device, RG_F32, 4, DIMS(N, C, H, W), 1), *view = NULL;
    rg_tensor *y = tensor_of(r->device, RG_F32, 4, DIMS(N, C, H, W)), *y_view = NULL;
    rg_tensor *axis_1 = tensor_of(r->device, RG_F32, 4, DIMS(N, C, H, W));
    const int32_t order[] = { 0, 2, 3, 1 };
    EXPECT_OK(rg_tensor_permute(planes, order, &view));
    EXPECT_OK(rg_tensor_permute(y, order, &y_view));
    rg_kernel *over_last = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    rg_kernel *over_1 = softmax_of(r->device, RG_SOFTMAX_PLAIN, 1);
    EXPECT_OK(rg_kernel_forward(over_last, r->commands, &view, &y_view, NULL));
    EXPECT_OK(rg_kernel_forward(over_1, r->commands, &planes, &axis_1, NULL));
    EXPECT_OK(rig_run(r));
    expect_pixels(view, y_view, false);
    rg_tensor *again = NULL;
    EXPECT_OK(rg_tensor_permute(axis_1, order, &again));
    expect_pixels(view, again, false);
    rg_tensor *const all[] = { planes, view, y, y_view, axis_1, again };
    for (int i = 0; i < 6; i++)
        rg_tensor_destroy(all[i]);
    rg_kernel_destroy(over_last);
    rg_kernel_destroy(over_1);
}

/* ---- batches and aliases ---- */

/* batchRepresentation: one view per image, of the same storage; a batch call over them writes what
 * one call over the whole would. Equal images, or not: each is processed by itself. */
static void test_batch_representation(rig *r)
{
    rg_tensor *x = filled(r->device, RG_F32, 4, DIMS(N, H, W, C), 1);
    rg_tensor *y = tensor_of(r->device, RG_F32, 4, DIMS(N, H, W, C));
    rg_tensor *whole = tensor_of(r->device, RG_F32, 4, DIMS(N, H, W, C));
    rg_tensor *xs[N], *ys[N];
    for (int64_t n = 0; n < N; n++) {
        xs[n] = cut(x, DIMS(n, 0, 0, 0), DIMS(1, H, W, C));
        ys[n] = cut(y, DIMS(n, 0, 0, 0), DIMS(1, H, W, C));
        EXPECT(rg_tensor_bytes(xs[n]) == 0);
    }
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    EXPECT_OK(rg_kernel_forward_batch(kernel, r->commands, N, xs, ys, NULL));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &whole, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT(same_bits(y, whole));
    /* MPSImageBatchResourceSize: the sum over distinct images. */
    rg_tensor *const batch[] = { x, xs[0], y, x };
    size_t bytes = 0;
    for (int i = 0; i < 4; i++) {
        bool first = true;
        for (int k = 0; k < i; k++)
            first &= batch[k] != batch[i];
        bytes += first ? rg_tensor_bytes(batch[i]) : 0;
    }
    EXPECT(bytes == 2 * N * H * W * C * sizeof(float));
    for (int n = 0; n < N; n++) {
        rg_tensor_destroy(xs[n]);
        rg_tensor_destroy(ys[n]);
    }
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_tensor_destroy(whole);
    rg_kernel_destroy(kernel);
}

/* subImageWithFeatureChannelRange: a view of some channels; what is written to one is seen in the
 * other. Offsets need not be multiples of 4. */
static void test_sub_image(rig *r)
{
    rg_tensor *image = filled(r->device, RG_F32, 3, DIMS(H, W, C), 1);
    rg_tensor *sub = cut(image, DIMS(0, 0, 3), DIMS(H, W, 5));
    float ones[H * W * 5];
    for (int i = 0; i < H * W * 5; i++)
        ones[i] = 1;
    EXPECT_OK(rg_tensor_write(sub, ones, sizeof ones, RG_LAYOUT_SAME));
    EXPECT(element_at(image, DIMS(2, 3, 3)) == 1 && element_at(image, DIMS(2, 3, 7)) == 1);
    EXPECT(element_at(image, DIMS(2, 3, 2)) != 1 && element_at(image, DIMS(2, 3, 8)) != 1);
    const float seven = 7;
    rg_tensor *one = cut(image, DIMS(0, 0, 4), DIMS(1, 1, 1));
    if (is_cpu(r))
        ((float *)rg_tensor_data(image))[4] = seven;
    else
        EXPECT_OK(rg_tensor_write(one, &seven, sizeof seven, RG_LAYOUT_SAME));
    rg_tensor_destroy(one);
    EXPECT(element_at(sub, DIMS(0, 0, 1)) == 7);
    EXPECT(rg_tensor_bytes(sub) == 0);
    rg_tensor_destroy(image); /* the view keeps the storage */
    EXPECT(element_at(sub, DIMS(0, 0, 1)) == 7);
    rg_tensor_destroy(sub);
}

/* encodeToCommandBuffer:sourceImage: makes its result, temporary by default, in the type of the
 * source; several of them chain without memory of their own. */
static void test_returned_images(rig *r)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *x = filled(r->device, RG_F16, 4, DIMS(N, H, W, C), 1), *y = NULL, *z = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, true, &y, NULL));
    EXPECT(rg_tensor_is_temporary(y) && rg_tensor_read_count(y) == 1);
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(y, &desc));
    EXPECT(desc.dtype == RG_F16 && desc.rank == 4 && desc.dims[3] == C && desc.strides[3] == 1);
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &y, false, &z, NULL));
    EXPECT(rg_tensor_read_count(y) == 0 && !rg_tensor_is_temporary(z));
    EXPECT_OK(rig_run(r));
    EXPECT(element_at(z, DIMS(0, 0, 0, 0)) > 0);
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_tensor_destroy(z);
    rg_kernel_destroy(kernel);
}

int main(void)
{
    rig r = rig_open(2);
    test_padded_bytes(&r);
    rig_close(&r);
    RUN_ON_DEVICES(test_channels, test_offset_and_clip, test_channel_ranges, test_bytes,
                   test_planar, test_batch_representation, test_sub_image, test_returned_images);
    return rg_test_report();
}
