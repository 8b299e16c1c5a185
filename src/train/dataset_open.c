/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Opening a data set: what kind of thing a path names. */
#include "train/data_source.h"
#include "train/image_items.h"
#include "files/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Where Debian's package dataset-fashion-mnist puts its files. */
static const char fashion_folder[] = "/usr/share/datasets/fashion-mnist";

/* ---- paths ---- */

rg_status rg_path_join(char path[RG_DATASET_PATH], const char *folder, const char *name)
{
    const int length = snprintf(path, RG_DATASET_PATH, "%s/%s", folder, name);
    RG_CHECK(length >= 0 && length < RG_DATASET_PATH, RG_IO, "the path is too long");
    return RG_OK;
}

/* The length of the character at the start of a text, 0 if it cannot be shown. C1 controls, which
 * terminals interpret, cannot be shown either. */
static size_t shown_length(const char *text)
{
    const size_t length = rg_utf8_length(text, strlen(text));
    const unsigned char first = (unsigned char)text[0];
    if (length == 1)
        return first >= ' ' && first != 0x7f;
    return length == 2 && first == 0xc2 && (unsigned char)text[1] < 0xa0 ? 0 : length;
}

bool rg_path_is_text(const char *name)
{
    size_t length = 1;
    for (; *name != 0 && length > 0; name += length)
        length = shown_length(name);
    return length > 0;
}

void rg_path_prefix(const char *path)
{
    char text[400];
    size_t used = 0;
    while (*path != 0 && used + 8 < sizeof text) {
        const size_t length = shown_length(path);
        if (length > 0)
            memcpy(text + used, path, length);
        else
            text[used] = '?';
        used += length > 0 ? length : 1;
        path += length > 0 ? length : 1;
    }
    memcpy(text + used, *path != 0 ? "…" : "", *path != 0 ? 4 : 1);
    rg_error_prefix("%s: ", text);
}

/* ---- opening ---- */

/* Fashion-MNIST has the files of MNIST; where its name is in the path, so are the classes. */
static rg_status open_idx(const char *folder, rg_dataset_part part, rg_dataset *set)
{
    static const char *const names[] = {
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
        "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"
    };
    enum { CLASSES = sizeof names / sizeof names[0] };
    RG_TRY(rg_idx_read(folder, part, set));
    if (strcasestr(folder, "fashion") == NULL || set->info.classes != CLASSES)
        return RG_OK;
    rg_release(&rg_default_allocator, set->names, set->name_bytes);
    set->names = NULL;
    return rg_dataset_name(set, CLASSES, names);
}

/* Images that are numbers in a file have their size. */
static rg_status check_size(const rg_dataset *set, const rg_dataset_options *o)
{
    RG_CHECK(
        o->height == 0 || (o->height == set->info.height && o->width == set->info.width),
        RG_UNSUPPORTED,
        "the images have %lld x %lld pixels; only those of PNG, JPEG and WebP files can be resized",
        (long long)set->info.height, (long long)set->info.width);
    return RG_OK;
}

static rg_status open_folder(const char *folder, rg_dataset_part part, const rg_dataset_options *o,
                             rg_dataset *set)
{
    if (rg_idx_is_here(folder))
        return open_idx(folder, part, set);
    if (rg_npy_is_here(folder))
        return rg_npy_read_folder(folder, part, o, set);
    if (rg_masks_are_here(folder))
        return rg_mask_folder_read(folder, part, o, set);
    if (rg_tar_is_here(folder) && !rg_image_folder_is_here(folder))
        return rg_tar_read(folder, part, o, set);
    return rg_image_folder_read(folder, part, o, set);
}

/* Names of what is no archive that is read, and is often tried. */
static rg_status check_name(const char *path)
{
    static const char *const packed[] = { ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst" };
    const size_t length = strlen(path);
    unsigned char start[4] = { 0 };
    uint64_t size;
    int file;
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++) {
        const size_t end = strlen(packed[i]);
        RG_CHECK(length <= end || strcasecmp(path + length - end, packed[i]) != 0, RG_UNSUPPORTED,
                 "packed tar files are not read; unpack it first");
    }
    RG_CHECK(length <= 4 || strcasecmp(path + length - 4, ".csv") != 0, RG_UNSUPPORTED,
             "CSV files are not read; save x and y as arrays of an NPZ file (numpy.savez)");
    RG_TRY(rg_regular_open(path, &file, &size));
    const rg_status status = rg_regular_read(file, 0, start, size < 2 ? (size_t)size : 2);
    rg_regular_close(file);
    RG_TRY(status);
    const bool is_npz = length > 4 && strcasecmp(path + length - 4, ".npz") == 0;
    RG_CHECK(is_npz || memcmp(start, "PK", 2) == 0, RG_MALFORMED,
             "this is neither a folder, a tar file nor an NPZ file");
    return RG_OK;
}

static rg_status open_file(const char *path, rg_dataset_part part, const rg_dataset_options *o,
                           rg_dataset *set)
{
    if (rg_tar_is_name(path))
        return rg_tar_read(path, part, o, set);
    const rg_status status = check_name(path);
    if (status != RG_OK)
        rg_path_prefix(path);
    RG_TRY(status);
    return rg_npz_read(path, part, o, set);
}

