/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batches: the same bits whether images are joined, apart or called one by one; shared gradients;
 * all or nothing. */
#include "any_device.h"
#include "api_seam.h"

#include <retrograde/batch_norm.h>
#include <retrograde/pool.h>

enum { IMAGES = 5, HEIGHT = 3, WIDTH = 11, COUNT = HEIGHT * WIDTH };

/* Images as neighbouring slices of one tensor, or each with storage of its own. */
typedef struct images {
    rg_tensor *whole, *of[IMAGES];
} images;

static images images_of(rg_device *device, rg_dtype dtype, bool neighbours, uint64_t seed)
{
    images s = { .whole = filled(device, dtype, 3, DIMS(IMAGES, HEIGHT, WIDTH), seed) };
    for (int n = 0; n < IMAGES; n++) {
        EXPECT_OK(rg_tensor_slice(s.whole, DIMS(n, 0, 0), DIMS(1, HEIGHT, WIDTH), NULL, &s.of[n]));
        if (neighbours)
            continue;
        char *data = elements_of(s.of[n]);
        rg_tensor *apart = tensor_of(device, dtype, 3, DIMS(1, HEIGHT, WIDTH));
        EXPECT_OK(rg_tensor_write(apart, data, bytes_of(apart), RG_LAYOUT_SAME));
        free(data);
        rg_tensor_destroy(s.of[n]);
        s.of[n] = apart;
    }
    return s;
}

static void images_free(images *s)
{
    for (int n = 0; n < IMAGES; n++)
        rg_tensor_destroy(s->of[n]);
    rg_tensor_destroy(s->whole);
}

static bool same_images(const images *a, const images *b)
{
    bool same = true;
    for (int n = 0; n < IMAGES; n++)
        same &= same_bits(a->of[n], b->of[n]);
    return same;
}

/* ---- joined, apart, one by one ---- */

/* The forms that allocate their results, beside calls image by image into `one`. */
static void test_allocated(rig *r, const rg_kernel *kernel, const images x[3], const images dy[3],
                           const images *one_y, const images *one_dx)
{
    rg_tensor *made[IMAGES], *made_dx[IMAGES];
    for (int temporary = 0; temporary < 2; temporary++) {
        char *out = calloc(IMAGES, bytes_of(x[0].of[0]));
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, IMAGES, x[temporary].of, temporary,
                                          made, NULL));
        EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, IMAGES, dy[0].of, NULL, made, NULL,
                                           1, temporary, made_dx));
        for (int n = 0; n < IMAGES; n++) {
            const size_t bytes = bytes_of(x[0].of[n]);
            EXPECT(rg_tensor_is_temporary(made[n]) == temporary);
            EXPECT_OK(rg_commands_read(r->commands, made_dx[n], out + (size_t)n * bytes, bytes,
                                       RG_LAYOUT_SAME));
        }
        for (int n = 0; n < IMAGES; n++)
            EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy[2].of[n], NULL, &one_y->of[n],
                                         NULL, &one_dx->of[n], 0));
        EXPECT_OK(rig_run(r));
        for (int n = 0; n < IMAGES; n++) {
            const size_t bytes = bytes_of(one_dx->of[n]);
            char *wanted = elements_of(one_dx->of[n]);
            EXPECT(memcmp(out + (size_t)n * bytes, wanted, bytes) == 0);
            free(wanted);
            rg_tensor_destroy(made[n]);
            rg_tensor_destroy(made_dx[n]);
        }
        free(out);
    }
}

