/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets from IDX files and by name: what is read, and files that are truncated, changed or
 * malicious. */
#include "tests/opened_set.h"

#include <sys/stat.h>

/* ---- IDX ---- */

static const unsigned char idx_pixels[18] = { 0, 1,  2,  3,  4,  5,  6,  7,   8,
                                              9, 10, 11, 12, 13, 14, 15, 254, 255 };
static const uint32_t idx_dims[] = { 3, 2, 3 };

static void write_idx(const char *name, int rank, const uint32_t dims[], const void *data,
                      size_t size, bool packed)
{
    const bytes plain = idx_of(rank, dims, data, size);
    bytes gzip = { .size = 0 };
    put_gzip(&gzip, plain.data, plain.size);
    write_file(name, packed ? &gzip : &plain);
}

static void test_idx(void)
{
    for (int packed = 0; packed <= RG_HAVE_ZLIB; packed++) {
        const char *images = packed ? "train-images-idx3-ubyte.gz" : "train-images-idx3-ubyte";
        const char *labels = packed ? "train-labels-idx1-ubyte.gz" : "train-labels-idx1-ubyte";
        write_idx(images, 3, idx_dims, idx_pixels, 18, packed);
        write_idx(labels, 1, idx_dims, "\0\2\1", 3, packed);
        EXPECT_OK(open_it("", RG_DATASET_TRAIN));
        EXPECT(holds(3, 2, 3, 1, 3, RG_U8));
        for (int64_t i = 0; i < 3; i++)
            EXPECT(image_is(i, idx_pixels + 6 * i, 6));
        EXPECT(rg_dataset_label(opened, 0) == 0 && rg_dataset_label(opened, 1) == 2 &&
               rg_dataset_label(opened, 2) == 1);
        EXPECT(rg_dataset_label(opened, 3) == -1 && rg_dataset_label(opened, -1) == -1);
        EXPECT(rg_dataset_image(opened, 3) == NULL && rg_dataset_image(opened, -1) == NULL);
        EXPECT(strcmp(rg_dataset_class_name(opened, 2), "2") == 0);
        EXPECT(strcmp(rg_dataset_class_name(opened, 3), "") == 0);
        EXPECT_FAILS(open_it("", RG_DATASET_TEST), RG_INVALID_ARGUMENT, "has no test part");
        clear_files();
    }
    /* Channels; and the classes of both parts. */
    write_idx("train-images-idx4-ubyte", 4, (const uint32_t[]){ 2, 1, 3, 3 }, idx_pixels, 18,
              false);
    write_idx("train-labels-idx1-ubyte", 1, (const uint32_t[]){ 2 }, "\1\0", 2, false);
    write_idx("t10k-labels-idx1-ubyte", 1, (const uint32_t[]){ 4 }, "\1\0\6\2", 4, false);
    EXPECT_OK(open_it("", RG_DATASET_TRAIN));
    EXPECT(holds(2, 1, 3, 3, 7, RG_U8));
    close_it();
    clear_files();
}

static void test_idx_refuses(void)
{
    static const struct {
        const char *words;
        unsigned at;         /* the byte that is changed */
        unsigned char value; /* to this */
        bool labels;         /* in the labels, not in the images */
    } changes[] = {
        { "not an IDX file", 0, 1, false },
        { "not an IDX file", 1, 1, true },
        { "IDX element type is 0d", 2, 13, false },
        { "dimensions, at byte 3", 3, 2, false },
        { "dimensions, at byte 3", 3, 9, false },
        { "ends inside its IDX header", 3, 3, true },
        { "there are no images", 7, 0, false },
        { "channels are not supported", 11, 0, false },
        { "can contain at most", 4, 255, false },
        { "can contain at most", 15, 4, false },
        { "bytes follow", 7, 2, false },
        { "4 labels, at byte 4, but there are 3 images", 7, 4, true },
        { "channels are not supported", 8, 0xff, false },
    };
    bytes images = idx_of(3, idx_dims, idx_pixels, 18), labels = idx_of(1, idx_dims, "\0\2\1", 3);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        bytes *changed = changes[i].labels ? &labels : &images;
        const unsigned char before = changed->data[changes[i].at];
        changed->data[changes[i].at] = changes[i].value;
        write_file("train-images-idx3-ubyte", &images);
        write_file("train-labels-idx1-ubyte", &labels);
        const rg_status status = open_it("", RG_DATASET_TRAIN);
        EXPECT(refused(status));
        EXPECT(strstr(rg_error_text(), changes[i].words) != NULL);
        EXPECT(strstr(rg_error_text(), changes[i].labels ? "train-labels" : "train-images") !=
               NULL);
        changed->data[changes[i].at] = before;
    }
    write_file("train-images-idx3-ubyte", &images);
    EXPECT(unlink(scratch("train-labels-idx1-ubyte")) == 0);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_IO,
                 "the file train-labels-idx1-ubyte is missing");
    make_folder("train-labels-idx1-ubyte");
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_IO, "is not a regular file");
    clear_files();
    EXPECT(mkfifo(scratch("train-images-idx3-ubyte"), 0666) == 0); /* nobody writes: never waits */
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_IO, "is not a regular file");
    clear_files();
}

