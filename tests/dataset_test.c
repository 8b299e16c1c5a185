/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets from files: every kind that is read, and files that are cut, changed or made to harm.
 */
#include "tests/data_files.h"

#include <retrograde/dataset.h>

#include <sys/stat.h>

static rg_dataset *opened; /* by the last open_it */

/* Opens something in the scratch folder, "" for the folder itself. */
static rg_status open_it(const char *name, rg_dataset_part part)
{
    rg_dataset_destroy(opened);
    const rg_status status =
        rg_dataset_open(name[0] != 0 ? scratch(name) : scratch_folder, part, &opened);
    EXPECT((status == RG_OK) == (opened != NULL));
    return status;
}

static void close_it(void)
{
    rg_dataset_destroy(opened);
    opened = NULL;
}

/* Refused, for one of the reasons that a file can give, with a sentence that names the path. */
static bool refused(rg_status status)
{
    const bool lacks = status == RG_INVALID_ARGUMENT && strstr(rg_error_text(), "has no ") != NULL;
    return (status == RG_MALFORMED || status == RG_UNSUPPORTED || status == RG_IO || lacks) &&
           strstr(rg_error_text(), scratch_folder) != NULL && opened == NULL;
}

static bool holds(int64_t count, int64_t height, int64_t width, int64_t channels, int32_t classes,
                  rg_dtype dtype)
{
    rg_dataset_info info = { 0 };
    EXPECT_OK(rg_dataset_get_info(opened, &info));
    return info.count == count && info.height == height && info.width == width &&
           info.channels == channels && info.classes == classes && info.dtype == dtype;
}

static bool image_is(int64_t index, const void *pixels, size_t size)
{
    const void *image = rg_dataset_image(opened, index);
    return image != NULL && memcmp(image, pixels, size) == 0;
}

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