static void test_forms(rig *r, rg_dtype dtype, rg_softmax_kind kind, int64_t axis)
{
    rg_kernel *kernel = softmax_of(r->device, kind, axis);
    images x[3], y[3], dy[3], dx[3];
    for (int form = 0; form < 3; form++) { /* 0: neighbours, 1: apart, 2: one by one */
        x[form] = images_of(r->device, dtype, form == 0, 1);
        y[form] = images_of(r->device, dtype, form == 0, 2);
        dy[form] = images_of(r->device, dtype, form == 0, 3);
        dx[form] = images_of(r->device, dtype, form == 0, 4);
    }
    for (int form = 0; form < 2; form++) {
        EXPECT_OK(
            rg_kernel_forward_batch(kernel, r->commands, IMAGES, x[form].of, y[form].of, NULL));
        EXPECT_OK(rg_kernel_gradient_batch(kernel, r->commands, IMAGES, dy[form].of, NULL,
                                           y[form].of, NULL, dx[form].of, 1));
    }
    for (int n = 0; n < IMAGES; n++) {
        EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x[2].of[n], &y[2].of[n], NULL));
        EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy[2].of[n], NULL, &y[2].of[n], NULL,
                                     &dx[2].of[n], 1));
    }
    EXPECT_OK(rig_run(r));
    for (int form = 0; form < 2; form++) {
        EXPECT(same_images(&y[form], &y[2]));
        EXPECT(same_images(&dx[form], &dx[2]));
    }
    test_allocated(r, kernel, x, dy, &y[2], &dx[2]);
    for (int form = 0; form < 3; form++) {
        images_free(&x[form]);
        images_free(&y[form]);
        images_free(&dy[form]);
        images_free(&dx[form]);
    }
    rg_kernel_destroy(kernel);
}

/* ---- one gradient for all ---- */

static void test_shared_gradient(rig *r)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    for (uint64_t add = 0; add < 2; add++) {
        images y = images_of(r->device, RG_F32, true, 1),
               dy = images_of(r->device, RG_F32, true, 2);
        rg_tensor *sum = filled(r->device, RG_F32, 3, DIMS(1, HEIGHT, WIDTH), 3);
        rg_tensor *wanted = filled(r->device, RG_F32, 3, DIMS(1, HEIGHT, WIDTH), 3);
        rg_tensor *const all[IMAGES] = { sum, sum, sum, sum, sum };
        EXPECT_OK(rg_kernel_gradient_batch(kernel, r->commands, IMAGES, dy.of, NULL, y.of, NULL,
                                           all, add));
        for (int n = 0; n < IMAGES; n++)
            EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy.of[n], NULL, &y.of[n], NULL,
                                         &wanted, n > 0 || add));
        EXPECT_OK(rig_run(r));
        EXPECT(same_bits(sum, wanted));
        rg_tensor *other = filled(r->device, RG_F32, 3, DIMS(1, HEIGHT, WIDTH), 3); /* 0 1 0 1 0 */
        rg_tensor *const two[IMAGES] = { sum, other, sum, other, sum };
        rg_tensor *apart[2] = { wanted, filled(r->device, RG_F32, 3, DIMS(1, HEIGHT, WIDTH), 3) };
        fill(sum, 3);
        fill(wanted, 3);
        EXPECT_OK(rg_kernel_gradient_batch(kernel, r->commands, IMAGES, dy.of, NULL, y.of, NULL,
                                           two, add));
        for (int n = 0; n < IMAGES; n++)
            EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy.of[n], NULL, &y.of[n], NULL,
                                         &apart[n % 2], n > 1 || add));
        EXPECT_OK(rig_run(r));
        EXPECT(same_bits(sum, apart[0]) && same_bits(other, apart[1]));
        rg_tensor_destroy(sum);
        rg_tensor_destroy(other);
        rg_tensor_destroy(apart[0]);
        rg_tensor_destroy(apart[1]);
        images_free(&y);
        images_free(&dy);
    }
    rg_kernel_destroy(kernel);
}

