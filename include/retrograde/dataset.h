/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Data sets of labelled images, and loaders, which prefetch batches for a trainer.
 *
 *      rg_dataset *all, *train, *validation;
 *      rg_dataset_open("fashion-mnist", RG_DATASET_TRAIN, &all);
 *      rg_dataset_split(all, 0.1, 1, &train, &validation);
 *
 *      rg_loader_desc desc = rg_loader_desc_default();
 *      rg_dataset_measure(train, desc.mean, desc.deviation);
 *      rg_loader_create(train, &desc, &loader);
 *      while (rg_loader_next(loader, &batch) == RG_OK && batch.epoch < 10)
 *          ...
 *
 *  Files are untrusted: invalid content gets a status and an error text that names the file and the
 *  place. RG_IO: it cannot be read; RG_MALFORMED: its content is invalid; RG_UNSUPPORTED: it is
 *  valid, but not supported by this library or by this build. Memory use depends on the size of the
 *  files, never on declared sizes.
 *
 *  Programs that use this header are linked with libretrograde_train. */
#ifndef RETROGRADE_DATASET_H
#define RETROGRADE_DATASET_H

#include <retrograde/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The maximum number of channels of an image, and of classes. */
#define RG_DATASET_CHANNELS 16
#define RG_DATASET_CLASSES  65536

/** The class of pixels of a mask that are ignored: they add nothing to losses and gradients, and do
 *  not count in scores and reported losses. The loss that is trained is divided by all pixels. */
#define RG_DATASET_IGNORED (-1)

/** Images of one size with labels, in memory or in files that are read when images are needed. It
 *  is immutable and may be used from any thread. */
typedef struct rg_dataset rg_dataset;

typedef enum rg_dataset_part {
    RG_DATASET_TRAIN,
    RG_DATASET_TEST,      /**< the validation part of a set that has no test part */
    RG_DATASET_VALIDATION /**< only where there is a test part, too */
} rg_dataset_part;

/** What a network learns of each image. */
typedef enum rg_target_kind {
    RG_TARGET_CLASS,  /**< one class */
    RG_TARGET_LABELS, /**< any number of classes: 0 or 1 for each */
    RG_TARGET_VALUES, /**< numbers (regression) */
    RG_TARGET_MASK    /**< the class of each pixel (segmentation) */
} rg_target_kind;

/** Properties of a data set. */
typedef struct rg_dataset_info {
    int64_t count;                   /**< of images; at least 1 */
    int64_t height, width, channels; /**< of each; at least 1 */
    int32_t classes;                 /**< labels are 0 to classes - 1 */
    rg_dtype dtype;                  /**< of pixels: RG_U8, 0 to 255, or RG_F32, of any range */
    rg_target_kind target;           /**< of each image */
    int64_t targets; /**< how many there are: 1 class, as many labels as classes, values, pixels */
} rg_dataset_info;

/** How to open a data set. Start from rg_dataset_options_default(), then change what matters. */
typedef struct rg_dataset_options {
    uint32_t size;   /**< of this struct; set by rg_dataset_options_default() */
    int32_t threads; /**< that decode images; 0 (default): one for each processor, 16 at most */
    /** Of images in PNG, JPEG and WebP files: they are resized until they just cover this size
     *  (bilinear with antialiasing, as in Pillow), and cut to its middle. 0 and 0 (default): all
     *  have the size of the first. */
    int64_t height, width;
    int64_t memory_bytes; /**< such images are decoded once, when the set is opened, if
                               together they have at most this many bytes; more are decoded when
                               they are needed (default 256 MiB) */
    /** Called with sentences about files that are skipped, classes without images, and images that
     *  cannot be used, before the call returns (default NULL). */
    void (*say)(void *context, const char *sentence);
    void *context;    /**< of `say` and `watch` */
    int64_t channels; /**< of images in such files: 1, grey, or 3, RGB; 0 (default): 1 if all images
                           of the part are grey. Parts of one set want the same */
    /** Called while image files are read, with how many are done; false ends that with
     *  RG_INVALID_STATE (default NULL). */
    bool (*watch)(void *context, int64_t done, int64_t of);
} rg_dataset_options;
RG_API rg_dataset_options rg_dataset_options_default(void);

