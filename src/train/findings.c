/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Findings: sums over a set, batch by batch, and its worst images. */
#include "train/findings.h"
#include "train/report_parts.h"
#include "train/scores.h"

#include "core/dtype.h"

#include <math.h>
#include <stdio.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* Points of a chart, and charts; numbers and names in a text. */
enum { POINTS = 400, CHARTS = 6, MOST_NUMBERS = 4, MOST_NAMES = 6 };

static int64_t chart_count(const rg_findings *f)
{
    return f->info.targets < CHARTS ? f->info.targets : CHARTS;
}

/* ---- while the set is evaluated ---- */

static void add_worst(rg_findings *f, int64_t image, double error)
{
    const double size = isnan(error) ? (double)INFINITY : error;
    if (!(size > 0) ||
        (f->worst_count == RG_FINDINGS_WORST && size <= f->worst_errors[RG_FINDINGS_WORST - 1]))
        return;
    int64_t at = f->worst_count < RG_FINDINGS_WORST ? f->worst_count++ : RG_FINDINGS_WORST - 1;
    for (; at > 0 && f->worst_errors[at - 1] < size; at--) {
        f->worst_errors[at] = f->worst_errors[at - 1];
        f->worst_images[at] = f->worst_images[at - 1];
    }
    f->worst_errors[at] = size;
    f->worst_images[at] = image;
}

/* Evenly distributed images have points. */
static void add_point(rg_findings *f, int64_t value, double truth, double predicted)
{
    const int64_t count = f->info.count, i = f->seen;
    const int64_t at = count <= POINTS ? i : i * POINTS / count;
    if (value >= chart_count(f) || (count > POINTS && i > 0 && (i - 1) * POINTS / count == at))
        return;
    float *point = f->points[value * POINTS + at];
    point[0] = (float)truth;
    point[1] = (float)predicted;
    f->values[value].point_count = at + 1;
}

/* Returns the mean absolute error. Variances are summed as Welford does, without cancellation. */
static double add_values(rg_findings *f, const float targets[], const float answers[])
{
    double sum = 0;
    for (int64_t k = 0; k < f->info.targets; k++) {
        rg_report_value *v = &f->values[k];
        const double truth = (double)targets[k];
        const double error = (double)answers[k] - truth, before = truth - f->means[k];
        f->means[k] += before / (double)(f->seen + 1);
        v->variance += before * (truth - f->means[k]);
        v->absolute += fabs(error);
        v->squared += error * error;
        sum += fabs(error);
        add_point(f, k, truth, (double)answers[k]);
    }
    return sum / (double)f->info.targets;
}

/* Returns how far the probabilities are from the labels, as a negative logarithm. */
static double add_labels(rg_findings *f, const float targets[], const float answers[])
{
    double sum = 0;
    for (int64_t k = 0; k < f->info.targets; k++) {
        const bool label = targets[k] > 0.5f;
        const bool predicted = answers[k] > 0.5f;
        f->classes[k].labels += label;
        f->classes[k].predictions += predicted;
        f->classes[k].right += label && predicted;
        sum -= log(fmax(label ? (double)answers[k] : 1 - (double)answers[k], 1e-30));
    }
    return sum;
}

/* Returns the share of wrong pixels. */
static double add_mask(rg_findings *f, const int32_t labels[], const float answers[])
{
    int64_t counted = 0, wrong = 0;
    for (int64_t k = 0; k < f->info.targets; k++) {
        const int32_t label = labels[k], predicted = (int32_t)answers[k];
        if (label == RG_DATASET_IGNORED)
            continue;
        f->classes[label].labels++;
        f->classes[predicted].predictions++;
        f->classes[label].right += label == predicted;
        wrong += label != predicted;
        counted++;
    }
    return counted > 0 ? (double)wrong / (double)counted : 0;
}

static void look(void *context, const rg_batch *batch, const float answers[])
{
    rg_findings *f = context;
    const int64_t targets = f->info.targets;
    for (int64_t i = 0; i < batch->count; i++, answers += targets, f->seen++) {
        const float *exact = rg_dataset_values(f->set, batch->indices[i]);
        const double error = f->info.target == RG_TARGET_MASK
                                 ? add_mask(f, batch->labels + i * targets, answers)
                             : f->info.target == RG_TARGET_LABELS ? add_labels(f, exact, answers)
                                                                  : add_values(f, exact, answers);
        add_worst(f, batch->indices[i], error);
    }
}

