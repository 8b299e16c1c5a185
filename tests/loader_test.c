/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Glyphs, splits, measures, and loaders: what a batch holds, that it depends on nothing but seed,
 * epoch and position, and that a loader ends at any time. */
#include "tests/data_files.h"

#include <retrograde/dataset.h>

#include <math.h>
#include <pthread.h>

static rg_dataset *glyphs_of(uint64_t seed, int64_t count)
{
    rg_dataset *set = NULL;
    EXPECT_OK(rg_dataset_glyphs(seed, count, &set));
    return set;
}

static rg_loader *loader_of(const rg_dataset *set, const rg_loader_desc *desc)
{
    rg_loader *loader = NULL;
    EXPECT_OK(rg_loader_create(set, desc, &loader));
    return loader;
}

/* A set of floats (2, 2, 3, 2) with labels 0 and 1, through a file. */
static rg_dataset *floats(void)
{
    float x[24];
    for (int i = 0; i < 24; i++)
        x[i] = (float)(i % 2 == 0 ? i : 5);
    const bytes images = npy_of("<f4", "False", "2, 2, 3, 2", x, sizeof x);
    const bytes labels = npy_of("|u1", "False", "2,", "\0\1", 2);
    write_file("x.npy", &images);
    write_file("y.npy", &labels);
    rg_dataset *set = NULL;
    EXPECT_OK(rg_dataset_open(scratch_folder, RG_DATASET_TRAIN, &set));
    clear_files();
    return set;
}

/* FNV-1a, to compare with numbers written down. */
static uint64_t hash_of(uint64_t hash, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* ---- sets ---- */

static void test_glyphs(void)
{
    rg_dataset *a = glyphs_of(7, 40), *b = glyphs_of(7, 30), *c = glyphs_of(8, 30);
    rg_dataset_info info = { 0 };
    EXPECT_OK(rg_dataset_get_info(a, &info));
    EXPECT(info.count == 40 && info.height == 28 && info.width == 28 && info.channels == 1 &&
           info.classes == 10 && info.dtype == RG_U8);
    int same = 0;
    for (int64_t i = 0; i < 30; i++) {
        EXPECT(rg_dataset_label(a, i) == i % 10);
        EXPECT(memcmp(rg_dataset_image(a, i), rg_dataset_image(b, i), 784) == 0);
        same += memcmp(rg_dataset_image(a, i), rg_dataset_image(c, i), 784) == 0;
        int ink = 0;
        for (int k = 0; k < 784; k++)
            ink += ((const unsigned char *)rg_dataset_image(a, i))[k] > 128;
        EXPECT(ink > 15 && ink < 300);
    }
    EXPECT(same == 0);
    EXPECT(hash_of(0, rg_dataset_image(a, 0), 40 * 784) ==
           UINT64_C(0xaef811e47971cfc3)); /* everywhere */
    rg_dataset *none = NULL;
    EXPECT_FAILS(rg_dataset_glyphs(0, 0, &none), RG_INVALID_ARGUMENT, "count is 0");
    EXPECT_FAILS(rg_dataset_glyphs(0, INT64_MAX, &none), RG_INVALID_ARGUMENT, "count is");
    EXPECT_FAILS(rg_dataset_glyphs(0, 1, NULL), RG_INVALID_ARGUMENT, "set is NULL");
    rg_dataset_destroy(a);
    rg_dataset_destroy(b);
    rg_dataset_destroy(c);
    EXPECT_OK(rg_dataset_open("glyphs", RG_DATASET_TEST, &none));
    rg_dataset_destroy(none);
}

static void test_split(void)
{
    rg_dataset *all = glyphs_of(1, 101), *train = NULL, *part = NULL, *less = NULL, *least = NULL;
    rg_dataset_info info = { 0 };
    EXPECT_OK(rg_dataset_split(all, 0.2, 3, &train, &part));
    EXPECT_OK(rg_dataset_get_info(train, &info));
    EXPECT(info.count == 81 && info.classes == 10);
    EXPECT_OK(rg_dataset_get_info(part, &info));
    EXPECT(info.count == 20);
    /* Together they are the whole, each image once and in order. */
    int64_t in_train = 0, in_part = 0;
    for (int64_t i = 0; i < 101; i++) {
        const char *image = rg_dataset_image(all, i);
        if (in_train < 81 && rg_dataset_image(train, in_train) == image) {
            EXPECT(rg_dataset_label(train, in_train++) == i % 10);
        } else {
            EXPECT(rg_dataset_image(part, in_part) == image);
            EXPECT(rg_dataset_label(part, in_part++) == i % 10);
        }
    }
    EXPECT(in_train == 81 && in_part == 20);
    /* A part of a part, after all it came from is gone. */
    EXPECT_OK(rg_dataset_split(part, 0.5, 1, &less, &least));
    const void *image = rg_dataset_image(less, 3);
    rg_dataset_destroy(all);
    rg_dataset_destroy(train);
    rg_dataset_destroy(part);
    EXPECT(rg_dataset_image(less, 3) == image && ((const char *)image)[0] >= 0);
    EXPECT(strcmp(rg_dataset_class_name(less, 9), "9") == 0);
    static const double bad[] = { -0.1, 1.1, NAN, INFINITY, 0, 1, 0.001 };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT_FAILS(rg_dataset_split(less, bad[i], 0, &train, &part), RG_INVALID_ARGUMENT,
                     "rg_dataset_split");
        EXPECT(train == NULL && part == NULL);
    }
    rg_dataset_destroy(less);
    rg_dataset_destroy(least);
}