/** Reads one part of a data set. On failure *set is NULL. `options` may be NULL. `path` is one of
 *  these:
 *
 *  - a folder of IDX files named as those of MNIST are: train-images-idx3-ubyte,
 *    train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each perhaps
 *    compressed, with .gz after its name; idx4 with channels, too;
 *  - a folder with a folder of PNG, JPEG or WebP files for each class, or with such folders below
 *    train/ and below test/ or val/ (valid/, validation/), or both; their names are in any case,
 *    and may be training/ and testing/. Images may lie in folders below those of the classes. A
 *    test/ without folders of classes is ignored. Classes are numbered in the order of their names.
 *    Images are RGB if one of them has colours: 16 bits are rounded to 8, palettes are looked up,
 *    what is transparent becomes black. They are rotated and mirrored as the orientation in their
 *    EXIF data says, which in a PNG file comes before the pixels; gamma and colour profiles are
 *    ignored. An image has at most 2 * 10^8 pixels;
 *  - a folder with images/, such files, and masks/, PNG files of the same names but for their
 *    endings, or with these below train/, test/, val/ as above (segmentation). The class of a
 *    pixel is the sample of a grey mask, or the index of a mask with a palette; 255, or 65535 with
 *    16 bits, marks pixels that are ignored, unless all masks have 0 and 255 alone: then 255 is
 *    class 1. A mask has the size of its image and is resized with it, to the nearest pixel.
 *    classes.txt, if there, names the classes, one a line;
 *  - a tar file, or a folder of tar files, in the layout of WebDataset: members of one name up to
 *    its first dot make a sample, an image (name.jpg, name.jpeg, name.png, name.webp) and the
 *    number of its class (name.cls). Files whose names begin with test or val, in any case, are
 *    those parts, and so are those with such a word where others have the word train:
 *    set-train-01.tar, set-val-01.tar;
 *  - an NPZ file, or a folder of NPY files, with x and y, or with x_train, y_train, x_test, y_test,
 *    x_val, y_val, or X in place of x: x (n, h, w, c), (n, h, w), (n, w) or (n), of u1 or b1, or of
 *    other integers, f2, f4 or f8, which become f32; of more dimensions the first is h, the last is
 *    c, and those between make one. y of integers is a class (n) or (n, 1), labels of 0 and 1
 *    (n, classes), or a mask (n, h, w); y of f2, f4, f8 are values (n), (n, k), ... All parts have
 *    targets of one kind and number, and a mask has the size of its image. -1 in a mask of signed
 *    integers marks pixels that are ignored;
 *  - the name of a set that Debian installs, "fashion-mnist", if no file has that name (package
 *    dataset-fashion-mnist), or "glyphs", a set of 12000 and 2000 images by rg_dataset_glyphs().
 *
 *  RG_INVALID_ARGUMENT, which no file leads to otherwise, where a set has no such part: another
 *  one may be split then. The number of classes is that of all parts. gzip and compressed NPZ
 *  files need zlib, PNG files libpng, JPEG files libjpeg-turbo, WebP files libwebp: RG_UNSUPPORTED
 *  in a build without. All images that cannot be used are named at once. */
RG_API rg_status rg_dataset_open_with(const char *path, rg_dataset_part part,
                                      const rg_dataset_options *options, rg_dataset **set);

/** The same without options. */
RG_API rg_status rg_dataset_open(const char *path, rg_dataset_part part, rg_dataset **set);

/** Arrays of the caller. Start from rg_dataset_arrays_default(), then fill it in. */
typedef struct rg_dataset_arrays {
    uint32_t size;  /**< of this struct; set by rg_dataset_arrays_default() */
    rg_dtype dtype; /**< of pixels: RG_U8 or RG_F32 (default) */
    int64_t count, height, width, channels; /**< of the images; at least 1 (default 1) */
    const void *pixels;                     /**< (count, height, width, channels) */
    rg_target_kind target;                  /**< default RG_TARGET_CLASS */
    int32_t classes;                        /**< of RG_TARGET_CLASS and RG_TARGET_MASK */
    int64_t targets;                        /**< of an image: labels, values, or pixels of a mask,
                                                 height * width (default 1) */
    const int32_t *labels;                  /**< (count, targets) of classes and masks, in
                                                 which RG_DATASET_IGNORED may be */
    const float *values;                    /**< (count, targets) of labels and values */
    const char *const *names;               /**< (classes); NULL (default): their numbers */
} rg_dataset_arrays;
RG_API rg_dataset_arrays rg_dataset_arrays_default(void);

