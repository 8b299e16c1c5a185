/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Folders of images with masks: which classes pixels have, what is refused, and how pixels that are
 * ignored count in losses and scores. */
#include "tests/opened_set.h"

#include <retrograde/trainer.h>

#include <math.h>

static void write_kind(const char *name, uint32_t width, uint32_t height, int depth, int kind,
                       const void *rows, size_t size)
{
    bytes png = png_start(width, height, depth, kind, 0);
    if (kind == 3)
        png_chunk(&png, "PLTE", "\1\2\3\4\5\6\7\x08\x09", 9);
    if (kind == 3)
        png_chunk(&png, "tRNS", "\xff\x80", 2);
    if (kind == 0) /* a transparent grey value, here class 1 */
        png_chunk(&png, "tRNS", "\0\1", 2);
    png_end(&png, rows, size);
    write_file(name, &png);
}

static void write_grey(const char *name, uint32_t width, uint32_t height, const char *pixels)
{
    char rows[256];
    size_t size = 0;
    for (uint32_t i = 0; i < height; i++) {
        rows[size++] = 0;
        memcpy(rows + size, pixels + i * width, width);
        size += width;
    }
    write_kind(name, width, height, 8, 0, rows, size);
}

static void make_folders(void)
{
    make_folder("images");
    make_folder("masks");
}

static rg_status open_streamed(rg_dataset_part part, int64_t side)
{
    rg_dataset_options options = rg_dataset_options_default();
    close_it();
    options.memory_bytes = 0;
    options.height = options.width = side;
    return rg_dataset_open_with(scratch_folder, part, &options, &opened);
}

static bool mask_is(int64_t index, const int32_t classes[], size_t count)
{
    int32_t read[64] = { 0 };
    const int32_t *mask = rg_dataset_mask(opened, index);
    EXPECT_OK(rg_dataset_read_mask(opened, index, read));
    return memcmp(read, classes, count * sizeof *read) == 0 &&
           (mask == NULL || memcmp(mask, classes, count * sizeof *mask) == 0);
}

/* One mask of each kind: samples are classes, whatever is transparent. */
static void test_kinds(void)
{
    static const struct {
        const char *rows; /* with filter bytes: 2 x 1 pixels */
        size_t size;
        int depth, kind;
        int32_t classes[2], count;
    } kinds[] = {
        { "\0\1\3", 3, 8, 0, { 1, 3 }, 4 },
        { "\0\1\xff", 3, 8, 0, { 1, RG_DATASET_IGNORED }, 2 },
        { "\0\0\xff", 3, 8, 0, { 0, 1 }, 2 }, /* black and white */
        { "\0\x40", 2, 1, 0, { 0, 1 }, 2 },
        { "\0\x60", 2, 2, 0, { 1, 2 }, 3 },
        { "\0\x1f", 2, 4, 0, { 1, 15 }, 16 },
        { "\0\1\1\xff\xff", 5, 16, 0, { 257, RG_DATASET_IGNORED }, 258 },
        { "\0\0\0\0\xff", 5, 16, 0, { 0, 255 }, 256 },
        { "\0\2\1", 3, 8, 3, { 2, 1 }, 3 },
        { "\0\2\xff", 3, 8, 3, { 2, RG_DATASET_IGNORED }, 3 },
        { "\0\x90", 2, 2, 3, { 2, 1 }, 3 },
    };
    make_folders();
    write_grey("images/a.b.png", 2, 1, "\x10\x20");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        write_kind("masks/a.b.png", 2, 1, kinds[i].depth, kinds[i].kind, kinds[i].rows,
                   kinds[i].size);
        EXPECT_OK(open_it("", RG_DATASET_TRAIN));
        EXPECT(holds(1, 1, 2, 1, kinds[i].count, RG_U8) && mask_is(0, kinds[i].classes, 2));
        EXPECT_OK(open_streamed(RG_DATASET_TRAIN, 0));
        EXPECT(holds(1, 1, 2, 1, kinds[i].count, RG_U8) && mask_is(0, kinds[i].classes, 2));
        EXPECT(rg_dataset_mask(opened, 0) == NULL && rg_dataset_label(opened, 0) == -1);
    }
    close_it();
    clear_files();
}

/* Adam's seven passes, as in dataset_png_test. */
static void test_interlaced(void)
{
    static const char rows[] = "\0\x01\0\x03\0\x07\x09\0\x02\0\x08\0\x04\x05\x06";
    static const int32_t classes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    bytes png = png_start(3, 3, 8, 0, 1);
    png_end(&png, rows, sizeof rows - 1);
    make_folders();
    write_grey("images/a.png", 3, 3, "\1\1\1\1\1\1\1\1\1");
    write_file("masks/a.png", &png);
    EXPECT_OK(open_it("", RG_DATASET_TRAIN));
    EXPECT(holds(1, 3, 3, 1, 10, RG_U8) && mask_is(0, classes, 9));
    close_it();
    clear_files();
}

