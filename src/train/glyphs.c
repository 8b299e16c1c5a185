/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A data set that needs no file: ten glyphs like digits, each a few lines, drawn by distance. Only
 * sums, products, quotients and square roots are used, which every machine rounds alike. */
#include "train/dataset.h"
#include "train/random.h"

#include <math.h>
#include <string.h>

enum { SIDE = 28, GLYPHS = 10, POINTS = 12, LARGEST_COUNT = 1 << 24 };

/* Points of lines on a field of 8 x 8, x to the right and y down, 0 to 8; a pair with x of -1 lifts
 * the pen, and the list ends with one of -2. */
typedef struct glyph {
    signed char points[POINTS][2];
} glyph;

#define UP    \
    {         \
        -1, 0 \
    }
#define END   \
    {         \
        -2, 0 \
    }
static const glyph glyphs[GLYPHS] = {
    { { { 4, 0 },
        { 6, 1 },
        { 7, 4 },
        { 6, 7 },
        { 4, 8 },
        { 2, 7 },
        { 1, 4 },
        { 2, 1 },
        { 4, 0 },
        END } },
    { { { 2, 2 }, { 4, 0 }, { 4, 8 }, END } },
    { { { 1, 2 }, { 3, 0 }, { 5, 0 }, { 7, 2 }, { 6, 4 }, { 1, 8 }, { 7, 8 }, END } },
    { { { 1, 1 }, { 4, 0 }, { 6, 2 }, { 4, 4 }, { 6, 5 }, { 6, 7 }, { 4, 8 }, { 1, 7 }, END } },
    { { { 5, 8 }, { 5, 0 }, { 1, 5 }, { 7, 5 }, END } },
    { { { 6, 0 }, { 2, 0 }, { 2, 3 }, { 5, 3 }, { 7, 5 }, { 6, 7 }, { 4, 8 }, { 1, 7 }, END } },
    { { { 6, 0 },
        { 3, 1 },
        { 1, 5 },
        { 2, 7 },
        { 4, 8 },
        { 6, 7 },
        { 6, 5 },
        { 4, 4 },
        { 2, 5 },
        END } },
    { { { 1, 0 }, { 7, 0 }, { 3, 8 }, UP, { 3, 4 }, { 6, 4 }, END } },
    { { { 4, 4 },
        { 2, 3 },
        { 2, 1 },
        { 4, 0 },
        { 6, 1 },
        { 6, 3 },
        { 2, 5 },
        { 2, 7 },
        { 4, 8 },
        { 6, 7 },
        { 6, 5 },
        { 4, 4 } } },
    { { { 6, 3 }, { 4, 4 }, { 2, 3 }, { 2, 1 }, { 4, 0 }, { 6, 1 }, { 6, 4 }, { 4, 8 }, END } },
};

typedef struct line {
    double x, y, dx, dy, square; /* from (x, y) by (dx, dy); its length squared */
} line;

/* In [low, high). */
static double between(uint64_t key, uint64_t i, double low, double high)
{
    return low + (high - low) * rg_random_unit(key, i);
}

/* Where the glyph's points come to lie on the image. */
static int place_lines(const glyph *g, uint64_t key, line lines[POINTS])
{
    const double t = between(key, 0, -0.14, 0.14); /* tan of half the angle: 16 degrees each way */
    const double cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
    const double wide = between(key, 1, 1.7, 2.5), high = between(key, 2, 2.0, 2.6);
    const double slant = between(key, 3, -0.2, 0.2);
    const double left = between(key, 4, 11, 16), top = between(key, 5, 11.5, 15.5);
    double x[POINTS], y[POINTS];
    int count = 0;
    for (int i = 0; i < POINTS && g->points[i][0] != -2; i++) {
        const uint64_t own = 16 + 2 * (uint64_t)i; /* each point is off by a little, too */
        const double v = (g->points[i][1] - 4 + between(key, own + 1, -0.5, 0.5)) * high;
        const double u = (g->points[i][0] - 4 + between(key, own, -0.5, 0.5)) * wide - slant * v;
        x[i] = left + cosine * u - sine * v;
        y[i] = top + sine * u + cosine * v;
        if (i == 0 || g->points[i][0] == -1 || g->points[i - 1][0] == -1)
            continue;
        line *l = &lines[count++];
        *l = (line){ .x = x[i - 1], .y = y[i - 1], .dx = x[i] - x[i - 1], .dy = y[i] - y[i - 1] };
        l->square = l->dx * l->dx + l->dy * l->dy;
    }
    return count;
}

/* The square of the distance of a point from a line between its ends. */
static double distance(const line *l, double x, double y)
{
    const double px = x - l->x, py = y - l->y;
    const double along = l->square > 0 ? (px * l->dx + py * l->dy) / l->square : 0;
    const double part = along < 0 ? 0 : along > 1 ? 1 : along;
    const double ox = px - part * l->dx, oy = py - part * l->dy;
    return ox * ox + oy * oy;
}

static void draw(int label, uint64_t key, unsigned char pixels[SIDE * SIDE])
{
    line lines[POINTS];
    const int count = place_lines(&glyphs[label], key, lines);
    const double radius = between(key, 6, 0.8, 1.7), ink = between(key, 7, 170, 255);
    const double noise = between(key, 8, 0, 70);
    const uint64_t grain = rg_random_key(key, 1);
    for (int i = 0; i < SIDE * SIDE; i++) {
        double nearest = 1e9;
        for (int k = 0; k < count; k++) {
            const double d = distance(&lines[k], i % SIDE, i / SIDE);
            nearest = d < nearest ? d : nearest;
        }
        double cover = radius + 0.5 - sqrt(nearest); /* of the pixel by the line, about */
        cover = cover < 0 ? 0 : cover > 1 ? 1 : cover;
        double value = ink * cover + noise * (rg_random_unit(grain, (uint64_t)i) - 0.5) + 0.5;
        value = value < 0 ? 0 : value > 255 ? 255 : value;
        pixels[i] = (unsigned char)value;
    }
}

static rg_status draw_all(uint64_t seed, rg_dataset *set)
{
    const int64_t count = set->info.count;
    void *labels;
    RG_TRY(rg_dataset_allocate(set, UINT64_MAX));
    RG_TRY(rg_allocate(&rg_default_allocator, (size_t)count * sizeof(int32_t), &labels));
    set->labels = labels;
    for (int64_t i = 0; i < count; i++) {
        set->labels[i] = (int32_t)(i % GLYPHS);
        draw((int)(i % GLYPHS), rg_random_key(seed, (uint64_t)i),
             (unsigned char *)set->pixels + i * SIDE * SIDE);
    }
    return rg_dataset_name(set, GLYPHS, NULL);
}

rg_status rg_dataset_glyphs(uint64_t seed, int64_t count, rg_dataset **set)
{
    RG_CHECK_NOT_NULL(set);
    *set = NULL;
    RG_CHECK(count >= 1 && count <= LARGEST_COUNT, RG_INVALID_ARGUMENT,
             "rg_dataset_glyphs: count is %lld, not between 1 and %d", (long long)count,
             LARGEST_COUNT);
    rg_dataset *made;
    RG_TRY(rg_dataset_begin(&made));
    made->info = (rg_dataset_info){
        .count = count, .height = SIDE, .width = SIDE, .channels = 1, .dtype = RG_U8
    };
    const rg_status status = draw_all(seed, made);
    if (status == RG_OK)
        *set = made;
    else
        rg_dataset_destroy(made);
    return status;
}
