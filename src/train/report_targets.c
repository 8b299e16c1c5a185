/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* How good a network is on targets other than one class: each value, each label, or each class of
 * the pixels of masks. */
#include "core/memory.h"
#include "train/report_parts.h"
#include "train/scatter.h"

#include <math.h>
#include <string.h>

/* Rows of a table, and scatter charts, at most. */
enum { MOST_ROWS = 40, MOST_CHARTS = 6 };

static double ratio(double part, double all)
{
    return all > 0 ? part / all : NAN;
}

static void begin_table(rg_page *page, const char *caption, const char *const heads[], int count)
{
    rg_page_put(page, "<div class=\"scroll\"><table><caption>%s</caption><thead><tr>", caption);
    for (int i = 0; i < count; i++)
        rg_page_put(page, "<th scope=\"col\"%s>%s</th>", i > 0 ? " class=\"n\"" : "", heads[i]);
    rg_page_put(page, "</tr></thead>\n<tbody>\n");
}

static void add_number(rg_page *page, rg_figure figure)
{
    rg_page_put(page, "<td class=\"n\">%s</td>", figure.text);
}

static void end_table(rg_page *page, int64_t left_out)
{
    rg_page_put(page, "</tbody></table></div>\n");
    if (left_out > 0)
        rg_page_put(page, "<p class=\"note\">and %s more</p>\n", rg_count(left_out).text);
}

/* ---- values ---- */

static const char *name_of(const rg_report *r, int64_t index)
{
    return r->class_names != NULL && index < r->classes && r->class_names[index] != NULL
               ? r->class_names[index]
               : "";
}

static void add_values(rg_page *page, const rg_report *r)
{
    static const char *const heads[] = { "Value", "Mean absolute error", "Root mean squared error",
                                         "Share of variance explained" };
    const int64_t rows = r->value_count < MOST_ROWS ? r->value_count : MOST_ROWS;
    rg_section_begin(page, "targets", "Predicted and true values");
    rg_page_put(page,
                "<p class=\"note\">%s images. On the dotted line both values are the same."
                "</p>\n<div class=\"small\">\n",
                rg_count(r->target_images).text);
    for (int64_t i = 0; i < r->value_count && i < MOST_CHARTS; i++)
        rg_scatter_add(page, name_of(r, i), r->values[i].points, r->values[i].point_count);
    rg_page_put(page, "</div>\n");
    begin_table(page, "Values", heads, 4);
    for (int64_t i = 0; i < rows; i++) {
        const rg_report_value *v = &r->values[i];
        rg_page_put(page, "<tr><td>");
        rg_page_text(page, name_of(r, i), RG_NAME);
        rg_page_put(page, "</td>");
        add_number(page, rg_significant(v->absolute, 4));
        add_number(page, rg_significant(sqrt(v->squared), 4));
        add_number(page, rg_percent(v->variance > 0 ? 1 - v->squared / v->variance : NAN, 1));
        rg_page_put(page, "</tr>\n");
    }
    end_table(page, r->value_count - rows);
    rg_section_end(page);
}

/* ---- labels and masks ---- */

static void add_label(rg_page *page, const rg_report *r, const rg_confusion_class *c)
{
    const double wrong = (double)(c->labels + c->predictions - 2 * c->right);
    add_number(page, rg_count(c->labels));
    add_number(page, rg_count(c->predictions));
    add_number(page, rg_percent(ratio((double)c->right, (double)c->labels), 1));
    add_number(page, rg_percent(ratio((double)c->right, (double)c->predictions), 1));
    add_number(page, rg_percent(1 - ratio(wrong, (double)r->target_images), 1));
}

static void add_pixels(rg_page *page, const rg_confusion_class *c, int64_t pixels)
{
    const double either = (double)(c->labels + c->predictions - c->right);
    add_number(page, rg_percent(ratio((double)c->labels, (double)pixels), 2));
    add_number(page, rg_percent(ratio((double)c->predictions, (double)pixels), 2));
    add_number(page, rg_percent(ratio((double)c->right, (double)c->labels), 1));
    add_number(page, rg_percent(ratio((double)c->right, (double)c->predictions), 1));
    add_number(page, rg_percent(ratio((double)c->right, either), 1));
}