/* Pairs by name; the classes are those of both parts, or of classes.txt. */
static void test_parts(void)
{
    static const char *const folders[] = { "train", "train/images", "train/masks",
                                           "val",   "val/images",   "val/masks" };
    static const int32_t first[] = { 0, 1 }, second[] = { RG_DATASET_IGNORED, 1 };
    for (int i = 0; i < 6; i++)
        make_folder(folders[i]);
    write_grey("train/images/b.png", 2, 1, "\1\2");
    write_grey("train/images/a.png", 2, 1, "\3\4");
    write_grey("train/images/a2.png", 2, 1, "\3\4"); /* without a mask */
    write_grey("train/masks/b.png", 2, 1, "\xff\1");
    write_grey("train/masks/a.png", 2, 1, "\0\1");
    write_grey("val/images/c.png", 2, 1, "\5\6");
    write_grey("val/masks/c.png", 2, 1, "\4\1");
    EXPECT_OK(open_it("", RG_DATASET_TRAIN));
    EXPECT(holds(2, 1, 2, 1, 5, RG_U8) && image_is(0, "\3\4", 2));
    EXPECT(mask_is(0, first, 2) && mask_is(1, second, 2));
    EXPECT_OK(open_it("", RG_DATASET_TEST));
    EXPECT(holds(1, 1, 2, 1, 5, RG_U8));
    EXPECT(strcmp(rg_dataset_class_name(opened, 4), "4") == 0);
    scratch_write("classes.txt", "sky\r\nold road\na\nb\nc\nd\n\n", 23);
    EXPECT_OK(open_it("", RG_DATASET_TRAIN));
    EXPECT(holds(2, 1, 2, 1, 6, RG_U8));
    EXPECT(strcmp(rg_dataset_class_name(opened, 1), "old road") == 0);
    scratch_write("classes.txt", "sky\nroad", 8);
    EXPECT_FAILS(open_it("", RG_DATASET_TEST), RG_MALFORMED,
                 "val/masks/c.png: a pixel has the class 4, but classes.txt names 2 classes");
    scratch_write("classes.txt", "sky\n\nroad", 9);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED, "classes.txt: line 2 is no name");
    scratch_write("classes.txt", "", 0);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED, "classes.txt: there are 0 classes");
    close_it();
    clear_files();
}

static void test_refused(void)
{
    make_folders();
    write_grey("images/a.png", 2, 1, "\1\2");
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED, "has a mask of the same name");
    EXPECT_FAILS(open_it("", RG_DATASET_TEST), RG_INVALID_ARGUMENT, "has no test part");
    write_grey("masks/a.png", 1, 2, "\1\2");
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "masks/a.png: the mask has 2 x 1 pixels, but its image has 1 x 2");
    EXPECT_FAILS(open_streamed(RG_DATASET_TRAIN, 0), RG_MALFORMED, "but its image has 1 x 2");
    write_kind("masks/a.png", 2, 1, 8, 2, "\0\1\2\3\4\5\6", 7);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_UNSUPPORTED, "the mask has colours");
    write_kind("masks/a.png", 2, 1, 8, 4, "\0\1\2\3\4", 5);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_UNSUPPORTED, "the mask has opacity");
    write_kind("masks/a.png", 2, 1, 8, 3, "\0\1\3", 3);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "column 1 has palette index 3, but the palette has 3 colours");
    write_grey("masks/a.png", 2, 1, "\xff\xff");
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_MALFORMED,
                 "all pixels of the masks are ignored");
    scratch_write("masks/a.png", "\xff\xd8\xff", 3);
    EXPECT_FAILS(open_it("", RG_DATASET_TRAIN), RG_UNSUPPORTED,
                 "masks/a.png: this is not a PNG image, as masks must be");
    write_grey("masks/a.png", 2, 1, "\1\2");
    EXPECT_OK(open_it("", RG_DATASET_TRAIN));
    EXPECT_FAILS(rg_dataset_read_mask(opened, 1, &(int32_t){ 0 }), RG_INVALID_ARGUMENT,
                 "image 1 does not exist");
    close_it();
    clear_files();
}

static void test_damage(void)
{
    bytes png = png_start(3, 2, 4, 3, 0);
    png_chunk(&png, "PLTE", "\1\2\3\4\5\6\7\x08\x09", 9);
    png_end(&png, "\0\x12\x10\0\x20\x10", 6);
    make_folders();
    write_grey("images/a.png", 3, 2, "\1\2\3\4\5\6");
    try_damage("masks/a.png", &png, "", true);
    clear_files();
}

/* Twice the size, then the middle: each pixel stands four times, and none is new. */
static void test_resized(void)
{
    static const int32_t classes[] = { 1, 1, 2, 2, 1, 1, 2, 2, 5, 5, 6, 6, 5, 5, 6, 6 };
    make_folders();
    write_grey("images/a.png", 4, 2, "\0\1\2\3\4\5\6\7");
    write_grey("masks/a.png", 4, 2, "\0\1\2\3\4\5\6\7");
    rg_dataset_options options = rg_dataset_options_default();
    options.height = options.width = 4;
    close_it();
    EXPECT_OK(rg_dataset_open_with(scratch_folder, RG_DATASET_TRAIN, &options, &opened));
    EXPECT(holds(1, 4, 4, 1, 8, RG_U8) && mask_is(0, classes, 16));
    EXPECT_OK(open_streamed(RG_DATASET_TRAIN, 4));
    EXPECT(holds(1, 4, 4, 1, 8, RG_U8) && mask_is(0, classes, 16));
    close_it();
    clear_files();
}

