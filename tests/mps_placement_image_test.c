/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The offsets of gradient kernels of MPS on images: two dimensions that differ in window, stride,
 * dilation and offset, several images, channels and groups, compared with MPS's definition. On any
 * device. docs/mps.md names these tests. */
#include "any_device.h"
#include "mps.h"

enum { IMAGES = 2, MOST = 2048 };

/* Rows and columns of a case. */
typedef struct placement {
    int taps[2], stride[2], dilation[2], primary[2], kernel[2], secondary[2];
    int gradient[2], image[2]; /* sizes of dy, and of the image or of clipRect */
    int in, out, groups;       /* channels */
} placement;

static const placement cases[] = {
    { { 3, 3 }, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 4, 5 }, { 4, 5 }, 2, 3, 1 },
    { { 3, 2 }, { 2, 3 }, { 1, 1 }, { 1, 0 }, { -1, 2 }, { 1, -2 }, { 4, 3 }, { 7, 8 }, 3, 2, 1 },
    { { 2, 3 }, { 1, 2 }, { 3, 2 }, { 0, 1 }, { 1, -2 }, { -1, 3 }, { 5, 4 }, { 6, 5 }, 4, 6, 2 },
    { { 4, 1 }, { 3, 1 }, { 2, 1 }, { -1, 2 }, { 2, 1 }, { 2, 0 }, { 3, 4 }, { 9, 4 }, 6, 6, 3 },
    { { 3, 3 }, { 2, 2 }, { 2, 1 }, { 1, 1 }, { 0, 1 }, { -3, 1 }, { 3, 3 }, { 5, 7 }, 4, 4, 4 },
};

static int extent(const placement *c, int axis)
{
    return (c->taps[axis] - 1) * c->dilation[axis] + 1;
}

static double read_at(const double *image, const int size[2], int channels, int n, int y, int x,
                      int channel)
{
    const bool inside = y >= 0 && y < size[0] && x >= 0 && x < size[1];
    return inside ? image[((n * size[0] + y) * size[1] + x) * channels + channel] : 0;
}

static rg_tensor *image_of(rig *r, const int size[2], int channels, uint64_t seed, double *elements)
{
    rg_tensor *tensor =
        filled(r->device, RG_F64, 4, DIMS(IMAGES, size[0], size[1], channels), seed);
    EXPECT_OK(rg_tensor_read(tensor, elements,
                             (size_t)(IMAGES * size[0] * size[1] * channels) * sizeof *elements,
                             RG_LAYOUT_SAME));
    return tensor;
}

static rg_kernel *conv_of(rig *r, const placement *c, bool by_weights)
{
    rg_conv_desc desc = rg_conv_desc_default();
    rg_kernel *kernel = NULL;
    int32_t before[2];
    desc.bias = false;
    desc.groups = c->groups;
    for (int axis = 0; axis < 2; axis++) {
        desc.stride[axis] = c->stride[axis];
        desc.dilation[axis] = c->dilation[axis];
        desc.output[axis] = c->gradient[axis];
        before[axis] = by_weights ? -c->secondary[axis]
                                  : (extent(c, axis) - 1) / 2 + c->primary[axis] * c->stride[axis] +
                                        c->kernel[axis];
    }
    desc.padding.top = before[0];
    desc.padding.left = before[1];
    EXPECT_OK(rg_conv_create(r->device, &desc, &kernel));
    return kernel;
}

/* ---- convolution ---- */

/* The pixel of the gradient that tap p of pixel u sees; -1: none, or one of the zeros between. */
static int seen(const placement *c, int axis, int u, int p)
{
    const int v = u + c->primary[axis] * c->stride[axis] + c->kernel[axis] - extent(c, axis) / 2 +
                  p * c->dilation[axis];
    return v >= 0 && v % c->stride[axis] == 0 && v / c->stride[axis] < c->gradient[axis]
               ? v / c->stride[axis]
               : -1;
}

/* dX(u) = sum over taps and outputs of the group: the gradient, spread out, by rotated weights. */
static double conv_dx(const placement *c, const double *dy, const double *w, int n, int y, int x,
                      int channel)
{
    const int in = c->in / c->groups, out = c->out / c->groups, group = channel / in;
    double sum = 0;
    for (int p = 0; p < c->taps[0]; p++) {
        for (int q = 0; q < c->taps[1]; q++) {
            const int row = seen(c, 0, y, p), column = seen(c, 1, x, q);
            for (int o = group * out; o < (group + 1) * out && row >= 0 && column >= 0; o++) {
                const int tap = (c->taps[0] - 1 - p) * c->taps[1] + c->taps[1] - 1 - q;
                sum += read_at(dy, c->gradient, c->out, n, row, column, o) *
                       w[(o * c->taps[0] * c->taps[1] + tap) * in + channel % in];
            }
        }
    }
    return sum;
}