static void test_measure(void)
{
    double mean[RG_DATASET_CHANNELS], deviation[RG_DATASET_CHANNELS];
    rg_dataset *set = floats();
    EXPECT_OK(rg_dataset_measure(set, mean, deviation)); /* 0, 2, …, 22 and always 5 */
    EXPECT(mean[0] == 11 && fabs(deviation[0] - sqrt(143.0 / 3)) < 1e-12);
    EXPECT(mean[1] == 5 && deviation[1] == 1 && mean[2] == 0 && deviation[15] == 1);
    rg_dataset_destroy(set);
    set = glyphs_of(5, 50);
    EXPECT_OK(rg_dataset_measure(set, mean, deviation));
    double sum = 0, squares = 0;
    for (int i = 0; i < 50 * 784; i++) {
        const double x = ((const unsigned char *)rg_dataset_image(set, 0))[i] / 255.0;
        sum += x;
        squares += x * x;
    }
    sum /= 50 * 784;
    squares = sqrt(squares / (50 * 784) - sum * sum);
    EXPECT(fabs(mean[0] - sum) < 1e-12 && fabs(deviation[0] - squares) < 1e-12);
    EXPECT_FAILS(rg_dataset_measure(set, NULL, deviation), RG_INVALID_ARGUMENT, "mean");
    rg_dataset_destroy(set);
}

/* ---- batches ---- */

/* Every image as it is in the set, in order, normalised and rounded to each dtype. */
static void test_values(void)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16 };
    rg_dataset *sets[2] = { glyphs_of(2, 10), floats() };
    for (int k = 0; k < 8; k++) {
        const rg_dataset *set = sets[k / 4];
        rg_dataset_info info = { 0 };
        EXPECT_OK(rg_dataset_get_info(set, &info));
        rg_loader_desc desc = rg_loader_desc_default();
        desc.dtype = dtypes[k % 4];
        desc.shuffle = false;
        desc.batch = 7;
        EXPECT_OK(rg_dataset_measure(set, desc.mean, desc.deviation));
        rg_loader *loader = loader_of(set, &desc);
        const int64_t size = info.height * info.width * info.channels;
        const size_t element = rg_dtype_size(desc.dtype);
        rg_batch batch = { 0 };
        for (int64_t i = 0; i < 2 * info.count; i++) {
            if (i % info.count % 7 == 0)
                EXPECT_OK(rg_loader_next(loader, &batch));
            const int64_t at = i % info.count % 7;
            EXPECT(batch.epoch == i / info.count && batch.position + at == i % info.count);
            EXPECT(batch.indices[at] == i % info.count);
            EXPECT(batch.labels[at] == rg_dataset_label(set, i % info.count));
            const void *from = rg_dataset_image(set, i % info.count);
            for (int64_t j = 0; j < size; j++) {
                const int64_t c = j % info.channels;
                const double x = info.dtype == RG_U8 ? ((const unsigned char *)from)[j] / 255.0
                                                     : (double)((const float *)from)[j];
                const double y = (x - desc.mean[c]) / desc.deviation[c];
                char want[8];
                EXPECT_OK(rg_convert(want, desc.dtype, &y, RG_F64, 1));
                const char *got = (const char *)batch.images + (size_t)(at * size + j) * element;
                if (memcmp(got, want, element) != 0)
                    EXPECT(false);
            }
        }
        rg_loader_destroy(loader);
    }
    rg_dataset_destroy(sets[0]);
    rg_dataset_destroy(sets[1]);
}

