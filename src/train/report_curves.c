/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Loss, accuracy, learning rate and speed over time, and the same as a table. */
#include "train/chart.h"
#include "core/memory.h"
#include "train/report_parts.h"

#include <math.h>

/* Rows of the table at most: the first half of them, and the last. */
enum { MOST_ROWS = 120 };

/* The columns of the epochs, each as one array. */
enum { EPOCH, TRAIN_LOSS, LOSS, TRAIN_ACCURACY, ACCURACY, RATE, SPEED, COLUMNS };

static double column_value(const rg_report_epoch *e, int column)
{
    switch (column) {
    case EPOCH:
        return (double)e->epoch;
    case TRAIN_LOSS:
        return e->train_loss;
    case LOSS:
        return e->validated ? e->validation_loss : NAN;
    case TRAIN_ACCURACY:
        return e->train_accuracy;
    case ACCURACY:
        return e->validated ? e->validation_accuracy : NAN;
    case RATE:
        return e->learning_rate;
    default:
        return e->images_per_second;
    }
}

int64_t rg_best_epoch(const rg_report *report)
{
    int64_t best = -1;
    bool validated = false;
    for (int64_t i = 0; i < report->epoch_count && report->best_epoch > 0; i++) {
        if (report->epochs[i].epoch == report->best_epoch)
            return i;
    }
    for (int64_t i = 0; i < report->epoch_count; i++)
        validated |= report->epochs[i].validated;
    double least = INFINITY;
    for (int64_t i = 0; i < report->epoch_count; i++) {
        const double loss = column_value(&report->epochs[i], validated ? LOSS : TRAIN_LOSS);
        if (loss < least) {
            least = loss;
            best = i;
        }
    }
    return best;
}

static bool has_any(const double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (!isnan(values[i]))
            return true;
    }
    return false;
}

/* ---- charts ---- */

static void add_pair(rg_page *page, const rg_report *r, double *const columns[COLUMNS],
                     bool accuracy)
{
    const int64_t best = rg_best_epoch(r);
    const int first = accuracy ? TRAIN_ACCURACY : TRAIN_LOSS;
    bool validated = false;
    for (int64_t i = 0; i < r->epoch_count; i++)
        validated |= r->epochs[i].validated;
    const rg_chart_line lines[2] = {
        { .name = "training", .y = columns[first], .colour = 1, .marks_losses = !accuracy },
        { .name = "validation", .y = columns[first + 1], .colour = 2 },
    };
    const bool trained = !accuracy || has_any(columns[first], r->epoch_count);
    if (!trained && !validated)
        return;
    rg_chart_add(page, &(rg_chart){
                           .title = accuracy ? "Accuracy" : "Loss",
                           .x_name = "epoch",
                           .unit = accuracy ? RG_CHART_PERCENT : RG_CHART_PLAIN,
                           .x = columns[EPOCH],
                           .count = r->epoch_count,
                           .lines = trained ? lines : lines + 1,
                           .line_count = trained + validated,
                           .mark = best >= 0 && r->epoch_count > 1 ? columns[EPOCH][best] : NAN,
                           .is_wide = true,
                       });
}

static void add_single(rg_page *page, const rg_report *r, double *const columns[COLUMNS],
                       int column, const char *title, const char *name, int colour)
{
    if (!has_any(columns[column], r->epoch_count))
        return;
    const rg_chart_line line = { .name = name, .y = columns[column], .colour = colour };
    rg_chart_add(page, &(rg_chart){ .title = title,
                                    .x_name = "epoch",
                                    .x = columns[EPOCH],
                                    .count = r->epoch_count,
                                    .lines = &line,
                                    .line_count = 1,
                                    .from_zero = true,
                                    .mark = NAN });
}

/* The mean of the finite values around each point; NaN where there are none. */
static void smooth(const double *from, double *to, int64_t count)
{
    const int64_t reach = count / 40 > 2 ? count / 40 : 2;
    double sum = 0;
    int64_t known = 0;
    for (int64_t i = -reach; i < count; i++) {
        const int64_t in = i + reach, out = i - reach - 1;
        if (in < count && isfinite(from[in])) {
            sum += from[in];
            known++;
        }
        if (out >= 0 && isfinite(from[out])) {
            sum -= from[out];
            known--;
        }
        if (i >= 0)
            to[i] = known > 0 && isfinite(from[i]) ? sum / (double)known : NAN;
    }
}

static rg_status add_steps(rg_page *page, const rg_report *r)
{
    const size_t count = (size_t)r->step_count;
    size_t bytes;
    void *memory;
    RG_CHECK(rg_multiply(count, 3 * sizeof(double), &bytes), RG_OUT_OF_MEMORY,
             "%lld steps do not fit in memory", (long long)r->step_count);
    RG_TRY(rg_allocate(&rg_default_allocator, bytes, &memory));
    double *x = memory, *y = x + count, *mean = y + count;
    for (size_t i = 0; i < count; i++) {
        x[i] = (double)r->steps[i].step;
        y[i] = r->steps[i].loss;
    }
    smooth(y, mean, r->step_count);
    const rg_chart_line lines[2] = {
        { .name = "loss", .y = y, .colour = 1, .faint = true, .marks_losses = true },
        { .name = "smoothed", .y = mean, .colour = 1 },
    };
    rg_chart_add(page, &(rg_chart){ .title = "Loss of each step",
                                    .x_name = "step",
                                    .x = x,
                                    .count = r->step_count,
                                    .lines = lines,
                                    .line_count = 2,
                                    .mark = NAN });
    rg_release(&rg_default_allocator, memory, bytes);
    return RG_OK;
}