static void test_conv_image_offsets(rig *r)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const placement *c = &cases[i];
        const int in = c->in / c->groups, taps = c->taps[0] * c->taps[1];
        double dy[MOST], w[MOST], got[MOST], unused[MOST];
        rg_kernel *kernel = conv_of(r, c, false);
        rg_tensor *up = image_of(r, c->gradient, c->out, 3, dy), *dx[2] = { NULL, NULL };
        rg_tensor *x[2] = { image_of(r, c->image, c->in, 4, unused), NULL };
        x[1] = filled(r->device, RG_F64, 4, DIMS(c->out, c->taps[0], c->taps[1], in), 5);
        EXPECT_OK(rg_tensor_read(x[1], w, (size_t)(c->out * taps * in) * 8, RG_LAYOUT_SAME));
        dx[0] = image_of(r, c->image, c->in, 6, unused);
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &up, x, NULL, NULL, dx, 0));
        EXPECT_OK(rig_run(r));
        const int count = IMAGES * c->image[0] * c->image[1] * c->in;
        EXPECT_OK(rg_tensor_read(dx[0], got, (size_t)count * 8, RG_LAYOUT_SAME));
        double total = 0;
        for (int k = 0; k < count; k++) {
            const int pixel = k / c->in, row = pixel / c->image[1];
            const double want = conv_dx(c, dy, w, row / c->image[0], row % c->image[0],
                                        pixel % c->image[1], k % c->in);
            EXPECT(is_near(got[k], want, 1e-12));
            total += want * want;
        }
        EXPECT(total > 0);
        rg_tensor *const made[] = { up, x[0], x[1], dx[0] };
        for (int k = 0; k < 4; k++)
            rg_tensor_destroy(made[k]);
        rg_kernel_destroy(kernel);
    }
}

/* dW(o, p, q, i) = sum of g(n, y, x, o) in(n, s y + S + d p, …, i of the group of o). */
static double conv_dw(const placement *c, const double *dy, const double *image, int o, int p,
                      int q, int i)
{
    const int channel = o / (c->out / c->groups) * (c->in / c->groups) + i;
    double sum = 0;
    for (int n = 0; n < IMAGES; n++) {
        for (int y = 0; y < c->gradient[0]; y++) {
            for (int x = 0; x < c->gradient[1]; x++)
                sum += read_at(dy, c->gradient, c->out, n, y, x, o) *
                       read_at(image, c->image, c->in, n,
                               y * c->stride[0] + c->secondary[0] + p * c->dilation[0],
                               x * c->stride[1] + c->secondary[1] + q * c->dilation[1], channel);
        }
    }
    return sum;
}

static void test_conv_image_secondary_offset(rig *r)
{
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const placement *c = &cases[k];
        const int in = c->in / c->groups, taps = c->taps[0] * c->taps[1];
        double dy[MOST], image[MOST], got[MOST];
        rg_kernel *kernel = conv_of(r, c, true);
        rg_tensor *up = image_of(r, c->gradient, c->out, 3, dy), *dx[2] = { NULL, NULL };
        rg_tensor *x[2] = { image_of(r, c->image, c->in, 4, image), NULL };
        x[1] = filled(r->device, RG_F64, 4, DIMS(c->out, c->taps[0], c->taps[1], in), 5);
        dx[1] = tensor_of(r->device, RG_F64, 4, DIMS(c->out, c->taps[0], c->taps[1], in));
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &up, x, NULL, NULL, dx, 0));
        EXPECT_OK(rig_run(r));
        EXPECT_OK(rg_tensor_read(dx[1], got, (size_t)(c->out * taps * in) * 8, RG_LAYOUT_SAME));
        double total = 0;
        for (int e = 0; e < c->out * taps * in; e++) {
            const int tap = e / in % taps;
            const double want =
                conv_dw(c, dy, image, e / in / taps, tap / c->taps[1], tap % c->taps[1], e % in);
            EXPECT(is_near(got[e], want, 1e-12));
            total += want * want;
        }
        EXPECT(total > 0);
        rg_tensor *const made[] = { up, x[0], x[1], dx[1] };
        for (int e = 0; e < 4; e++)
            rg_tensor_destroy(made[e]);
        rg_kernel_destroy(kernel);
    }
}

/* ---- pooling ---- */