/** Makes a data set of arrays, which are copied. RG_INVALID_ARGUMENT for labels that are not
 *  classes, and for pixels and values that are not finite. On failure *set is NULL. */
RG_API rg_status rg_dataset_create(const rg_dataset_arrays *arrays, rg_dataset **set);

/** Draws `count` images of 28 x 28 grey pixels: ten shapes like the digits, made of lines, moved,
 *  rotated, resized, of differing thickness, with noise. The same seed gives the same bits on every
 *  machine; image i has the label i % 10. `count` is 1 to 2^24. On failure *set is NULL. */
RG_API rg_status rg_dataset_glyphs(uint64_t seed, int64_t count, rg_dataset **set);

/** Makes two sets that share the images of `set` and keep them alive: `fraction` of them, rounded,
 *  drawn at random by `seed`, become `validation`, the others `train`; both keep their order.
 *  `fraction` is 0 to 1 and must leave each at least one image. On failure both are NULL. */
RG_API rg_status rg_dataset_split(const rg_dataset *set, double fraction, uint64_t seed,
                                  rg_dataset **train, rg_dataset **validation);

/** Releases the set; loaders and sets made from it keep what they use. NULL is allowed. */
RG_API void rg_dataset_destroy(rg_dataset *set);

RG_API rg_status rg_dataset_get_info(const rg_dataset *set, rg_dataset_info *info);

/** The name of a class: of its folder, of the class in Fashion-MNIST, or its number. Valid UTF-8,
 *  lives as long as the set. "" if there is no such class. */
RG_API const char *rg_dataset_class_name(const rg_dataset *set, int32_t label);

/** Writes the pixels (h, w, c) of one image, of the set's dtype; one in a file is decoded. */
RG_API rg_status rg_dataset_read_image(const rg_dataset *set, int64_t index, void *pixels);

/** The pixels (h, w, c) of one image, which live as long as the set, and its label. NULL and -1 if
 *  there is no such image. NULL also for images that are not in memory. */
RG_API const void *rg_dataset_image(const rg_dataset *set, int64_t index);
RG_API int32_t rg_dataset_label(const rg_dataset *set, int64_t index);

/** The labels or values of one image, `targets` numbers which live as long as the set; NULL for
 *  classes and masks. The classes of the pixels of its mask, RG_DATASET_IGNORED for those that do
 *  not count; NULL for other targets, and for masks that are not in memory. */
RG_API const float *rg_dataset_values(const rg_dataset *set, int64_t index);
RG_API const int32_t *rg_dataset_mask(const rg_dataset *set, int64_t index);

/** Writes the classes of the pixels of a mask (h, w); one in a file is decoded. */
RG_API rg_status rg_dataset_read_mask(const rg_dataset *set, int64_t index, int32_t *classes);

/** Measures mean and standard deviation of every channel, over all images; of images in files, over
 *  512 that are evenly distributed. Pixels of u8 count as 0 to 1. The deviation of a channel that
 *  is the same everywhere is given as 1, and so are those that the images lack, with mean 0.
 *  RG_MALFORMED if a pixel is not a finite number. */
RG_API rg_status rg_dataset_measure(const rg_dataset *set, double mean[RG_DATASET_CHANNELS],
                                    double deviation[RG_DATASET_CHANNELS]);

/** The same of every column, for tables and series: arrays x in NPY files, other than bytes, that
 *  are (n, w) or (n, h, w), and f32 arrays of the caller with height and channels 1. Their columns
 *  mean different things. *columns is the width then, and `mean` and `deviation`, which may be
 *  NULL, have as many numbers; otherwise it is 0. It is 0, too, where all numbers are from 0 to 1,
 *  or of (n, h, w) whole numbers from 0 to 255, as in images; of a part that rg_dataset_split()
 *  made, all numbers of the set that it was made of. */
RG_API rg_status rg_dataset_measure_columns(const rg_dataset *set, int64_t *columns, double mean[],
                                            double deviation[]);