/* Writes every beginning of a file, and opens it; then the file with each byte changed. */
static void try_damage(const char *name, const bytes *file, const char *path, bool flips)
{
    bytes damaged = *file;
    for (damaged.size = 0; damaged.size < file->size; damaged.size++) {
        write_file(name, &damaged);
        EXPECT(refused(open_it(path, RG_DATASET_TRAIN)));
    }
    static const unsigned char masks[] = { 0x01, 0x80, 0xff };
    for (size_t i = 0; flips && i < 3 * file->size; i++) {
        damaged.data[i / 3] ^= masks[i % 3];
        write_file(name, &damaged);
        const rg_status status = open_it(path, RG_DATASET_TRAIN);
        EXPECT(status == RG_OK || refused(status));
        damaged.data[i / 3] ^= masks[i % 3];
    }
    write_file(name, file);
    EXPECT_OK(open_it(path, RG_DATASET_TRAIN));
    close_it();
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

/* ---- NPY and NPZ ---- */

static void test_npy_folder(void)
{
    const unsigned char pixels[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
    const int64_t labels[2] = { 3, 0 };
    const bytes x = npy_of("|u1", "False", "2, 2, 3", pixels, 12);
    const bytes y = npy_of("<i8", "False", "2,", labels, 16);
    write_file("x.npy", &x);
    write_file("y.npy", &y);
    EXPECT_OK(open_it("", RG_DATASET_TRAIN));
    EXPECT(holds(2, 2, 3, 1, 4, RG_U8) && image_is(1, pixels + 6, 6));
    EXPECT(rg_dataset_label(opened, 0) == 3 && rg_dataset_label(opened, 1) == 0);
    EXPECT_FAILS(open_it("", RG_DATASET_TEST), RG_INVALID_ARGUMENT, "has no test part");
    try_damage("x.npy", &x, "", true);
    try_damage("y.npy", &y, "", true);
    EXPECT(unlink(scratch("y.npy")) == 0);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED, "the labels y.npy are missing");
    clear_files();
}

/* Opens x and y as an archive. */
static rg_status open_pair(const bytes *x, const bytes *y, int how)
{
    static archive zip;
    zip = (archive){ .entries = 0 };
    zip_add(&zip, "x.npy", how, x);
    zip_add(&zip, "y.npy", how, y);
    zip_end(&zip, (how & ZIP_LARGE) != 0);
    write_file("set.npz", &zip.file);
    return open_it("set.npz", RG_DATASET_TRAIN);
}

static void test_npz_types(void)
{
    const float f4[6] = { -1, 0.5f, 2, 3, 4, 1e30f };
    const double f8[6] = { -1, 0.5, 2, 3, 4, 1e30 };
    const unsigned char swapped[6] = { 0xbc, 0, 0x38, 0, 0x40, 0 }; /* f2: -1, 0.5, 2 */
    const unsigned char y1[2] = { 1, 0 };
    const int32_t y4[2] = { 1, 0 };
    const bytes y[] = { npy_of("|u1", "False", "2,", y1, 2),
                        npy_of("<i4", "False", "2, 1", y4, 8) };
    const int hows[] = { ZIP_STORED, ZIP_STORED | ZIP_LARGE, ZIP_DEFLATED };
    for (int i = 0; i < 2 + RG_HAVE_ZLIB; i++) {
        bytes x = npy_of("<f4", "False", "2, 1, 3, 1", f4, sizeof f4);
        EXPECT_OK(open_pair(&x, &y[i % 2], hows[i]));
        EXPECT(holds(2, 1, 3, 1, 2, RG_F32) && image_is(0, f4, 12) && image_is(1, f4 + 3, 12));
        x = npy_of("<f8", "False", "2, 3", f8, sizeof f8);
        EXPECT_OK(open_pair(&x, &y[i % 2], hows[i]));
        EXPECT(holds(2, 1, 3, 1, 2, RG_F32) && image_is(1, f4 + 3, 12));
        x = npy_of(">f2", "False", "2, 1", swapped, 4);
        EXPECT_OK(open_pair(&x, &y[i % 2], hows[i]));
        EXPECT(holds(2, 1, 1, 1, 2, RG_F32) && image_is(0, f4, 4) && image_is(1, f4 + 1, 4));
        EXPECT(rg_dataset_label(opened, 0) == 1 && rg_dataset_label(opened, 1) == 0);
    }
    /* Fortran's order: element (n, h, w) of (2, 2, 3) is 100 n + 10 h + w. */
    unsigned char stored[12], dense[12];
    for (int n = 0; n < 2; n++) {
        for (int h = 0; h < 2; h++) {
            for (int w = 0; w < 3; w++)
                stored[n + 2 * h + 4 * w] = dense[6 * n + 3 * h + w] =
                    (unsigned char)(100 * n + 10 * h + w);
        }
    }
    const bytes x = npy_of("|u1", "True", "2, 2, 3", stored, 12);
    EXPECT_OK(open_pair(&x, &y[0], ZIP_STORED));
    EXPECT(holds(2, 2, 3, 1, 2, RG_U8) && image_is(0, dense, 6) && image_is(1, dense + 6, 6));
    close_it();
    clear_files();
}

static void test_npz_parts(void)
{
    static archive zip;
    const bytes x = npy_of("|u1", "False", "3, 1, 2", "abcdef", 6);
    const bytes y = npy_of("|u1", "False", "3,", "\0\1\0", 3);
    const bytes x_test = npy_of("|u1", "False", "1, 1, 2", "gh", 2);
    const bytes y_test = npy_of("|u1", "False", "1,", "\5", 1);
    zip_add(&zip, "x_train.npy", ZIP_STORED, &x);
    zip_add(&zip, "y_test.npy", ZIP_STORED, &y_test);
    zip_add(&zip, "x_test.npy", ZIP_STORED, &x_test);
    zip_add(&zip, "y_train.npy", ZIP_STORED, &y);
    zip_end(&zip, false);
    write_file("set.npz", &zip.file);
    EXPECT_OK(open_it("set.npz", RG_DATASET_TRAIN));
    EXPECT(holds(3, 1, 2, 1, 6, RG_U8) && image_is(2, "ef", 2));
    EXPECT_OK(open_it("set.npz", RG_DATASET_TEST));
    EXPECT(holds(1, 1, 2, 1, 6, RG_U8) && image_is(0, "gh", 2));
    EXPECT(rg_dataset_label(opened, 0) == 5);
    close_it();
    clear_files();
}

static void test_npz_refuses(void)
{
    const int64_t low[2] = { 0, -1 }, high[2] = { 65536, 0 }, huge[2] = { INT64_MAX, INT64_MIN };
    const bytes x = npy_of("|u1", "False", "2, 1, 2", "abcd", 4);
    const bytes y = npy_of("|u1", "False", "2,", "\0\1", 2);
    const struct {
        bytes x, y;
        const char *words;
    } bad[] = {
        { x, npy_of("<i8", "False", "2,", low, 16), "label 1 is -1" },
        { x, npy_of("<i8", "False", "2,", high, 16), "label 0 is 65536" },
        { x, npy_of("<i8", "False", "2,", huge, 16), "label 0 is 9223372036854775807" },
        { x, npy_of("|u1", "False", "3,", "\0\1\0", 3), "3 labels for 2 images" },
        { x, npy_of("|u1", "False", "2, 2", "\0\1\0\1", 4), "(n, 1)" },
        { x, npy_of("<f4", "False", "2,", low, 8), "labels have the dtype f32" },
        { npy_of("<i4", "False", "2, 2", low, 16), y, "pixels have the dtype i32" },
        { npy_of("|u1", "False", "2,", "ab", 2), y, "1 dimensions" },
        { npy_of("|u1", "False", "1, 1, 1, 1, 1", "a", 1), y, "5 dimensions" },
        { npy_of("|u1", "False", "0, 2", "", 0), y, "there are no images" },
        { npy_of("|u1", "False", "2, 0", "", 0), y, "channels are not supported" },
        { npy_of("|u1", "False", "1, 1, 1, 17", "abcdefghijklmnopq", 17), y, "17 channels" },
        { npy_of("|u1", "False", "2, 3", "abcd", 4), y, "can contain at most" },
        { npy_of("|u1", "False", "2, 1", "abcd", 4), y, "bytes follow" },
        { npy_of("|u1", "False", "9223372036854775807, 9223372036854775807", "", 0), y, "x.npy" },
        { npy_of("|O8", "False", "2, 1", "", 0), y, "x.npy" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT(refused(open_pair(&bad[i].x, &bad[i].y, ZIP_STORED)));
        EXPECT(strstr(rg_error_text(), bad[i].words) != NULL);
        EXPECT(strstr(rg_error_text(), "set.npz: member ") != NULL);
    }
    bytes none = { .size = 0 };
    put(&none, "nothing of the kind, but longer than the end of an archive", 50);
    write_file("set.npz", &none);
    EXPECT_FAILS(open_it("set.npz", RG_DATASET_TRAIN), RG_MALFORMED, "not a ZIP archive");
    clear_files();
}

/* One entry's number after the other is made wrong. Offsets are those of an entry without `PK12`.
 */
static void test_npz_directory(void)
{
    static const struct {
        int at, count; /* bytes of the entry of x.npy */
        uint64_t value;
        const char *words;
    } changes[] = {
        { 8, 2, 1, "encrypted" },
        { 10, 2, 14, "method 14" },
        { 16, 4, 0, "checksum" },
        { 20, 4, 1, "stored, but its sizes" },
        { 24, 4, 1, "stored, but its sizes" },
        { 20, 8, UINT64_C(0x0001000000010000), "declared to have 65536 bytes" },
        { 28, 2, 65535, "runs past its end" },
        { 28, 2, 4, "the ZIP directory has no entry" },
        { 30, 2, 65535, "runs past its end" },
        { 32, 2, 65535, "runs past its end" },
        { 42, 4, 0xfffffff0, "declared to start at byte" },
        { 42, 4, 5, "no local header at byte 5" },
        { 0, 1, 'Q', "the ZIP directory has no entry" },
    };
    static archive zip;
    const bytes x = npy_of("|u1", "False", "2, 1, 2", "abcd", 4);
    const bytes y = npy_of("|u1", "False", "2,", "\0\1", 2);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        zip = (archive){ .entries = 0 };
        zip_add(&zip, "x.npy", ZIP_STORED, &x);
        zip_add(&zip, "y.npy", ZIP_STORED, &y);
        for (int k = 0; k < changes[i].count; k++)
            zip.directory.data[changes[i].at + k] = (unsigned char)(changes[i].value >> 8 * k);
        zip_end(&zip, false);
        write_file("set.npz", &zip.file);
        EXPECT(refused(open_it("set.npz", RG_DATASET_TRAIN)));
        EXPECT(strstr(rg_error_text(), changes[i].words) != NULL);
    }
    zip = (archive){ .entries = 0 };
    zip_add(&zip, "x.npy", ZIP_STORED, &x);
    zip_add(&zip, "x.npy", ZIP_STORED, &x);
    zip_end(&zip, false);
    write_file("set.npz", &zip.file);
    EXPECT_FAILS(open_it("set.npz", RG_DATASET_TRAIN), RG_MALFORMED, "appears twice");
    clear_files();
}

static void test_npz_damage(void)
{
    static archive zip;
    const int hows[] = { ZIP_STORED, ZIP_STORED | ZIP_LARGE, ZIP_DEFLATED };
    const bytes x = npy_of("|u1", "False", "2, 1, 2", "abcd", 4);
    const bytes y = npy_of("|u1", "False", "2,", "\0\1", 2);
    for (int i = 0; i < 2 + RG_HAVE_ZLIB; i++) {
        zip = (archive){ .entries = 0 };
        zip_add(&zip, "x.npy", hows[i], &x);
        zip_add(&zip, "y.npy", hows[i], &y);
        zip_end(&zip, (hows[i] & ZIP_LARGE) != 0);
        try_damage("set.npz", &zip.file, "set.npz", true);
    }
    clear_files();
}

/* ---- PNG ---- */

static void write_png(const char *name, uint32_t width, uint32_t height, int depth, int kind,
                      const void *rows, size_t size)
{
    bytes png = png_start(width, height, depth, kind, 0);
    if (kind == 3) {
        png_chunk(&png, "PLTE", "\xff\x00\x00\x00\xff\x00\x00\x00\xff", 9);
        png_chunk(&png, "tRNS", "\xff\x80", 2);
    }
    png_chunk(&png, "gAMA", "\0\1\x86\xa0", 4); /* 1.0; is not looked at */
    png_chunk(&png, "teXt", "\0", 1);
    png_end(&png, rows, size);
    write_file(name, &png);
}

/* One image of each kind, alone in a set: what it becomes as grey or as RGB. */
static void test_png_kinds(void)
{
    static const struct {
        const char *rows; /* with filter bytes: 2 x 1 pixels */
        size_t size;
        int depth, kind, channels;
        const char *pixels;
    } kinds[] = {
        { "\0\x10\xff", 3, 8, 0, 1, "\x10\xff" },
        { "\0\x40", 2, 1, 0, 1, "\x00\xff" },
        { "\0\x60", 2, 2, 0, 1, "\x55\xaa" },
        { "\0\x1f", 2, 4, 0, 1, "\x11\xff" },
        { "\0\x10\x10\xff\xff", 5, 16, 0, 1, "\x10\xff" },
        { "\0\x10\xff\xff\x80", 5, 8, 4, 1, "\x10\x80" },
        { "\0\x01\x02\x03\xfd\xfe\xff", 7, 8, 2, 3, "\x01\x02\x03\xfd\xfe\xff" },
        { "\0\x01\x01\x02\x02\x03\x03\xfd\xfd\xfe\xfe\xff\xff", 13, 16, 2, 3,
          "\x01\x02\x03\xfd\xfe\xff" },
        { "\0\x01\x02\x03\xff\xfd\xfe\xff\x00", 9, 8, 6, 3, "\x01\x02\x03\x00\x00\x00" },
        { "\0\x02\x01", 3, 8, 3, 3, "\x00\x00\xff\x00\x80\x00" },
        { "\0\x90", 2, 2, 3, 3, "\x00\x00\xff\x00\x80\x00" },
    };
    make_folder("one");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        write_png("one/a.png", 2, 1, kinds[i].depth, kinds[i].kind, kinds[i].rows, kinds[i].size);
        EXPECT_OK(open_it("", RG_DATASET_TRAIN));
        EXPECT(holds(1, 1, 2, kinds[i].channels, 1, RG_U8));
        EXPECT(image_is(0, kinds[i].pixels, 2 * (size_t)kinds[i].channels));
    }
    EXPECT(strcmp(rg_dataset_class_name(opened, 0), "one") == 0);
    close_it();
    clear_files();
}

