/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Loaders: how one image becomes part of a batch. It depends on the epoch and the
 * image's number in the set alone. */
#include "train/loader.h"
#include "train/random.h"
#include "core/dtype.h"

#include <string.h>

/* What happens to an image: it is shifted and mirrored. */
typedef struct change {
    int64_t crop[2], shift[2]; /* rows, columns */
    bool mirror;
} change;

static change draw_change(const rg_loader *loader, int64_t epoch, int64_t index)
{
    const rg_loader_desc *d = &loader->desc;
    const uint64_t of_epoch = rg_random_key(rg_random_key(d->seed, 2), (uint64_t)epoch);
    const uint64_t key = rg_random_key(of_epoch, (uint64_t)index);
    change made = { .mirror = d->mirror && rg_random_below(key, 0, 2) == 1 };
    for (int i = 0; i < 2; i++) {
        const uint64_t at = (uint64_t)i;
        made.crop[i] = rg_random_below(key, 1 + at, 2 * (int64_t)d->crop + 1) - d->crop;
        made.shift[i] = rg_random_below(key, 3 + at, 2 * (int64_t)d->shift + 1) - d->shift;
    }
    return made;
}

static int64_t clamp(int64_t value, int64_t most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

/* The row or column that moves to index i; -1: padding. */
static int64_t origin(int64_t i, int64_t size, int64_t crop, int64_t shift)
{
    const int64_t at = clamp(i + shift, size - 1) + crop;
    return at >= 0 && at < size ? at : -1;
}

/* A changed copy, of bytes or floats alike. `columns`: where each column comes from, -1: padding.
 */
RG_INLINE void copy_rows(const rg_loader_worker *w, const change *how, const char *from,
                         const size_t pixel)
{
    const rg_dataset_info *info = &w->loader->set->info;
    const int64_t height = info->height, width = info->width;
    char *to = w->changed;
    for (int64_t r = 0; r < height; r++) {
        const int64_t row = origin(r, height, how->crop[0], how->shift[0]);
        const char *const start = from + (size_t)((row < 0 ? 0 : row) * width) * pixel;
        for (int64_t c = 0; c < width; c++, to += pixel) {
            const int64_t column = row < 0 ? -1 : w->columns[c];
            if (column >= 0)
                memcpy(to, start + (size_t)column * pixel, pixel);
            else
                memset(to, 0, pixel);
        }
    }
}

static void change_image(const rg_loader_worker *w, const change *how, const char *from)
{
    const rg_loader *loader = w->loader;
    const int64_t width = loader->set->info.width;
    const size_t pixel = loader->set->image_bytes / (size_t)loader->pixels;
    for (int64_t c = 0; c < width; c++) {
        const int64_t seen = how->mirror ? width - 1 - c : c;
        w->columns[c] = origin(seen, width, how->crop[1], how->shift[1]);
    }
    switch (pixel) { /* a constant makes one load and one store of the copy */
    case 1:
        copy_rows(w, how, from, 1);
        break;
    case 3:
        copy_rows(w, how, from, 3);
        break;
    case 4:
        copy_rows(w, how, from, 4);
        break;
    default:
        copy_rows(w, how, from, pixel);
        break;
    }
}

RG_INLINE void look_up(const char *table, const unsigned char *from, char *to, int64_t pixels,
                       const int64_t channels, const size_t size)
{
    for (int64_t c = 0; c < channels; c++) {
        const char *const own = table + (size_t)(256 * c) * size;
        for (int64_t i = 0; i < pixels; i++)
            memcpy(to + (size_t)(i * channels + c) * size, own + from[i * channels + c] * size,
                   size);
    }
}

/* Bytes by a table: any dtype and any normalization, rounded once, for two loads and a store.
 * Common sizes are compile-time constants. */
static void write_bytes(const rg_loader *loader, const unsigned char *from, char *to)
{
    const size_t size = rg_dtype_size(loader->desc.dtype);
    const int64_t pixels = loader->pixels, channels = loader->set->info.channels;
    if (channels == 1 && size == 4)
        look_up(loader->table, from, to, pixels, 1, 4);
    else if (channels == 1 && size == 2)
        look_up(loader->table, from, to, pixels, 1, 2);
    else if (size == 4)
        look_up(loader->table, from, to, pixels, channels, 4);
    else if (size == 2)
        look_up(loader->table, from, to, pixels, channels, 2);
    else
        look_up(loader->table, from, to, pixels, channels, 8);
}

static void write_floats(const rg_loader *loader, const float *from, void *to)
{
    const rg_loader_desc *d = &loader->desc;
    const int64_t channels = loader->set->info.channels;
    const double *mean = d->columns > 0 ? d->column_mean : d->mean;
    const double *deviation = d->columns > 0 ? d->column_deviation : d->deviation;
    for (int64_t i = 0; i < loader->pixels; i++) {
        for (int64_t c = 0; c < channels; c++) {
            const double x = (double)from[i * channels + c];
            const int64_t k = d->columns > 0 ? i % d->columns : c;
            rg_element_set(to, d->dtype, i * channels + c, (x - mean[k]) / deviation[k]);
        }
    }
}

rg_status rg_loader_write_image(rg_loader_worker *w, int64_t epoch, int64_t index, char *to)
{
    const rg_loader *loader = w->loader;
    const void *from;
    RG_TRY(rg_dataset_fetch(loader->set, index, &w->decoder, w->decoded, &from));
    if (loader->desc.mirror || loader->desc.crop > 0 || loader->desc.shift > 0) {
        const change how = draw_change(loader, epoch, index);
        change_image(w, &how, from);
        from = w->changed;
    }
    if (loader->set->info.dtype == RG_U8)
        write_bytes(loader, from, to);
    else
        write_floats(loader, from, to);
    return RG_OK;
}