static void add_rows(rg_page *page, const rg_report *r, rg_confusion_class *rows)
{
    const bool masks = r->target == RG_TARGET_MASK;
    const int32_t count = r->classes < MOST_ROWS ? r->classes : MOST_ROWS;
    int64_t pixels = 0;
    for (int32_t i = 0; i < r->classes; i++)
        pixels += rows[i].labels;
    if (r->classes > count)
        rg_confusion_weakest(rows, r->classes);
    for (int32_t i = 0; i < count; i++) {
        rg_page_put(page, "<tr><td>");
        if (masks)
            rg_page_put(page, "<i class=\"swatch\" style=\"background:#%06x\"></i>",
                        rg_mask_colour(rows[i].index));
        rg_class_name(page, r, rows[i].index, RG_NAME);
        rg_page_put(page, "</td>");
        if (masks)
            add_pixels(page, &rows[i], pixels);
        else
            add_label(page, r, &rows[i]);
        rg_page_put(page, "</tr>\n");
    }
}

static rg_status add_classes(rg_page *page, const rg_report *r)
{
    static const char *const labels[] = { "Label",  "Images",    "Predicted",
                                          "Recall", "Precision", "Accuracy" };
    static const char *const masks[] = { "Class",  "Pixels",    "Predicted",
                                         "Recall", "Precision", "Intersection over union" };
    const bool is_mask = r->target == RG_TARGET_MASK;
    const size_t bytes = (size_t)r->classes * sizeof(rg_confusion_class);
    void *rows;
    RG_TRY(rg_allocate(&rg_default_allocator, bytes, &rows));
    memcpy(rows, r->target_classes, bytes);
    rg_section_begin(page, "targets", is_mask ? "Classes of pixels" : "Labels");
    rg_page_put(page, "<p class=\"note\">%s images.%s</p>\n", rg_count(r->target_images).text,
                is_mask ? " Pixels that are ignored do not count." : "");
    begin_table(page,
                r->classes <= MOST_ROWS ? (is_mask ? "Classes" : "Labels")
                : is_mask               ? "Classes with the lowest recall"
                                        : "Labels with the lowest recall",
                is_mask ? masks : labels, 6);
    add_rows(page, r, rows);
    end_table(page, r->classes > MOST_ROWS ? r->classes - MOST_ROWS : 0);
    rg_section_end(page);
    rg_release(&rg_default_allocator, rows, bytes);
    return RG_OK;
}

bool rg_report_has_targets(const rg_report *r)
{
    return r->target == RG_TARGET_VALUES ? r->values != NULL && r->value_count > 0
                                         : r->target_classes != NULL && r->classes > 0;
}

rg_status rg_report_targets(rg_page *page, const rg_report *r)
{
    if (!rg_report_has_targets(r))
        return RG_OK;
    if (r->target == RG_TARGET_VALUES)
        add_values(page, r);
    else
        RG_TRY(add_classes(page, r));
    return page->status;
}

/* Far from each other for neighbouring classes: hues in steps of the golden ratio; class 0, often
 * the background, is dark. */
uint32_t rg_mask_colour(int32_t class)
{
    if (class == RG_DATASET_IGNORED)
        return 0xffffff;
    if (class == 0)
        return 0x2b2f36;
    const double hue = fmod(class * 0.61803398875, 1) * 6;
    const double light = class % 3 == 0 ? 0.55 : class % 3 == 1 ? 0.95 : 0.75;
    uint32_t colour = 0;
    for (int i = 0; i < 3; i++) {
        const double from = fabs(fmod(hue + 6 - 2 * i, 6) - 3) - 1; /* 0 to 1, and beyond */
        const double part = from < 0 ? 0 : from > 1 ? 1 : from;
        colour = colour << 8 | (uint32_t)lround(255 * light * (0.2 + 0.8 * part));
    }
    return colour;
}