static rg_loader_desc busy_desc(uint64_t seed, int64_t batch)
{
    rg_loader_desc desc = rg_loader_desc_default();
    desc.seed = seed;
    desc.batch = batch;
    desc.crop = 3;
    desc.shift = 2;
    desc.mirror = true;
    return desc;
}

/* One number for all that a batch holds. */
static uint64_t batch_hash(const rg_batch *b)
{
    uint64_t hash = hash_of(b->last, b->images, (size_t)b->count * 784 * 4);
    hash = hash_of(hash, b->labels, (size_t)b->count * sizeof *b->labels);
    hash = hash_of(hash, b->indices, (size_t)b->count * sizeof *b->indices);
    hash = hash_of(hash, &b->epoch, sizeof b->epoch);
    return hash_of(hash, &b->position, sizeof b->position);
}

/* Epochs are orders of all images, and differ; the same seed gives the same batches, whatever the
 * number of buffers and the size of a batch. */
static void test_order(void)
{
    rg_dataset *set = glyphs_of(3, 103);
    for (int drop = 0; drop < 2; drop++) {
        int64_t order[2][103], fours[2][103];
        for (int way = 0; way < 2; way++) {
            rg_loader_desc desc = busy_desc(11, way == 0 ? 10 : 4);
            desc.drop_last = drop;
            desc.buffers = way == 0 ? 2 : 16;
            rg_loader *loader = loader_of(set, &desc);
            EXPECT(rg_loader_batches(loader) == 103 / desc.batch + !drop);
            for (int64_t epoch = 0; epoch < 2; epoch++) {
                rg_batch batch = { .last = false };
                bool seen[103] = { false };
                for (int64_t at = 0; !batch.last; at += batch.count) {
                    EXPECT_OK(rg_loader_next(loader, &batch));
                    EXPECT(batch.epoch == epoch && batch.position == at);
                    EXPECT(((uintptr_t)batch.images & 63) == 0);
                    EXPECT(batch.last == (at + 2 * desc.batch > 103 + (drop ? 0 : desc.batch - 1)));
                    EXPECT(batch.count == desc.batch || (!drop && batch.last));
                    for (int64_t i = 0; i < batch.count; i++) {
                        EXPECT(!seen[batch.indices[i]]);
                        seen[batch.indices[i]] = true;
                        (way == 0 ? order : fours)[epoch][at + i] = batch.indices[i];
                    }
                }
            }
            rg_loader_destroy(loader);
        }
        EXPECT(memcmp(order[0], fours[0], 100 * sizeof(int64_t)) == 0);
        EXPECT(memcmp(order[1], fours[1], 100 * sizeof(int64_t)) == 0);
        EXPECT(memcmp(order[0], order[1], 100 * sizeof(int64_t)) != 0);
    }
    rg_dataset_destroy(set);
}

enum { BATCHES = 30 };

/* The hashes of the first batches of three epochs of 103 images. */
static void expected_hashes(const rg_dataset *set, uint64_t hashes[BATCHES], rg_batch kept[BATCHES])
{
    const rg_loader_desc desc = busy_desc(5, 11);
    rg_loader *loader = loader_of(set, &desc);
    for (int i = 0; i < BATCHES; i++) {
        EXPECT_OK(rg_loader_next(loader, &kept[i]));
        hashes[i] = batch_hash(&kept[i]);
    }
    rg_loader_destroy(loader);
}