/* 3 x 3 pixels by Adam's seven passes: the first one stands at (0, 0), then … */
static void test_png_interlaced(void)
{
    /* 1: (0,0); 2, 3: none; 4: (0,2); 5: row 2, columns 0 and 2; 6: (0,1), (2,1); 7: row 1 */
    static const char rows[] = "\0\x01"
                               "\0\x03"
                               "\0\x07\x09"
                               "\0\x02\0\x08"
                               "\0\x04\x05\x06";
    bytes png = png_start(3, 3, 8, 0, 1);
    png_end(&png, rows, sizeof rows - 1);
    make_folder("one");
    write_file("one/a.PNG", &png);
    EXPECT_OK(open_it("", RG_DATASET_TRAIN));
    EXPECT(holds(1, 3, 3, 1, 1, RG_U8) && image_is(0, "\1\2\3\4\5\6\7\x08\x09", 9));
    close_it();
    clear_files();
}

/* Classes by name; the first image decides about channels and size. */
static void test_png_classes(void)
{
    make_folder("b");
    make_folder("a");
    make_folder("\xc3\xa4"); /* a name that is not ASCII */
    make_folder(".hidden");
    scratch_write("notes.txt", "", 0);
    scratch_write("a/notes.txt", "", 0);
    write_png("b/1.png", 2, 1, 8, 2, "\0\xff\0\0\x64\x64\x64", 7);
    write_png("a/2.png", 2, 1, 8, 0, "\0\x03\x04", 3);
    write_png("a/1.png", 2, 1, 8, 0, "\0\x01\x02", 3);
    EXPECT_OK(open_it("", RG_DATASET_TRAIN));
    EXPECT(holds(3, 1, 2, 1, 3, RG_U8));
    EXPECT(image_is(0, "\1\2", 2) && image_is(1, "\3\4", 2) && image_is(2, "\x4c\x64", 2));
    EXPECT(rg_dataset_label(opened, 1) == 0 && rg_dataset_label(opened, 2) == 1);
    EXPECT(strcmp(rg_dataset_class_name(opened, 1), "b") == 0 &&
           strcmp(rg_dataset_class_name(opened, 2), "\xc3\xa4") == 0);
    EXPECT_FAILS(open_it("", RG_DATASET_TEST), RG_INVALID_ARGUMENT, "has no test part");

    write_png("b/0.png", 1, 2, 8, 0, "\0\x03\0\x04", 4);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "b/0.png: the image has 2 x 1 pixels, but the first image has 1 x 2");
    scratch_write("b/0.png", "no image", 8);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED, "b/0.png: this is not a PNG");
    EXPECT(unlink(scratch("b/0.png")) == 0);
    make_folder("c\xff\x1b");
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "c??: the class name is not valid UTF-8");
    clear_files();
}