static rg_status begin(rg_findings *f)
{
    const size_t targets = (size_t)f->info.targets, classes = (size_t)f->info.classes;
    if (f->info.target != RG_TARGET_VALUES) {
        RG_TRY(rg_allocate_array(classes, sizeof *f->classes, &f->classes));
        for (int32_t i = 0; i < f->info.classes; i++)
            f->classes[i].index = i;
        return RG_OK;
    }
    RG_TRY(rg_allocate_array(targets, sizeof *f->values, &f->values));
    RG_TRY(rg_allocate_array(targets, sizeof *f->means, &f->means));
    RG_TRY(rg_allocate_array((size_t)chart_count(f) * POINTS, sizeof *f->points, &f->points));
    for (int64_t i = 0; i < chart_count(f); i++)
        f->values[i].points = (const float(*)[2])f->points + i * POINTS;
    return RG_OK;
}

static void finish(rg_findings *f)
{
    for (int64_t k = 0; f->values != NULL && k < f->info.targets; k++) {
        f->values[k].absolute /= (double)f->seen;
        f->values[k].squared /= (double)f->seen;
        f->values[k].variance /= (double)f->seen;
    }
}

/* ---- the worst images ---- */

rg_status rg_findings_picture(const rg_dataset *set, int64_t image, uint8_t *to)
{
    rg_dataset_info info;
    RG_TRY(rg_dataset_get_info(set, &info));
    const int64_t count = info.height * info.width * info.channels;
    if (info.dtype == RG_U8)
        return rg_dataset_read_image(set, image, to);
    const float *pixels = rg_dataset_image(set, image);      /* which are always in memory */
    double low = (double)INFINITY, high = (double)-INFINITY; /* whose difference may be no float */
    for (int64_t i = 0; i < count; i++) {
        low = isfinite(pixels[i]) ? fmin(low, (double)pixels[i]) : low;
        high = isfinite(pixels[i]) ? fmax(high, (double)pixels[i]) : high;
    }
    const double scale = high > low ? 255 / (high - low) : 0;
    for (int64_t i = 0; i < count; i++)
        to[i] = isfinite(pixels[i]) ? (uint8_t)(((double)pixels[i] - low) * scale + 0.5) : 0;
    return RG_OK;
}

/* A mask of RG_MASK_PIXELS at most on each side, of every step-th pixel. */
typedef struct small_mask {
    int64_t step;
    int32_t height, width;
} small_mask;

static small_mask small_of(const rg_dataset_info *info)
{
    const int64_t longest = info->height > info->width ? info->height : info->width;
    const int64_t step = (longest + RG_MASK_PIXELS - 1) / RG_MASK_PIXELS;
    return (small_mask){ step, (int32_t)((info->height + step - 1) / step),
                         (int32_t)((info->width + step - 1) / step) };
}

/* The classes are `classes`, or where that is NULL `answers`. */
static void draw_mask(const rg_findings *f, const int32_t classes[], const float answers[],
                      uint8_t *to)
{
    const small_mask m = small_of(&f->info);
    for (int32_t i = 0; i < m.height; i++) {
        for (int32_t j = 0; j < m.width; j++, to += 3) {
            const int64_t at = i * m.step * f->info.width + j * m.step;
            const uint32_t colour =
                rg_mask_colour(classes != NULL ? classes[at] : (int32_t)answers[at]);
            for (int c = 0; c < 3; c++)
                to[c] = (uint8_t)(colour >> (16 - 8 * c));
        }
    }
}

/* "1.5, 2.25, …" */
static void list_numbers(const float numbers[], int64_t count, char text[RG_FINDINGS_TEXT])
{
    size_t at = 0;
    for (int64_t i = 0; i < count && i < MOST_NUMBERS; i++)
        at += (size_t)snprintf(text + at, RG_FINDINGS_TEXT - at, "%s%s", i > 0 ? ", " : "",
                               rg_significant((double)numbers[i], 4).text);
    if (count > MOST_NUMBERS)
        snprintf(text + at, RG_FINDINGS_TEXT - at, ", …");
}

/* The labels of more than a half. */
static void list_labels(const rg_trainer *trainer, const float labels[], int64_t count,
                        char text[RG_FINDINGS_TEXT])
{
    size_t at = 0;
    int named = 0;
    snprintf(text, RG_FINDINGS_TEXT, "none");
    for (int64_t i = 0; i < count && named <= MOST_NAMES; i++) {
        if (!(labels[i] > 0.5f))
            continue;
        at +=
            (size_t)snprintf(text + at, RG_FINDINGS_TEXT - at, "%s%.24s", named > 0 ? ", " : "",
                             named < MOST_NAMES ? rg_trainer_class_name(trainer, (int32_t)i) : "…");
        named++;
    }
}

static rg_status predict(rg_trainer *trainer, const rg_dataset *set, int64_t image,
                         uint8_t *picture, float answers[])
{
    const void *pixels = rg_dataset_image(set, image);
    RG_TRY(rg_findings_picture(set, image, picture));
    rg_dataset_info info;
    RG_TRY(rg_dataset_get_info(set, &info));
    return rg_trainer_predict(trainer, pixels != NULL ? pixels : picture, info.dtype, 1, answers);
}