/* A parameter repeats one pointer, and so does its gradient; each image has its state. */
static void test_parameter(rig *r)
{
    mix_desc desc = mix_desc_default();
    desc.scale = 2;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_kernel_create(r->device, &mix_op, &desc, &kernel));
    images a = images_of(r->device, RG_F32, true, 1), dy = images_of(r->device, RG_F32, false, 2);
    rg_tensor *b = filled(r->device, RG_F32, 3, DIMS(1, HEIGHT, WIDTH), 3), *x[2 * IMAGES];
    rg_tensor *db = tensor_of(r->device, RG_F32, 3, DIMS(1, HEIGHT, WIDTH)), *dx[2 * IMAGES];
    rg_tensor *y[IMAGES];
    rg_state *states[IMAGES];
    for (int n = 0; n < IMAGES; n++) {
        x[n] = a.of[n];
        x[IMAGES + n] = b;
        dx[n] = NULL;
        dx[IMAGES + n] = db;
    }
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, IMAGES, x, false, y, states));
    EXPECT_OK(rg_kernel_gradient_batch(kernel, r->commands, IMAGES, dy.of, x, NULL, states, dx, 0));
    EXPECT_OK(rig_run(r));
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        float sum = 0;
        for (int n = 0; n < IMAGES; n++) {
            const float in = ((const float *)rg_tensor_data(a.of[n]))[i];
            const float slope = ((const float *)rg_tensor_data(dy.of[n]))[i];
            wrong += ((const float *)rg_tensor_data(y[n]))[i] !=
                     2 * in * ((const float *)rg_tensor_data(b))[i];
            sum = (n > 0 ? sum : 0) + 2 * slope * in;
        }
        wrong += ((const float *)rg_tensor_data(db))[i] != sum;
    }
    EXPECT(wrong == 0);
    for (int n = 0; n < IMAGES; n++) {
        rg_tensor_destroy(y[n]);
        rg_state_destroy(states[n]);
    }
    rg_tensor_destroy(b);
    rg_tensor_destroy(db);
    images_free(&a);
    images_free(&dy);
    rg_kernel_destroy(kernel);
}

/* ---- all or nothing ---- */

static void test_refused(rig *r)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    for (int neighbours = 0; neighbours < 2; neighbours++) {
        images x = images_of(r->device, RG_F32, neighbours, 1),
               y = images_of(r->device, RG_F32, neighbours, 2);
        images kept = images_of(r->device, RG_F32, true, 2);
        rg_tensor *bad = tensor_of(r->device, RG_F32, 3, DIMS(1, HEIGHT, WIDTH + 1));
        for (int k = 0; k < IMAGES; k++) {
            char words[32];
            snprintf(words, sizeof words, "image %d: ", k);
            rg_tensor *const good = y.of[k];
            y.of[k] = bad;
            EXPECT_FAILS(rg_kernel_forward_batch(kernel, r->commands, IMAGES, x.of, y.of, NULL),
                         RG_INVALID_ARGUMENT, words);
            EXPECT_FAILS(rg_kernel_gradient_batch(kernel, r->commands, IMAGES, x.of, NULL, x.of,
                                                  NULL, y.of, 0),
                         RG_INVALID_ARGUMENT, words);
            y.of[k] = NULL;
            EXPECT_FAILS(rg_kernel_forward_batch(kernel, r->commands, IMAGES, x.of, y.of, NULL),
                         RG_INVALID_ARGUMENT, "y is NULL");
            y.of[k] = good;
        }
        EXPECT_OK(rig_run(r));
        EXPECT(same_images(&y, &kept));
        rg_tensor_destroy(bad);
        images_free(&x);
        images_free(&y);
        images_free(&kept);
    }
    rg_kernel_destroy(kernel);
}

/* Neighbours are joined only where all of them overwrite, or all of them add: orders of two shared
 * gradients, 0 and 1, over three images. */