/* ---- training ---- */

enum { SIDE = 4, PIXELS = SIDE * SIDE, IMAGES = 12, CLASSES = 3 };

/* Masks of bright pixels, of which many are ignored; of some images all. */
static rg_dataset *make_set(int64_t images)
{
    static float pixels[IMAGES * PIXELS];
    static int32_t labels[IMAGES * PIXELS];
    for (int i = 0; i < IMAGES * PIXELS; i++) {
        const int class = i * 7 / 3 % CLASSES, image = i / PIXELS;
        pixels[i] = (float)class + (float)(i * 31 % 17) / 40;
        labels[i] = image > 8 || i % PIXELS < image ? RG_DATASET_IGNORED : class;
    }
    rg_dataset_arrays arrays = rg_dataset_arrays_default();
    rg_dataset *set = NULL;
    arrays.count = images;
    arrays.height = arrays.width = SIDE;
    arrays.pixels = pixels;
    arrays.target = RG_TARGET_MASK;
    arrays.classes = CLASSES;
    arrays.targets = PIXELS;
    arrays.labels = labels;
    EXPECT_OK(rg_dataset_create(&arrays, &set));
    return set;
}

typedef struct figures {
    rg_trainer_result all, some; /* with and without the images whose pixels are all ignored */
    double progress;             /* the loss of the first epoch */
    float answers[PIXELS];
} figures;

static bool take_loss(void *context, const rg_trainer_progress *p)
{
    *(double *)context = p->loss;
    return true;
}

static figures train(rg_device *device, rg_dtype dtype, int64_t micro_batches)
{
    figures f = { .progress = 0 };
    rg_dataset *all = make_set(IMAGES), *some = make_set(9);
    rg_trainer_desc desc = rg_trainer_desc_default();
    rg_model *model = NULL;
    rg_trainer *trainer = NULL;
    desc.optimizer = RG_OPTIMIZER_SGD;
    desc.dtype = dtype;
    desc.batch = IMAGES;
    desc.rate = 0.2;
    desc.epochs = 30;
    desc.micro_batches = micro_batches;
    EXPECT_OK(rg_model_parse("pixels", "conv 4 window=1\nneuron\nconv classes window=1\n", &model));
    EXPECT_OK(rg_trainer_create(device, model, all, &desc, &trainer));
    EXPECT_OK(rg_trainer_train(trainer, 1, take_loss, &f.progress));
    EXPECT_OK(rg_trainer_train(trainer, 29, NULL, NULL));
    EXPECT_OK(rg_trainer_evaluate(trainer, all, &f.all));
    EXPECT_OK(rg_trainer_predict(trainer, rg_dataset_image(all, 0), RG_F32, 1, f.answers));
    EXPECT_OK(rg_trainer_evaluate(trainer, some, &f.some)); /* predictions are not counted in it */
    rg_trainer_destroy(trainer);
    rg_model_destroy(model);
    rg_dataset_destroy(all);
    rg_dataset_destroy(some);
    return f;
}

/* Micro-batches and dtypes agree on the weight of ignored pixels, and images of such pixels alone
 * change nothing: they would score 1 or lower the loss. */
static void test_ignored(void)
{
    rg_device *device = NULL;
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    const figures f64 = train(device, RG_F64, 1), cut = train(device, RG_F64, 4);
    const figures f32 = train(device, RG_F32, 1), f16 = train(device, RG_F16, 1);
    EXPECT(f64.all.loss > 0.1 && f64.all.score > 0.2 && f64.all.score < 1);
    EXPECT(fabs(f64.all.loss - cut.all.loss) < 1e-12 && f64.all.score == cut.all.score);
    EXPECT(fabs(f64.progress - cut.progress) < 1e-12);
    EXPECT(fabs(f64.progress - f32.progress) < 1e-5 && fabs(f64.progress - f16.progress) < 1e-2);
    EXPECT(fabs(f64.all.loss - f32.all.loss) < 1e-5 && fabs(f64.all.loss - f16.all.loss) < 2e-2);
    EXPECT(fabs(f64.all.loss - f64.some.loss) < 1e-12 && f64.all.score == f64.some.score);
    EXPECT(fabs(f16.all.loss - f16.some.loss) < 1e-12 && f16.all.score == f16.some.score);
    EXPECT(f64.all.iou == f64.some.iou);
    rg_device_destroy(device);
}

int main(void)
{
    scratch_begin();
    if (RG_HAVE_PNG) {
        test_kinds();
        test_interlaced();
        test_parts();
        test_refused();
        test_damage();
        test_resized();
    }
    test_ignored();
    close_it();
    scratch_end();
    return rg_test_report();
}
