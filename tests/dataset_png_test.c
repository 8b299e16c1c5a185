/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Data sets from folders of PNG files: what is read, and files that are truncated, changed or
 * malicious. */
#include "tests/opened_set.h"

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
    /* libpng's simple interface leaves the last pass alone in each row of them */
    static const char wide[] = "\0\x01\x01"
                               "\0\x03\x03"
                               "\0\x07\x07\x09\x09"
                               "\0\x02\x02\0\x08\x08"
                               "\0\x04\x04\x05\x05\x06\x06";
    make_folder("one");
    for (int depth = 8; depth <= 16; depth += 8) {
        bytes png = png_start(3, 3, depth, 0, 1);
        png_end(&png, depth == 8 ? rows : wide, depth == 8 ? sizeof rows - 1 : sizeof wide - 1);
        write_file("one/a.PNG", &png);
        EXPECT_OK(open_it("", RG_DATASET_TRAIN));
        EXPECT(holds(1, 3, 3, 1, 1, RG_U8) && image_is(0, "\1\2\3\4\5\6\7\x08\x09", 9));
    }
    close_it();
    clear_files();
}

/* Classes by name; the first image decides about the size, any image about colours. */
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
    EXPECT(holds(3, 1, 2, 3, 3, RG_U8));
    EXPECT(image_is(0, "\1\1\1\2\2\2", 6) && image_is(2, "\xff\0\0\x64\x64\x64", 6));
    EXPECT(rg_dataset_label(opened, 1) == 0 && rg_dataset_label(opened, 2) == 1);
    EXPECT(strcmp(rg_dataset_class_name(opened, 1), "b") == 0 &&
           strcmp(rg_dataset_class_name(opened, 2), "\xc3\xa4") == 0);
    EXPECT_FAILS(open_it("", RG_DATASET_TEST), RG_INVALID_ARGUMENT, "has no test part");
    rg_dataset_options grey = rg_dataset_options_default();
    grey.channels = 1;
    close_it();
    EXPECT_OK(rg_dataset_open_with(scratch_folder, RG_DATASET_TRAIN, &grey, &opened));
    EXPECT(holds(3, 1, 2, 1, 3, RG_U8));
    EXPECT(image_is(0, "\1\2", 2) && image_is(1, "\3\4", 2) && image_is(2, "\x4c\x64", 2));

    write_png("b/0.png", 1, 2, 8, 0, "\0\x03\0\x04", 4);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "b/0.png: the image has 2 x 1 pixels, but the first image has 1 x 2");
    scratch_write("b/0.png", "no image", 8);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "b/0.png: this is neither a PNG, a JPEG nor a WebP image");
    EXPECT(unlink(scratch("b/0.png")) == 0);
    make_folder("c\xff\x1b");
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "c??: the class name has a control character, or is not valid UTF-8");
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

/* Folders of parts are named as people name them; a class may have such a name, too. */
static void test_png_part_names(void)
{
    static const char *const names[][3] = { { "Train", "Test", "Val" },
                                            { "TRAIN", "TEST", "VALIDATION" },
                                            { "Training", "Testing", "Valid" },
                                            { "train", "testing", "Validation" } };
    char path[64];
    for (int i = 0; i < 4; i++) {
        for (int part = 0; part < 3; part++) {
            make_folder(names[i][part]);
            for (int label = 0; label < 2; label++) {
                const char rows[] = { 0, (char)(10 * part + label), 1 };
                snprintf(path, sizeof path, "%s/%s", names[i][part], label == 0 ? "a" : "b");
                make_folder(path);
                snprintf(path, sizeof path, "%s/%s/1.png", names[i][part], label == 0 ? "a" : "b");
                write_png(path, 2, 1, 8, 0, rows, sizeof rows);
            }
        }
        for (int part = 0; part < 3; part++) {
            const char pixels[] = { (char)(10 * part + 1), 1 };
            EXPECT_OK(open_it("", (rg_dataset_part)part));
            EXPECT(holds(2, 1, 2, 1, 2, RG_U8) && rg_dataset_label(opened, 1) == 1);
            EXPECT(strcmp(rg_dataset_class_name(opened, 1), "b") == 0 && image_is(1, pixels, 2));
        }
        close_it();
        clear_files();
    }
    make_folder("Bus");
    make_folder("Train");
    make_folder("Train/fast");
    write_png("Bus/1.png", 2, 1, 8, 0, "\0\1\2", 3);
    write_png("Train/fast/1.png", 2, 1, 8, 0, "\0\3\4", 3);
    EXPECT_OK(open_it("", RG_DATASET_TRAIN));
    EXPECT(holds(2, 1, 2, 1, 2, RG_U8) && image_is(1, "\3\4", 2));
    EXPECT(strcmp(rg_dataset_class_name(opened, 1), "Train") == 0);
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
    static const unsigned char packed[30000] = { 0 };
    large = png_start(16384, 8192, 1, 0, 0); /* 16 MiB packed, which 30 kB can hold; 128 unpacked */
    png_chunk(&large, "IDAT", packed, sizeof packed);
    write_file("one/a.png", &large);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_UNSUPPORTED, "too much for a file of 300");
    clear_files();
}

static void test_png_folders(void)
{
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED, "contains no data set");
    make_folder("one");
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "the class folders contain no PNG, JPEG or WebP images");
    make_folder("one/a.png");
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "the class folders contain no PNG, JPEG or WebP images");
    write_png("one/b.png", 2, 1, 8, 0, "\0\3\4", 3);
    if (!RG_HAVE_PNG)
        EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_UNSUPPORTED, "has no libpng");
    clear_files();
}

int main(void)
{
    scratch_begin();
    if (RG_HAVE_PNG) {
        test_png_kinds();
        test_png_interlaced();
        test_png_classes();
        test_png_parts();
        test_png_part_names();
        test_png_damage();
    }
    test_png_folders();
    close_it();
    scratch_end();
    return rg_test_report();
}