/* ---- the table ---- */

static void add_row(rg_page *page, const rg_report_epoch *e, bool best)
{
    rg_page_put(page, "<tr%s><td class=\"n\">%s</td><td class=\"n\">%s</td>",
                best ? " class=\"best\"" : "", rg_count(e->epoch).text,
                rg_significant(e->train_loss, 4).text);
    rg_page_put(page, "<td class=\"n\">%s</td><td class=\"n\">%s</td>",
                e->validated ? rg_significant(e->validation_loss, 4).text : "\xe2\x80\x93",
                rg_percent(e->train_accuracy, 2).text);
    rg_page_put(page, "<td class=\"n\">%s</td><td class=\"n\">%s</td>",
                rg_percent(e->validated ? e->validation_accuracy : NAN, 2).text,
                isnan(e->learning_rate) ? "\xe2\x80\x93"
                                        : rg_significant(e->learning_rate, 3).text);
    rg_page_put(page, "<td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                isfinite(e->images_per_second) && fabs(e->images_per_second) < 1e15
                    ? rg_count(llround(e->images_per_second)).text
                    : "\xe2\x80\x93",
                rg_duration(e->seconds).text);
}

static void add_table(rg_page *page, const rg_report *r)
{
    const int64_t best = rg_best_epoch(r);
    rg_page_put(page, "<details><summary>Table of all epochs</summary>\n"
                      "<div class=\"scroll\"><table class=\"epochs\"><caption>One row per epoch; "
                      "the epoch with the lowest loss is marked</caption>\n"
                      "<thead><tr>");
    static const char *const heads[] = { "Epoch",
                                         "Training loss",
                                         "Validation loss",
                                         "Training accuracy",
                                         "Validation accuracy",
                                         "Learning rate",
                                         "Images/s",
                                         "Time" };
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        rg_page_put(page, "<th scope=\"col\" class=\"n\">%s</th>", heads[i]);
    rg_page_put(page, "</tr></thead>\n<tbody>\n");
    for (int64_t i = 0; i < r->epoch_count; i++) {
        const bool cut =
            r->epoch_count > MOST_ROWS && i >= MOST_ROWS / 2 && i < r->epoch_count - MOST_ROWS / 2;
        if (!cut)
            add_row(page, &r->epochs[i], i == best);
        else if (i == MOST_ROWS / 2)
            rg_page_put(page,
                        "<tr><td colspan=\"8\">%s epochs are omitted; metrics.csv lists all "
                        "epochs</td></tr>\n",
                        rg_count(r->epoch_count - MOST_ROWS).text);
    }
    rg_page_put(page, "</tbody></table></div></details>\n");
}

/* ---- the section ---- */

static void add_charts(rg_page *page, const rg_report *r, double *const columns[COLUMNS])
{
    rg_page_put(page, "<div class=\"wide\">\n");
    add_pair(page, r, columns, false);
    add_pair(page, r, columns, true);
    rg_page_put(page, "</div>\n<div class=\"small\">\n");
    if (r->step_count > 0 && page->status == RG_OK)
        page->status = add_steps(page, r);
    add_single(page, r, columns, RATE, "Learning rate", "learning rate", 4);
    add_single(page, r, columns, SPEED, "Images per second", "images per second", 3);
    rg_page_put(page, "</div>\n");
}

rg_status rg_report_curves(rg_page *page, const rg_report *r)
{
    if (r->epoch_count <= 0 && r->step_count <= 0)
        return RG_OK;
    const size_t count = r->epoch_count > 0 ? (size_t)r->epoch_count : 0;
    size_t bytes;
    void *memory;
    RG_CHECK(rg_multiply(count + 1, COLUMNS * sizeof(double), &bytes), RG_OUT_OF_MEMORY,
             "%lld epochs do not fit in memory", (long long)r->epoch_count);
    RG_TRY(rg_allocate(&rg_default_allocator, bytes, &memory));
    double *columns[COLUMNS];
    for (int k = 0; k < COLUMNS; k++) {
        columns[k] = (double *)memory + (size_t)k * (count + 1);
        for (size_t i = 0; i < count; i++)
            columns[k][i] = column_value(&r->epochs[i], k);
    }
    rg_section_begin(page, "curves", "Learning curves");
    rg_page_put(page, "<p class=\"note\">");
    if (count > 1 && rg_best_epoch(r) >= 0)
        rg_page_put(page, "The dotted line marks the epoch with the lowest loss. ");
    rg_page_put(page, "Hover over a chart to see its values.</p>\n");
    if (count == 0) {
        rg_page_put(page, "<div class=\"small\">\n");
        if (page->status == RG_OK)
            page->status = add_steps(page, r);
        rg_page_put(page, "</div>\n");
    } else {
        add_charts(page, r, columns);
        add_table(page, r);
    }
    rg_section_end(page);
    rg_release(&rg_default_allocator, memory, bytes);
    return page->status;
}
