/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets from NPY files and NPZ archives: what is read, and files that are cut, changed or made
 * to harm. */
#include "tests/opened_set.h"

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

/* Labels of any integers, and targets in Fortran's order. */
static void test_npy_labels(void)
{
    const unsigned char pixels[2] = { 1, 2 };
    const unsigned char little[16] = { 3, 0, 1 }, negative[2] = { 255, 0 };
    const float columns[6] = { 1, 4, 2, 5, 3, 6 }; /* (2, 3) in Fortran's order */
    const bytes x = npy_of("|u1", "False", "2, 1", pixels, 2);
    const struct {
        const char *descr;
        const unsigned char *data;
        size_t size;
        int32_t first, second;
    } kinds[] = { { "|i1", little, 2, 3, 0 },      { "<i2", little, 4, 3, 1 },
                  { "<u2", little, 4, 3, 1 },      { ">u2", little + 1, 4, 1, 0 },
                  { "<u8", little + 2, 16, 1, 0 }, { "<u4", little + 2, 8, 1, 0 } };
    static unsigned char padded[32];
    memcpy(padded, little, sizeof little);
    write_file("x.npy", &x);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const unsigned char *data = padded + (kinds[i].data - little);
        const bytes y = npy_of(kinds[i].descr, "False", "2,", data, kinds[i].size);
        write_file("y.npy", &y);
        EXPECT_OK(open_it("", RG_DATASET_TRAIN));
        EXPECT(rg_dataset_label(opened, 0) == kinds[i].first);
        EXPECT(rg_dataset_label(opened, 1) == kinds[i].second);
    }
    bytes y = npy_of("|i1", "False", "2,", negative, 2);
    write_file("y.npy", &y);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED, "label 0 is -1");
    y = npy_of("<f4", "True", "2, 3", columns, sizeof columns);
    write_file("y.npy", &y);
    EXPECT_OK(open_it("", RG_DATASET_TRAIN));
    const float *first = rg_dataset_values(opened, 0), *second = rg_dataset_values(opened, 1);
    EXPECT(first[0] == 1 && first[1] == 2 && first[2] == 3);
    EXPECT(second[0] == 4 && second[1] == 5 && second[2] == 6);
    close_it();
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

/* Columns of a table are measured one by one; numbers from 0 to 1 may be pixels. */
static void test_columns(void)
{
    const float table[6] = { -1, 1000, 5, 3, 2000, 5 }, pixels[6] = { 0, 1, 0.5f, 0.5f, 0, 1 };
    const int32_t labels[2] = { 1, 0 };
    const bytes y = npy_of("<i4", "False", "2,", labels, sizeof labels);
    bytes x = npy_of("<f4", "False", "2, 3", table, sizeof table);
    double mean[3], deviation[3];
    int64_t columns = -1;
    EXPECT_OK(open_pair(&x, &y, ZIP_STORED));
    EXPECT_OK(rg_dataset_measure_columns(opened, &columns, mean, deviation));
    EXPECT(columns == 3 && mean[0] == 1 && mean[1] == 1500 && mean[2] == 5);
    EXPECT(deviation[0] == 2 && deviation[1] == 500 && deviation[2] == 1); /* 1: all are equal */
    columns = -1;
    EXPECT_OK(rg_dataset_measure_columns(opened, &columns, NULL, NULL));
    EXPECT(columns == 3);
    x = npy_of("<f4", "False", "2, 3", pixels, sizeof pixels);
    EXPECT_OK(open_pair(&x, &y, ZIP_STORED));
    EXPECT_OK(rg_dataset_measure_columns(opened, &columns, mean, deviation));
    EXPECT(columns == 0);
    EXPECT_FAILS(rg_dataset_measure_columns(opened, NULL, mean, deviation), RG_INVALID_ARGUMENT,
                 "columns");
    close_it();
    clear_files();
}