static void test_png_parts(void)
{
    static const char *const folders[] = { "train", "train/cat", "train/dog",
                                           "val",   "val/dog",   "val/empty" };
    for (int i = 0; i < 5; i++)
        make_folder(folders[i]);
    write_png("train/cat/1.png", 2, 1, 8, 2, "\0\1\2\3\4\5\6", 7);
    write_png("train/dog/1.png", 2, 1, 8, 0, "\0\7\x08", 3);
    write_png("val/dog/1.png", 2, 1, 8, 2, "\0\1\2\3\4\5\6", 7);
    EXPECT_OK(open_it("", RG_DATASET_TRAIN));
    EXPECT(holds(2, 1, 2, 3, 2, RG_U8) && image_is(1, "\7\7\7\x08\x08\x08", 6));
    EXPECT_OK(open_it("", RG_DATASET_TEST));
    EXPECT(holds(1, 1, 2, 3, 2, RG_U8) && rg_dataset_label(opened, 0) == 1);
    make_folder(folders[5]);
    EXPECT_FAILS(open_it("", RG_DATASET_TEST), RG_MALFORMED,
                 "the class empty does not exist in train");
    close_it();
    clear_files();
}

static void test_png_damage(void)
{
    bytes png = png_start(3, 2, 8, 2, 0);
    png_end(&png, "\0\1\2\3\4\5\6\7\x08\x09\0\1\2\3\4\5\6\7\x08\x09", 20);
    make_folder("one");
    try_damage("one/a.png", &png, "", true);
    bytes large = png_start(1000000, 1000000, 16, 6, 0);
    png_end(&large, "\0", 1);
    write_file("one/a.png", &large);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED, "cannot be compressed into");
    clear_files();
}

static void test_png_folders(void)
{
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED, "contains no data set");
    make_folder("one");
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "the class folders contain no PNG files");
    make_folder("one/a.png");
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "the class folders contain no PNG files");
    write_png("one/b.png", 2, 1, 8, 0, "\0\3\4", 3);
    if (!RG_HAVE_PNG)
        EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_UNSUPPORTED, "has no libpng");
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
    EXPECT_FAILS(rg_dataset_open("x", (rg_dataset_part)2, &opened), RG_INVALID_ARGUMENT, "part 2");
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
    test_npy_folder();
    test_npz_types();
    test_npz_parts();
    test_npz_refuses();
    test_npz_directory();
    test_npz_damage();
    if (RG_HAVE_PNG) {
        test_png_kinds();
        test_png_interlaced();
        test_png_classes();
        test_png_parts();
        test_png_damage();
    }
    test_png_folders();
    test_paths();
    test_fashion();
    close_it();
    scratch_end();
    return rg_test_report();
}