/* A network learns nothing where all images have one class. */
static void warn_of_one_class(const char *path, const rg_dataset_options *o, const rg_dataset *set)
{
    int64_t i = 1;
    if (set->info.target != RG_TARGET_CLASS)
        return;
    while (i < set->info.count && set->labels[i] == set->labels[0])
        i++;
    if (i == set->info.count)
        rg_dataset_say(o, "%s: there is only one class, %s; a network learns nothing from it", path,
                       set->names[set->labels[0]]);
}

static rg_status open_path(const char *path, rg_dataset_part part, const rg_dataset_options *o,
                           rg_dataset *set)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        (void)rg_fail(RG_IO, "cannot be opened: %s", strerror(errno));
        rg_path_prefix(path);
        return RG_IO;
    }
    if (S_ISDIR(info.st_mode))
        RG_TRY(open_folder(path, part, o, set));
    else
        RG_TRY(open_file(path, part, o, set));
    if (part == RG_DATASET_TRAIN)
        warn_of_one_class(path, o, set);
    const rg_status status = set->resized ? RG_OK : check_size(set, o);
    if (status != RG_OK)
        rg_path_prefix(path);
    return status;
}

static rg_status draw_glyphs(rg_dataset_part part, const rg_dataset_options *o, rg_dataset **set)
{
    const bool test = part == RG_DATASET_TEST;
    RG_TRY(rg_dataset_glyphs(test, test ? 2000 : 12000, set));
    const rg_status status = check_size(*set, o);
    if (status == RG_OK)
        return RG_OK;
    rg_dataset_destroy(*set);
    *set = NULL;
    rg_path_prefix("glyphs");
    return status;
}

/* Whether a name is that of a known set: no file has it, and it is not a path. */
static bool is_name(const char *path, const char *name)
{
    struct stat info;
    return strcmp(path, name) == 0 && stat(path, &info) != 0;
}

rg_dataset_options rg_dataset_options_default(void)
{
    return (rg_dataset_options){ .size = sizeof(rg_dataset_options),
                                 .memory_bytes = INT64_C(256) << 20 };
}

static rg_status check_options(const rg_dataset_options *options, rg_dataset_options *checked)
{
    enum { LARGEST = 1 << 15 };
    *checked = rg_dataset_options_default();
    if (options == NULL)
        return RG_OK;
    RG_CHECK(options->size > sizeof options->size && options->size <= sizeof *options,
             RG_INVALID_ARGUMENT,
             "rg_dataset_open_with: size is %u; start from rg_dataset_options_default()",
             options->size);
    memcpy(checked, options, options->size);
    RG_CHECK((checked->height == 0) == (checked->width == 0) && checked->height >= 0 &&
                 checked->height <= LARGEST && checked->width >= 0 && checked->width <= LARGEST,
             RG_INVALID_ARGUMENT,
             "rg_dataset_open_with: height and width must both be 0 or between 1 and %d", LARGEST);
    RG_CHECK(checked->channels == 0 || checked->channels == 1 || checked->channels == 3,
             RG_INVALID_ARGUMENT, "rg_dataset_open_with: channels must be 0, 1 or 3, not %lld",
             (long long)checked->channels);
    RG_CHECK(checked->memory_bytes >= 0 && checked->threads >= 0, RG_INVALID_ARGUMENT,
             "rg_dataset_open_with: memory_bytes and threads must be at least 0");
    return RG_OK;
}

rg_status rg_dataset_open(const char *path, rg_dataset_part part, rg_dataset **set)
{
    return rg_dataset_open_with(path, part, NULL, set);
}

rg_status rg_dataset_open_with(const char *path, rg_dataset_part part,
                               const rg_dataset_options *options, rg_dataset **set)
{
    rg_dataset_options checked;
    RG_CHECK_NOT_NULL(set);
    *set = NULL;
    RG_CHECK_NOT_NULL(path);
    RG_CHECK((unsigned)part <= RG_DATASET_VALIDATION, RG_INVALID_ARGUMENT,
             "rg_dataset_open: unknown part %d", (int)part);
    RG_TRY(check_options(options, &checked));
    const bool glyphs = is_name(path, "glyphs");
    if (glyphs && part == RG_DATASET_VALIDATION)
        return rg_dataset_no_part(part);
    if (glyphs)
        return draw_glyphs(part, &checked, set);
    const bool fashion = is_name(path, "fashion-mnist");
    RG_CHECK(!fashion || rg_idx_is_here(fashion_folder), RG_IO,
             "fashion-mnist: no such file exists, and the Debian package dataset-fashion-mnist is "
             "not installed");
    rg_dataset *made;
    RG_TRY(rg_dataset_begin(&made));
    const rg_status status = open_path(fashion ? fashion_folder : path, part, &checked, made);
    if (status == RG_OK)
        *set = made;
    else
        rg_dataset_destroy(made);
    return status;
}