static rg_status show_mask(rg_findings *f, const rg_dataset *set, int64_t i, const float answers[],
                           uint8_t *pictures)
{
    const small_mask m = small_of(&f->info);
    const size_t bytes = 3 * (size_t)m.height * (size_t)m.width;
    int32_t *classes;
    RG_TRY(rg_allocate_array((size_t)f->info.targets, sizeof *classes, &classes));
    const rg_status status = rg_dataset_read_mask(set, f->worst_images[i], classes);
    if (status == RG_OK) {
        draw_mask(f, NULL, answers, pictures);
        draw_mask(f, classes, NULL, pictures + bytes);
    }
    rg_release(allocator, classes, (size_t)f->info.targets * sizeof *classes);
    rg_report_image *image = &f->worst[i];
    image->said_mask = pictures;
    image->true_mask = pictures + bytes;
    image->mask_height = m.height;
    image->mask_width = m.width;
    snprintf(f->texts[i][1], RG_FINDINGS_TEXT, "%s of the pixels are wrong",
             rg_percent(f->worst_errors[i], 1).text);
    return status;
}

static rg_status show_one(rg_findings *f, rg_trainer *trainer, const rg_dataset *set,
                          const char *part, int64_t i, float answers[])
{
    const rg_dataset_info *info = &f->info;
    const size_t bytes = (size_t)(info->height * info->width * info->channels);
    uint8_t *picture = f->pictures + (size_t)i * (f->picture_bytes / RG_FINDINGS_WORST);
    const float *values = rg_dataset_values(set, f->worst_images[i]);
    RG_TRY(predict(trainer, set, f->worst_images[i], picture, answers));
    snprintf(f->texts[i][0], RG_FINDINGS_TEXT, "%.30s image %lld", part,
             (long long)f->worst_images[i]);
    f->worst[i] = (rg_report_image){ .pixels = picture,
                                     .height = (int32_t)info->height,
                                     .width = (int32_t)info->width,
                                     .channels = (int32_t)info->channels,
                                     .name = f->texts[i][0],
                                     .said = f->texts[i][1],
                                     .wanted = f->texts[i][2] };
    if (info->target == RG_TARGET_MASK)
        return show_mask(f, set, i, answers, picture + bytes);
    if (info->target == RG_TARGET_VALUES) {
        list_numbers(answers, info->targets, f->texts[i][1]);
        list_numbers(values, info->targets, f->texts[i][2]);
    } else {
        list_labels(trainer, answers, info->targets, f->texts[i][1]);
        list_labels(trainer, values, info->targets, f->texts[i][2]);
    }
    return RG_OK;
}

static rg_status show_worst(rg_findings *f, rg_trainer *trainer, const rg_dataset *set,
                            const char *part)
{
    const rg_dataset_info *info = &f->info;
    const small_mask m = small_of(info);
    const size_t each = (size_t)(info->height * info->width * info->channels) +
                        6 * (size_t)m.height * (size_t)m.width;
    float *answers;
    if (info->channels != 1 && info->channels != 3) {
        f->worst_count = 0; /* these are no pictures */
        return RG_OK;
    }
    RG_TRY(rg_allocate_array(RG_FINDINGS_WORST, each, &f->pictures));
    f->picture_bytes = RG_FINDINGS_WORST * each;
    RG_TRY(rg_allocate_array((size_t)rg_trainer_answers(trainer), sizeof *answers, &answers));
    rg_status status = RG_OK;
    for (int64_t i = 0; i < f->worst_count && status == RG_OK; i++)
        status = show_one(f, trainer, set, part, i, answers);
    rg_release(allocator, answers, (size_t)rg_trainer_answers(trainer) * sizeof *answers);
    return status;
}

/* ---- all of it ---- */

rg_status rg_findings_gather(rg_trainer *trainer, const rg_dataset *set, const char *part,
                             rg_findings *f, rg_trainer_result *result)
{
    *f = (rg_findings){ .set = set };
    RG_TRY(rg_trainer_check_set(trainer, set));
    RG_TRY(rg_dataset_get_info(set, &f->info));
    RG_TRY(begin(f));
    RG_TRY(rg_trainer_evaluate_with(trainer, set, look, f, result));
    finish(f);
    return show_worst(f, trainer, set, part);
}

void rg_findings_release(rg_findings *f)
{
    const size_t targets = (size_t)f->info.targets;
    rg_release(allocator, f->classes, (size_t)f->info.classes * sizeof *f->classes);
    rg_release(allocator, f->values, targets * sizeof *f->values);
    rg_release(allocator, f->means, targets * sizeof *f->means);
    rg_release(allocator, f->points, (size_t)chart_count(f) * POINTS * sizeof *f->points);
    rg_release(allocator, f->pictures, f->picture_bytes);
    *f = (rg_findings){ 0 };
}