/** Prepares batches ahead of the consumer on its own threads, epoch after epoch without end.
 *  What a batch holds follows from set, descriptor, epoch and position alone. Calls for one
 *  loader come from one thread at a time. */
typedef struct rg_loader rg_loader;

/** How to make batches. Initialize with rg_loader_desc_default(). */
typedef struct rg_loader_desc {
    uint32_t size;  /**< of this struct; set by rg_loader_desc_default() */
    rg_dtype dtype; /**< of the images in a batch: f32 (default), f64, f16 or bf16 */
    int64_t batch;  /**< images in a batch; at least 1 (default 128) */
    bool shuffle;   /**< a new order in each epoch (default true); false: that of the set */
    bool drop_last; /**< leave out the last images of an epoch where they fill no batch
                         (default false: a smaller batch) */
    bool mirror;    /**< mirror half of the images left to right (default false) */
    int32_t crop;   /**< pad by this many pixels of 0 on each side, cut the old size out anywhere; 0
                         (default) to 1024 */
    int32_t shift;  /**< then move by up to this many pixels each way, repeating the edge; 0
                         (default) to 1024 */
    int32_t buffers; /**< batches in memory, the one in use included: 2 to 16 (default 3) */
    uint64_t seed;   /**< of order and changes (default 0) */
    /** Of each channel: a pixel x becomes (x - mean) / deviation, where u8 counts as 0 to 1.
     * Finite; deviations more than 0 (default 0 and 1). */
    double mean[RG_DATASET_CHANNELS], deviation[RG_DATASET_CHANNELS];
    /** That make batches, 0 to 64; 0 (default): one, or for images that are not in memory one for
     *  each processor, 16 at most. Batches do not depend on it. */
    int32_t threads;
    /** Of each batch, only images `first` to `first` + `most` - 1 are made, as far as the batch has
     *  them: the part of one rank. 0 or more; `most` 0 (default): all. */
    int64_t first, most;
    /** Above 0, the width: column k of images with one channel, of f32, becomes (x -
     *  column_mean[k]) / column_deviation[k] in place of the above. The numbers must stay as long
     *  as the loader does. */
    int64_t columns;
    const double *column_mean, *column_deviation;
} rg_loader_desc;
RG_API rg_loader_desc rg_loader_desc_default(void);

/** A batch, valid until the next call of rg_loader_next, rg_loader_seek or rg_loader_destroy. */
typedef struct rg_batch {
    const void *images;     /**< (count, h, w, c) of the descriptor's dtype; aligned to 64 bytes */
    const int32_t *labels;  /**< (count), or (count, targets) for masks; 0 for labels and values.
                                 Pixels of masks that do not count are RG_DATASET_IGNORED */
    const void *values;     /**< (count, targets) of the descriptor's dtype, for labels and values;
                                 else NULL */
    const int64_t *indices; /**< (count): the index of each image in the set */
    int64_t count;          /**< of images; less than a batch at the end of an epoch; with `most` of
                                 the descriptor, those of the part, perhaps none */
    int64_t epoch;          /**< from 0 */
    int64_t position;       /**< of the first image of the batch in the epoch, from 0 */
    bool last;              /**< of its epoch */
} rg_batch;

/** Starts a loader at epoch 0, position 0. It keeps `set` alive. On failure *loader is NULL. */
RG_API rg_status rg_loader_create(const rg_dataset *set, const rg_loader_desc *desc,
                                  rg_loader **loader);

/** Ends its thread, at any time, and frees its batches. NULL is allowed. */
RG_API void rg_loader_destroy(rg_loader *loader);

/** Waits for the next batch. It fails for arguments that are NULL, and for an image that is not in
 *  memory and cannot be decoded; the sentence names its file. */
RG_API rg_status rg_loader_next(rg_loader *loader, rg_batch *batch);

/** Goes on at a position of an epoch, 0 or more, as if all before had been taken: the next batch
 *  begins there. Where an epoch has no batch left at that position the next epoch begins. */
RG_API rg_status rg_loader_seek(rg_loader *loader, int64_t epoch, int64_t position);

/** Batches in one epoch; 0 for NULL. */
RG_API int64_t rg_loader_batches(const rg_loader *loader);

#ifdef __cplusplus
}
#endif

#endif