static void test_npz_parts(bool is_matrix)
{
    static archive zip;
    zip = (archive){ 0 };
    const bytes x = npy_of("|u1", "False", "3, 1, 2", "abcdef", 6);
    const bytes y = npy_of("|u1", "False", "3,", "\0\1\0", 3);
    const bytes x_test = npy_of("|u1", "False", "1, 1, 2", "gh", 2);
    const bytes y_test = npy_of("|u1", "False", "1,", "\5", 1);
    zip_add(&zip, is_matrix ? "X_train.npy" : "x_train.npy", ZIP_STORED, &x);
    zip_add(&zip, "y_test.npy", ZIP_STORED, &y_test);
    zip_add(&zip, is_matrix ? "X_test.npy" : "x_test.npy", ZIP_STORED, &x_test);
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

/* Labels of several classes, values and masks; images of one and of five dimensions. */
static void test_npz_targets(void)
{
    static const float values[] = { 0.5f, -1, 2, 3 };
    const bytes x = npy_of("|u1", "False", "2,", "ab", 2);
    const bytes deep = npy_of("|u1", "False", "2, 1, 2, 3, 1", "abcdefghijkl", 12);
    const bytes labels = npy_of("|u1", "False", "2, 3", "\0\1\1\0\0\0", 6);
    const bytes dense = npy_of("<f4", "False", "2, 2", values, sizeof values);
    const bytes mask = npy_of("|u1", "False", "2, 2, 3", "\0\1\2\0\0\0\4\0\0\0\0\1", 12);
    rg_dataset_info info = { 0 };
    EXPECT_OK(open_pair(&x, &labels, ZIP_STORED));
    EXPECT_OK(rg_dataset_get_info(opened, &info));
    EXPECT(info.target == RG_TARGET_LABELS && info.targets == 3 && info.classes == 3);
    EXPECT(holds(2, 1, 1, 1, 3, RG_U8) && rg_dataset_values(opened, 0)[2] == 1);
    EXPECT(rg_dataset_label(opened, 0) == -1 && rg_dataset_mask(opened, 0) == NULL);
    EXPECT_OK(open_pair(&deep, &dense, ZIP_STORED));
    EXPECT_OK(rg_dataset_get_info(opened, &info));
    EXPECT(info.target == RG_TARGET_VALUES && holds(2, 1, 6, 1, 2, RG_U8));
    EXPECT(rg_dataset_values(opened, 1)[0] == 2 && rg_dataset_values(opened, 2) == NULL);
    EXPECT_OK(open_pair(&deep, &mask, ZIP_STORED));
    EXPECT_OK(rg_dataset_get_info(opened, &info));
    EXPECT(info.target == RG_TARGET_MASK && info.targets == 6 && info.classes == 5);
    EXPECT(rg_dataset_mask(opened, 1)[0] == 4 && rg_dataset_values(opened, 1) == NULL);
    close_it();
    clear_files();
}

/* Both parts have targets of one kind, number and shape, and masks have the size of images. */
static void test_npz_parts_differ(void)
{
    static const float values[] = { 0.5f, -1, 2 };
    const bytes x = npy_of("|u1", "False", "1, 2, 3", "abcdef", 6);
    const bytes y[] = { npy_of("|u1", "False", "1,", "\7", 1),
                        npy_of("|u1", "False", "1, 2", "\0\1", 2),
                        npy_of("|u1", "False", "1, 3", "\0\1\1", 3),
                        npy_of("<f4", "False", "1, 2", values, 8),
                        npy_of("<f4", "False", "1, 3", values, 12),
                        npy_of("|u1", "False", "1, 2, 3", "\0\1\2\0\0\0", 6) };
    const bytes sizes[] = { npy_of("|u1", "False", "1, 3, 2", "\0\1\2\0\0\0", 6),
                            npy_of("|u1", "False", "1, 1, 2", "\0\1", 2),
                            npy_of("|u1", "False", "1, 2, 3, 2", "\0\1\2\0\0\0\0\1\2\0\0\0", 12) };
    enum { KINDS = sizeof y / sizeof y[0], SIZES = sizeof sizes / sizeof sizes[0] };
    static archive zip;
    for (int i = 0; i < KINDS * KINDS; i++) {
        zip = (archive){ .entries = 0 };
        zip_add(&zip, "x_train.npy", ZIP_STORED, &x);
        zip_add(&zip, "y_train.npy", ZIP_STORED, &y[i / KINDS]);
        zip_add(&zip, "x_test.npy", ZIP_STORED, &x);
        zip_add(&zip, "y_test.npy", ZIP_STORED, &y[i % KINDS]);
        zip_end(&zip, false);
        write_file("set.npz", &zip.file);
        for (rg_dataset_part part = RG_DATASET_TRAIN; part <= RG_DATASET_TEST; part++) {
            const rg_status status = open_it("set.npz", part);
            EXPECT(status == (i / KINDS == i % KINDS ? RG_OK : RG_MALFORMED));
            EXPECT(status == RG_OK ||
                   strstr(rg_error_text(), "differ in number, kind or shape from those in y_"));
        }
    }
    for (int i = 0; i < SIZES; i++)
        EXPECT_FAILS(open_pair(&x, &sizes[i], ZIP_STORED), RG_MALFORMED,
                     "must have the size of its image, 2 x 3");
    close_it();
    clear_files();
}

static void test_npz_refuses(void)
{
    const int64_t low[2] = { 0, -1 }, high[2] = { 65536, 0 }, huge[2] = { INT64_MAX, INT64_MIN };
    const uint64_t high_bits[2] = { 1, UINT64_C(1) << 63 };
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
        { x, npy_of("|u1", "False", "2, 2", "\0\1\2\1", 4), "must be 0 or 1" },
        { x, npy_of("<f4", "False", "2,", "\0\0\x80\x7f\0\0\0\0", 8), "not a finite number" },
        { x, npy_of("<f4", "False", "3,", low, 12), "3 labels for 2 images" },
        { npy_of("<u8", "False", "2, 1", high_bits, 16), y, "numbers of 2^63 and more" },
        { npy_of("|u1", "False", "", "a", 1), y, "the array is one number" },
        { npy_of("|u1", "True", "2, 1, 1, 1, 1", "ab", 2), y, "5 dimensions" },
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

int main(void)
{
    scratch_begin();
    test_npy_folder();
    test_npy_labels();
    test_npz_types();
    test_columns();
    test_npz_parts(false);
    test_npz_parts(true);
    test_npz_targets();
    test_npz_parts_differ();
    test_npz_refuses();
    test_npz_directory();
    test_npz_damage();
    close_it();
    scratch_end();
    return rg_test_report();
}