static void test_seek(void)
{
    rg_dataset *set = glyphs_of(4, 103);
    static uint64_t hashes[BATCHES];
    static rg_batch kept[BATCHES];
    expected_hashes(set, hashes, kept);
    EXPECT(hashes[0] == UINT64_C(0x929e528a09fc72ea)); /* everywhere */
    rg_loader_desc desc = busy_desc(5, 11);
    desc.buffers = 2;
    rg_loader *loader = loader_of(set, &desc);
    rg_dataset_destroy(set); /* the loader keeps it */
    uint64_t seed = 9;
    for (int i = 0; i < 300; i++) {
        int to = (int)(scratch_random(&seed) % BATCHES);
        const int steps = (int)(scratch_random(&seed) % 4);
        if (kept[to].position == 0 && to > 0 && i % 2 == 0) /* the end of the epoch before */
            EXPECT_OK(rg_loader_seek(loader, kept[to].epoch - 1, 103));
        else
            EXPECT_OK(rg_loader_seek(loader, kept[to].epoch, kept[to].position));
        for (int k = 0; k < steps && to < BATCHES; k++, to++) {
            rg_batch batch;
            EXPECT_OK(rg_loader_next(loader, &batch));
            EXPECT(batch_hash(&batch) == hashes[to]);
        }
    }
    /* A position between batches: they begin there, with the same images. */
    rg_batch batch;
    EXPECT_OK(rg_loader_seek(loader, 0, 100));
    EXPECT_OK(rg_loader_next(loader, &batch));
    EXPECT(batch.position == 100 && batch.count == 3 && batch.last);
    EXPECT_OK(rg_loader_next(loader, &batch));
    EXPECT(batch_hash(&batch) == hashes[10]);
    EXPECT_OK(rg_loader_seek(loader, INT64_MAX - 1, 0)); /* far away, and back */
    EXPECT_OK(rg_loader_next(loader, &batch));
    EXPECT(batch.epoch == INT64_MAX - 1);
    EXPECT_FAILS(rg_loader_seek(loader, -1, 0), RG_INVALID_ARGUMENT, "epoch -1");
    EXPECT_FAILS(rg_loader_seek(loader, 0, -1), RG_INVALID_ARGUMENT, "position -1");
    EXPECT_FAILS(rg_loader_seek(loader, 0, 104), RG_INVALID_ARGUMENT, "103 images");
    EXPECT_OK(rg_loader_next(loader, &batch));
    rg_loader_destroy(loader);
}

/* ---- changes ---- */

/* The glyph at a place that is crop and shift away, as the header says. */
static float changed_pixel(const unsigned char *image, int r, int c, const int move[5])
{
    int row = r + move[2], column = (move[4] ? 27 - c : c) + move[3];
    row = (row < 0 ? 0 : row > 27 ? 27 : row) + move[0];
    column = (column < 0 ? 0 : column > 27 ? 27 : column) + move[1];
    const bool inside = row >= 0 && row < 28 && column >= 0 && column < 28;
    return (float)((inside ? image[28 * row + column] : 0) / 255.0);
}

static bool is_changed_by(const float *got, const unsigned char *image, const int move[5])
{
    bool same = true;
    for (int i = 0; i < 784 && same; i++)
        same = got[i] == changed_pixel(image, i / 28, i % 28, move);
    return same;
}

/* Every image is the original changed by one of the allowed moves, and all moves happen. `size`: of
 * the change, `kind`: 0 crop, 1 shift, 2 mirror alone. */
static void test_changes(void)
{
    rg_dataset *set = glyphs_of(6, 60);
    for (int kind = 0; kind < 3; kind++) {
        rg_loader_desc desc = rg_loader_desc_default();
        desc.batch = 60;
        desc.mirror = kind == 2;
        desc.crop = kind == 0 ? 2 : 0;
        desc.shift = kind == 1 ? 2 : 0;
        rg_loader *loader = loader_of(set, &desc);
        int seen[25] = { 0 }, found = 0;
        for (int epoch = 0; epoch < 5; epoch++) {
            rg_batch batch;
            EXPECT_OK(rg_loader_next(loader, &batch));
            for (int64_t i = 0; i < 60; i++) {
                const unsigned char *image = rg_dataset_image(set, batch.indices[i]);
                const float *got = (const float *)batch.images + 784 * i;
                for (int k = 0; k < 25; k++) {
                    const int r = k / 5 - 2, c = k % 5 - 2;
                    const int moves[3][5] = { { r, c }, { 0, 0, r, c }, { 0, 0, 0, 0, k % 2 } };
                    if ((kind < 2 || k < 2) && is_changed_by(got, image, moves[kind])) {
                        seen[k]++;
                        found++;
                        break;
                    }
                }
            }
        }
        EXPECT(found == 300);
        for (int k = 0; k < (kind < 2 ? 25 : 2); k++)
            EXPECT(kind < 2 ? seen[k] > 0 && seen[k] < 40 : seen[k] > 110 && seen[k] < 190);
        rg_loader_destroy(loader);
    }
    rg_dataset_destroy(set);
}