static void test_idx_damage(void)
{
    for (int packed = 0; packed <= RG_HAVE_ZLIB; packed++) {
        const char *names[2] = { packed ? "train-images-idx3-ubyte.gz" : "train-images-idx3-ubyte",
                                 packed ? "train-labels-idx1-ubyte.gz"
                                        : "train-labels-idx1-ubyte" };
        const bytes plain[2] = { idx_of(3, idx_dims, idx_pixels, 18),
                                 idx_of(1, idx_dims, "\0\2\1", 3) };
        for (int i = 0; i < 2; i++) {
            bytes file = plain[i], other = plain[1 - i];
            if (packed) {
                file.size = other.size = 0;
                put_gzip(&file, plain[i].data, plain[i].size);
                put_gzip(&other, plain[1 - i].data, plain[1 - i].size);
            }
            write_file(names[1 - i], &other);
            try_damage(names[i], &file, "", true);
        }
        clear_files();
    }
}

/* What is declared bounds what is unpacked: 10 MB of zeros behind three images; then images that
 * so short a file cannot hold. */
static void test_bombs(void)
{
    const bytes start = idx_of(3, idx_dims, idx_pixels, 18);
    bytes bomb = { .size = 0 };
    write_idx("train-labels-idx1-ubyte", 1, idx_dims, "\0\2\1", 3, false);
    put_bomb(&bomb, start.data, start.size, 38000);
    write_file("train-images-idx3-ubyte.gz", &bomb);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "extra bytes follow the declared data");
    const bytes many = idx_of(3, (const uint32_t[]){ 0xffffffff, 1000, 1000 }, idx_pixels, 18);
    bomb.size = 0;
    put_bomb(&bomb, many.data, many.size, 100);
    write_file("train-images-idx3-ubyte.gz", &bomb);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED, "can contain at most");
    /* Several streams in a row are one; what follows them is not. */
    bytes parts = { .size = 0 };
    put_gzip(&parts, start.data, 10);
    put_gzip(&parts, start.data + 10, 0);
    put_gzip(&parts, start.data + 10, start.size - 10);
    write_file("train-images-idx3-ubyte.gz", &parts);
    EXPECT_OK(open_it("", RG_DATASET_TRAIN));
    EXPECT(image_is(2, idx_pixels + 12, 6));
    put(&parts, "rest", 4);
    write_file("train-images-idx3-ubyte.gz", &parts);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED, "corrupt at byte");
    clear_files();
}

static void test_without_zlib(void)
{
    bytes gzip = { .size = 0 };
    put_gzip(&gzip, "", 0);
    write_file("train-images-idx3-ubyte.gz", &gzip);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_UNSUPPORTED, "has no zlib");
    clear_files();
}

/* ---- paths and names ---- */

static void test_paths(void)
{
    static char name[6000];
    memset(name, 'n', sizeof name - 1);
    EXPECT_FAILS(rg_dataset_open(name, RG_DATASET_TRAIN, &opened), RG_IO, "cannot be opened");
    EXPECT(strlen(rg_error_text()) < 512);
    EXPECT_FAILS(open_it("missing", RG_DATASET_TRAIN), RG_IO, "missing: cannot be opened");
    EXPECT_FAILS(rg_dataset_open(NULL, RG_DATASET_TRAIN, &opened), RG_INVALID_ARGUMENT, "path");
    EXPECT_FAILS(rg_dataset_open("x", RG_DATASET_TRAIN, NULL), RG_INVALID_ARGUMENT, "set");
    EXPECT_FAILS(rg_dataset_open("x", (rg_dataset_part)3, &opened), RG_INVALID_ARGUMENT, "part 3");
    EXPECT_FAILS(rg_dataset_get_info(NULL, NULL), RG_INVALID_ARGUMENT, "set is NULL");
    EXPECT(rg_dataset_image(NULL, 0) == NULL && rg_dataset_label(NULL, 0) == -1);
    EXPECT(strcmp(rg_dataset_class_name(NULL, 0), "") == 0);
    rg_dataset_destroy(NULL);
}

/* Where Debian's package is installed; the sums are those of the published files. */
static void test_fashion(void)
{
    rg_dataset *set = NULL;
    const rg_status status = rg_dataset_open("fashion-mnist", RG_DATASET_TEST, &set);
    if (status != RG_OK) {
        EXPECT(strstr(rg_error_text(), "dataset-fashion-mnist") != NULL ||
               strstr(rg_error_text(), "zlib") != NULL);
        printf("skipped: %s\n", rg_error_text());
        return;
    }
    rg_dataset_info info = { 0 };
    EXPECT_OK(rg_dataset_get_info(set, &info));
    EXPECT(info.count == 10000 && info.height == 28 && info.width == 28 && info.classes == 10);
    EXPECT(strcmp(rg_dataset_class_name(set, 9), "Ankle boot") == 0);
    int64_t counts[10] = { 0 };
    for (int64_t i = 0; i < info.count; i++)
        counts[rg_dataset_label(set, i)]++;
    for (int i = 0; i < 10; i++)
        EXPECT(counts[i] == 1000);
    rg_dataset_destroy(set);
}

int main(void)
{
    scratch_begin();
    test_idx();
    test_idx_refuses();
    test_idx_damage();
    if (RG_HAVE_ZLIB)
        test_bombs();
    else
        test_without_zlib();
    test_paths();
    test_fashion();
    close_it();
    scratch_end();
    return rg_test_report();
}