static void test_shared_neighbours(rig *r)
{
    static const int orders[][3] = {
        { 1, 0, 1 }, { 0, 0, 1 }, { 0, 1, 0 }, { 0, 1, 1 }, { 1, 1, 0 }
    };
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_LOG, -1);
    images dy = images_of(r->device, RG_F64, true, 1), y = images_of(r->device, RG_F64, true, 2);
    for (size_t k = 0; k < sizeof orders / sizeof orders[0]; k++) {
        images got = images_of(r->device, RG_F64, true, 3),
               want = images_of(r->device, RG_F64, false, 3);
        rg_tensor *dx[3];
        for (int n = 0; n < 3; n++) {
            bool first = true;
            dx[n] = got.of[orders[k][n]];
            for (int m = 0; m < n; m++)
                first &= orders[k][m] != orders[k][n];
            EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy.of[n], NULL, &y.of[n], NULL,
                                         &want.of[orders[k][n]], first ? 0 : 1));
        }
        EXPECT_OK(rg_kernel_gradient_batch(kernel, r->commands, 3, dy.of, NULL, y.of, NULL, dx, 0));
        EXPECT_OK(rig_run(r));
        EXPECT(same_images(&got, &want));
        images_free(&got);
        images_free(&want);
    }
    images_free(&dy);
    images_free(&y);
    rg_kernel_destroy(kernel);
}

/* What one image writes no other may read or write, whether images lie side by side or apart. */
static void test_other_images(rig *r)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    for (int neighbours = 0; neighbours < 2; neighbours++) {
        images x = images_of(r->device, RG_F32, neighbours, 1);
        images y = images_of(r->device, RG_F32, neighbours, 2);
        rg_tensor *shifted[IMAGES] = { x.of[1], x.of[2], x.of[3], x.of[4], y.of[0] };
        EXPECT_FAILS(rg_kernel_forward_batch(kernel, r->commands, IMAGES, x.of, shifted, NULL),
                     RG_INVALID_ARGUMENT, "another image"); /* which pair is told first is open */
        rg_tensor *twice[IMAGES] = { y.of[0], y.of[1], y.of[2], y.of[1], y.of[4] };
        EXPECT_FAILS(rg_kernel_forward_batch(kernel, r->commands, IMAGES, x.of, twice, NULL),
                     RG_INVALID_ARGUMENT,
                     "an output overlaps a tensor of another image (images 1 and 3)");
        EXPECT_OK(rg_kernel_forward_batch(kernel, r->commands, IMAGES, x.of, x.of, NULL));
        images_free(&x);
        images_free(&y);
    }
    EXPECT_OK(rig_run(r));
    rg_kernel_destroy(kernel);
}

static void expect_own_states(rig *r, rg_kernel *kernel)
{
    images x = images_of(r->device, RG_F32, false, 1), dx = images_of(r->device, RG_F32, false, 2);
    rg_tensor *y[IMAGES];
    rg_state *states[IMAGES];
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, IMAGES, x.of, false, y, states));
    rg_state *const own = states[3], *const other = states[1];
    states[3] = other;
    EXPECT_FAILS(rg_kernel_forward_batch(kernel, r->commands, IMAGES, x.of, y, states),
                 RG_INVALID_ARGUMENT, "images 1 and 3 share a state");
    EXPECT_FAILS(
        rg_kernel_gradient_batch(kernel, r->commands, IMAGES, y, x.of, NULL, states, dx.of, 0),
        RG_INVALID_ARGUMENT, "images 1 and 3 share a state");
    states[3] = NULL; /* several images without one are several */
    states[1] = NULL;
    EXPECT_OK(rg_kernel_forward_batch(kernel, r->commands, IMAGES, x.of, y, states));
    EXPECT_OK(rig_run(r));
    rg_state_destroy(own);
    rg_state_destroy(other);
    for (int n = 0; n < IMAGES; n++) {
        rg_tensor_destroy(y[n]);
        rg_state_destroy(states[n]);
    }
    images_free(&x);
    images_free(&dx);
}

/* What an image leaves in a state the next one would overwrite, so that max pooling found the
 * winners of the last image for all. */