/* d out / d in of the window at pixel (y, x) of the gradient, at pixel (v, u) of the image: of the
 * average, or of the maximum among the pixels of the image. */
static double pool_slope(const placement *c, const double *image, const int at[2], int n,
                         const int pixel[2], int channel, bool average)
{
    int first[2], best[2] = { -1, -1 };
    double most = 0;
    bool covers = true;
    for (int axis = 0; axis < 2; axis++) {
        first[axis] = c->secondary[axis] + at[axis] * c->stride[axis] - extent(c, axis) / 2;
        const int tap = pixel[axis] - first[axis];
        covers &= tap >= 0 && tap < extent(c, axis) && tap % c->dilation[axis] == 0;
    }
    if (average || !covers)
        return covers ? 1.0 / (c->taps[0] * c->taps[1]) : 0;
    for (int p = 0; p < c->taps[0]; p++) {
        for (int q = 0; q < c->taps[1]; q++) {
            const int y = first[0] + p * c->dilation[0], x = first[1] + q * c->dilation[1];
            const double value = read_at(image, c->image, c->in, n, y, x, channel);
            if (y < 0 || y >= c->image[0] || x < 0 || x >= c->image[1] ||
                (best[0] >= 0 && value <= most))
                continue;
            most = value;
            best[0] = y;
            best[1] = x;
        }
    }
    return pixel[0] == best[0] && pixel[1] == best[1];
}

static double pool_dx(const placement *c, const double *image, const double *dy, int n,
                      const int pixel[2], int channel, bool average)
{
    double sum = 0;
    for (int y = 0; y < c->gradient[0]; y++) {
        for (int x = 0; x < c->gradient[1]; x++)
            sum += read_at(dy, c->gradient, c->in, n, y, x, channel) *
                   pool_slope(c, image, (int[]){ y, x }, n, pixel, channel, average);
    }
    return sum;
}

/* Of the pixels of clipRect, which begins at (1, 1), as a slice of dx. */
static void check_pool(rig *r, const placement *c, bool average)
{
    const int clip[2] = { c->image[0] - 1, c->image[1] - 1 };
    double dy[MOST], image[MOST], got[MOST];
    rg_pool_desc desc = rg_pool_desc_default();
    rg_kernel *kernel = NULL;
    desc.kind = average ? RG_POOL_AVERAGE : RG_POOL_MAX;
    desc.edge = average ? RG_POOL_ZERO : RG_POOL_CLAMP;
    for (int axis = 0; axis < 2; axis++) {
        desc.window[axis] = c->taps[axis];
        desc.stride[axis] = c->stride[axis];
        desc.dilation[axis] = c->dilation[axis];
        desc.output[axis] = c->gradient[axis];
    }
    desc.padding.top = extent(c, 0) / 2 - c->secondary[0];
    desc.padding.left = extent(c, 1) / 2 - c->secondary[1];
    EXPECT_OK(rg_pool_create(r->device, &desc, &kernel));
    rg_tensor *up = image_of(r, c->gradient, c->in, 3, dy), *part = NULL;
    rg_tensor *x = image_of(r, c->image, c->in, 4, image);
    rg_tensor *dx = image_of(r, c->image, c->in, 5, got);
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &up, &x, NULL, NULL, &dx, 0));
    EXPECT_OK(
        rg_tensor_slice(dx, DIMS(0, 1, 1, 0), DIMS(IMAGES, clip[0], clip[1], c->in), NULL, &part));
    EXPECT_OK(rig_run(r));
    const int count = IMAGES * clip[0] * clip[1] * c->in;
    EXPECT_OK(rg_tensor_read(part, got, (size_t)count * 8, RG_LAYOUT_SAME));
    double total = 0;
    for (int k = 0; k < count; k++) {
        const int at = k / c->in, row = at / clip[1];
        const int pixel[] = { 1 + row % clip[0], 1 + at % clip[1] };
        const double want = pool_dx(c, image, dy, row / clip[0], pixel, k % c->in, average);
        EXPECT(is_near(got[k], want, 1e-12));
        total += want * want;
    }
    EXPECT(total > 0);
    rg_tensor *const made[] = { up, x, dx, part };
    for (int k = 0; k < 4; k++)
        rg_tensor_destroy(made[k]);
    rg_kernel_destroy(kernel);
}

static void test_pool_image_placement(rig *r)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_pool(r, &cases[i], true);
        check_pool(r, &cases[i], false);
    }
}

int main(void)
{
    RUN_ON_DEVICES(test_conv_image_offsets, test_conv_image_secondary_offset,
                   test_pool_image_placement);
    return rg_test_report();
}