/* ---- wrong descriptors, many loaders ---- */

static void test_refuses(void)
{
    rg_dataset *set = glyphs_of(0, 5);
    const rg_loader_desc good = rg_loader_desc_default();
    rg_loader_desc bad[12];
    for (int i = 0; i < 12; i++)
        bad[i] = good;
    bad[0].size = 0;
    bad[1].size = sizeof good + 8;
    bad[2].dtype = RG_I32;
    bad[3].batch = 0;
    bad[4].batch = INT64_MAX;
    bad[5].drop_last = true; /* 5 images, batches of 128 */
    bad[6].crop = -1;
    bad[7].shift = 1025;
    bad[8].buffers = 1;
    bad[9].mean[0] = NAN;
    bad[10].deviation[0] = 0;
    bad[11].deviation[0] = INFINITY;
    rg_loader *loader = NULL;
    for (int i = 0; i < 12; i++) {
        EXPECT_FAILS(rg_loader_create(set, &bad[i], &loader), RG_INVALID_ARGUMENT,
                     "rg_loader_create: ");
        EXPECT(loader == NULL);
    }
    EXPECT_FAILS(rg_loader_create(NULL, &good, &loader), RG_INVALID_ARGUMENT, "set is NULL");
    EXPECT_FAILS(rg_loader_create(set, NULL, &loader), RG_INVALID_ARGUMENT, "desc is NULL");
    EXPECT_FAILS(rg_loader_create(set, &good, NULL), RG_INVALID_ARGUMENT, "loader is NULL");
    EXPECT_FAILS(rg_loader_next(NULL, NULL), RG_INVALID_ARGUMENT, "loader is NULL");
    EXPECT_FAILS(rg_loader_seek(NULL, 0, 0), RG_INVALID_ARGUMENT, "loader is NULL");
    EXPECT(rg_loader_batches(NULL) == 0);
    rg_loader_destroy(NULL);
    rg_dataset_destroy(set);
}

/* Destroyed at once, after a batch, after a seek, while batches are being made. */
static void test_destroyed(void)
{
    rg_dataset *set = glyphs_of(1, 64);
    uint64_t seed = 1;
    for (int i = 0; i < 1000; i++) {
        rg_loader_desc desc = busy_desc((uint64_t)i, 1 + i % 70);
        desc.buffers = 2 + i % 3;
        rg_loader *loader = loader_of(set, &desc);
        rg_batch batch;
        for (uint64_t k = scratch_random(&seed) % 4; k > 0; k--) {
            if (scratch_random(&seed) % 4 == 0)
                EXPECT_OK(rg_loader_seek(loader, i, i % 64));
            EXPECT_OK(rg_loader_next(loader, &batch));
        }
        if (i % 3 == 0)
            usleep((useconds_t)(scratch_random(&seed) % 200));
        rg_loader_destroy(loader);
    }
    rg_dataset_destroy(set);
}

static void *use_set(void *context)
{
    rg_dataset *set = context, *train = NULL, *part = NULL;
    for (int i = 0; i < 10; i++) {
        if (rg_dataset_split(set, 0.5, (uint64_t)i, &train, &part) != RG_OK)
            return "split";
        const rg_loader_desc desc = busy_desc(1, 8);
        rg_loader *loader = NULL;
        if (rg_loader_create(part, &desc, &loader) != RG_OK)
            return "create";
        rg_dataset_destroy(train);
        rg_dataset_destroy(part);
        rg_batch batch;
        for (int k = 0; k < 5; k++)
            (void)rg_loader_next(loader, &batch);
        rg_loader_destroy(loader);
    }
    return NULL;
}

/* One set, many threads. */
static void test_shared(void)
{
    rg_dataset *set = glyphs_of(1, 64);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_create(&threads[i], NULL, use_set, set) == 0);
    for (int i = 0; i < 4; i++) {
        void *problem = set;
        EXPECT(pthread_join(threads[i], &problem) == 0 && problem == NULL);
    }
    rg_dataset_destroy(set);
}

int main(void)
{
    scratch_begin();
    test_glyphs();
    test_split();
    test_measure();
    test_values();
    test_order();
    test_seek();
    test_changes();
    test_refuses();
    test_destroyed();
    test_shared();
    scratch_end();
    return rg_test_report();
}