static void test_repeated_state(rig *r)
{
    rg_pool_desc pool_desc = rg_pool_desc_default();
    rg_batch_norm_desc norm_desc = rg_batch_norm_desc_default();
    rg_kernel *pool = NULL, *whole = NULL, *statistics = NULL;
    pool_desc.window[0] = pool_desc.stride[0] = 1; /* images are (1, 3, 11) */
    EXPECT_OK(rg_pool_create(r->device, &pool_desc, &pool));
    norm_desc.gamma = norm_desc.beta = false;
    EXPECT_OK(rg_batch_norm_create(r->device, &norm_desc, &whole));
    norm_desc.phase = RG_BATCH_NORM_STATISTICS;
    EXPECT_OK(rg_batch_norm_create(r->device, &norm_desc, &statistics));
    expect_own_states(r, pool);
    expect_own_states(r, whole);

    images x = images_of(r->device, RG_F32, false, 1); /* a phase adds to it: one for all */
    rg_state *all = NULL, *one_by_one = NULL;
    rg_tensor *mean = NULL, *wanted = NULL;
    EXPECT_OK(rg_state_create(statistics, x.of, &all));
    EXPECT_OK(rg_state_create(statistics, x.of, &one_by_one));
    rg_state *const shared[IMAGES] = { all, all, all, all, all };
    EXPECT_OK(rg_kernel_forward_batch(statistics, r->commands, IMAGES, x.of, NULL, shared));
    for (int n = 0; n < IMAGES; n++)
        EXPECT_OK(rg_kernel_forward(statistics, r->commands, &x.of[n], NULL, one_by_one));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_state_tensor(all, "mean", &mean));
    EXPECT_OK(rg_state_tensor(one_by_one, "mean", &wanted));
    EXPECT(same_bits(mean, wanted));
    rg_state_destroy(all);
    rg_state_destroy(one_by_one);

    rg_kernel *softmax = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1); /* holds nothing */
    EXPECT_OK(rg_state_create(softmax, x.of, &all));
    rg_state *const empty[IMAGES] = { all, all, all, all, all };
    EXPECT_OK(rg_kernel_forward_batch(softmax, r->commands, IMAGES, x.of, x.of, empty));
    EXPECT_OK(rig_run(r));
    rg_state_destroy(all);
    images_free(&x);
    rg_kernel_destroy(softmax);
    rg_kernel_destroy(pool);
    rg_kernel_destroy(whole);
    rg_kernel_destroy(statistics);
}

/* One call is one read of each temporary in it. */
static void test_counts(rig *r)
{
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    images x = images_of(r->device, RG_F32, true, 1), y = images_of(r->device, RG_F32, true, 2);
    rg_tensor *t = NULL, *u = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x.of[0], true, &t, NULL));
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x.of[1], true, &u, NULL));
    rg_tensor *const in[IMAGES] = { t, t, u, t, x.of[2] };
    EXPECT_OK(rg_tensor_set_read_count(t, 2));
    EXPECT_OK(rg_kernel_forward_batch(kernel, r->commands, IMAGES, in, y.of, NULL));
    EXPECT(rg_tensor_read_count(t) == 1 && rg_tensor_read_count(u) == 0);
    EXPECT_FAILS(rg_kernel_forward_batch(kernel, r->commands, IMAGES, in, y.of, NULL),
                 RG_INVALID_STATE, "image 2");
    EXPECT(rg_tensor_read_count(t) == 1);
    EXPECT_OK(rig_run(r));
    EXPECT(same_bits(y.of[0], y.of[1]) && same_bits(y.of[0], y.of[3]));
    rg_tensor_destroy(t);
    rg_tensor_destroy(u);
    images_free(&x);
    images_free(&y);
    rg_kernel_destroy(kernel);
}

static void test_all_forms(rig *r)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16 };
    for (int i = 0; i < 4; i++) {
        for (int64_t axis = 0; axis < 3; axis++)
            test_forms(r, dtypes[i], i % 2 ? RG_SOFTMAX_LOG : RG_SOFTMAX_PLAIN, axis);
    }
}

int main(void)
{
    rig r = rig_open(2);
    test_parameter(&r);
    rig_close(&r);
    RUN_ON_DEVICES(test_all_forms, test_shared_gradient, test_refused, test_other_images,
                   test_shared_neighbours, test_repeated_state, test_counts);
    return rg_test_report();
}
