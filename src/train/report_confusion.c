/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Confusions: a matrix for a small number of classes, otherwise the most frequent mistakes. */
#include "core/memory.h"
#include "train/report_parts.h"

#include <math.h>

/* Classes of a matrix, mistakes and classes of a list, at most. */
enum { MATRIX_CLASSES = 24, MOST_PAIRS = 30, MOST_CLASSES = 30 };

typedef rg_confusion_class class_row;

static double share_of(int64_t part, int64_t all)
{
    return all > 0 ? (double)part / (double)all : NAN;
}

static double recall_of(const class_row *row)
{
    return share_of(row->right, row->labels);
}

static double precision_of(const class_row *row)
{
    return share_of(row->right, row->predictions);
}

void rg_class_name(rg_page *page, const rg_report *r, int32_t index, size_t most)
{
    const bool named = r->class_names != NULL && index >= 0 && index < r->classes &&
                       r->class_names[index] != NULL && r->class_names[index][0] != 0;
    if (named)
        rg_page_text(page, r->class_names[index], most);
    else
        rg_page_put(page, "class %d", index);
}

/* ---- the matrix ---- */

static void add_cell(rg_page *page, const rg_report *r, int32_t label, int32_t predicted,
                     double count, double row, double most_wrong)
{
    const bool right = label == predicted;
    const double share = right            ? (row > 0 ? count / row : 0)
                         : most_wrong > 0 ? count / most_wrong
                                          : 0;
    const double depth = count > 0 ? 0.06 + 0.86 * (right ? share : sqrt(share)) : 0;
    rg_page_put(page, "<td class=\"v%s%s%s\" style=\"--v:%s\" title=\"", right ? " on" : "",
                count > 0 ? "" : " z", depth > 0.62 ? " deep" : "", rg_fixed(depth, 2).text);
    rg_class_name(page, r, label, RG_NAME);
    rg_page_put(page, right ? ", correct: " : " predicted as ");
    if (!right) {
        rg_class_name(page, r, predicted, RG_NAME);
        rg_page_put(page, ": ");
    }
    rg_page_put(page, "%s of %s\">%s</td>", rg_fixed(count, 0).text, rg_fixed(row, 0).text,
                count > 0 ? rg_fixed(count, 0).text : "\xc2\xb7");
}

static void add_matrix(rg_page *page, const rg_report *r, const class_row *rows)
{
    double most_wrong = 0, cells[MATRIX_CLASSES][MATRIX_CLASSES] = { { 0 } };
    for (int64_t i = 0; i < r->confusion_count; i++) {
        const rg_confusion_cell *c = &r->confusion[i];
        cells[c->label][c->predicted] = (double)c->count;
        if (c->label != c->predicted)
            most_wrong = fmax(most_wrong, (double)c->count);
    }
    rg_page_put(page, "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Confusion "
                      "matrix\"><table class=\"matrix\">\n"
                      "<caption>Rows: true class. Columns: predicted class. Blue: correct, orange: "
                      "wrong.</caption>\n"
                      "<thead><tr><th class=\"flat\" scope=\"col\">true \\ predicted</th>");
    for (int32_t k = 0; k < r->classes; k++) {
        rg_page_put(page, "<th scope=\"col\">");
        rg_class_name(page, r, k, 18);
        rg_page_put(page, "</th>");
    }
    rg_page_put(page, "<th class=\"flat\" scope=\"col\">Recall</th></tr></thead>\n<tbody>\n");
    for (int32_t i = 0; i < r->classes; i++) {
        rg_page_put(page, "<tr><th scope=\"row\">");
        rg_class_name(page, r, i, 24);
        rg_page_put(page, "</th>");
        for (int32_t k = 0; k < r->classes; k++)
            add_cell(page, r, i, k, cells[i][k], (double)rows[i].labels, most_wrong);
        rg_page_put(page, "<td class=\"sum\">%s</td></tr>\n",
                    rg_percent(recall_of(&rows[i]), 1).text);
    }
    rg_page_put(page, "</tbody>\n<tfoot><tr><th scope=\"row\">Precision</th>");
    for (int32_t k = 0; k < r->classes; k++)
        rg_page_put(page, "<td>%s</td>", rg_percent(precision_of(&rows[k]), 1).text);
    rg_page_put(page, "<td></td></tr></tfoot></table></div>\n");
}

/* ---- lists ---- */

static void add_pairs(rg_page *page, const rg_report *r, const class_row *rows,
                      const rg_confusion_cell *mistakes, int count)
{
    rg_page_put(page,
                "<div class=\"scroll\"><table><caption>Most frequent "
                "confusions</caption><thead><tr><th scope=\"col\">True class</th><th "
                "scope=\"col\">Predicted class</th><th scope=\"col\" class=\"n\">Images</th><th "
                "scope=\"col\" class=\"n\">Share of the class</th></tr></thead>\n"
                "<tbody>\n");
    for (int i = 0; i < count; i++) {
        const rg_confusion_cell *m = &mistakes[i];
        rg_page_put(page, "<tr><td>");
        rg_class_name(page, r, m->label, RG_NAME);
        rg_page_put(page, "</td><td>");
        rg_class_name(page, r, m->predicted, RG_NAME);
        rg_page_put(page, "</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                    rg_count(m->count).text,
                    rg_percent(share_of(m->count, rows[m->label].labels), 1).text);
    }
    rg_page_put(page, "</tbody></table></div>\n");
}

static void add_classes(rg_page *page, const rg_report *r, class_row *rows)
{
    const int32_t count = r->classes < MOST_CLASSES ? r->classes : MOST_CLASSES;
    rg_confusion_weakest(rows, r->classes);
    rg_page_put(
        page,
        "<div class=\"scroll\"><table><caption>%s, lowest recall first</caption><thead><tr><th "
        "scope=\"col\">Class</th><th scope=\"col\" class=\"n\">Images</th><th scope=\"col\" "
        "class=\"n\">Recall</th><th scope=\"col\" class=\"n\">Precision</th></tr></thead>\n"
        "<tbody>\n",
        r->classes > count ? "Classes with the lowest recall" : "Classes");
    for (int32_t i = 0; i < count; i++) {
        rg_page_put(page, "<tr><td>");
        rg_class_name(page, r, rows[i].index, RG_NAME);
        rg_page_put(
            page,
            "</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
            rg_fixed((double)rows[i].labels, 0).text, rg_percent(recall_of(&rows[i]), 1).text,
            rg_percent(precision_of(&rows[i]), 1).text);
    }
    rg_page_put(page, "</tbody></table></div>\n");
}

/* ---- the section ---- */

static void add_sentence(rg_page *page, const rg_report *r, const class_row *rows,
                         const rg_confusion_cell *mistakes, int count)
{
    int64_t right = 0, all = 0;
    for (int32_t i = 0; i < r->classes; i++) {
        right += rows[i].right;
        all += rows[i].labels;
    }
    rg_page_put(page, "<p class=\"note\">%s of %s images are classified correctly (%s).",
                rg_count(right).text, rg_count(all).text, rg_percent(share_of(right, all), 2).text);
    if (count > 0) {
        rg_page_put(page, " Most frequent confusion: ");
        rg_class_name(page, r, mistakes[0].label, RG_NAME);
        rg_page_put(page, " predicted as ");
        rg_class_name(page, r, mistakes[0].predicted, RG_NAME);
        rg_page_put(page, ", %s times.", rg_count(mistakes[0].count).text);
    }
    rg_page_put(page, "</p>\n");
}

rg_status rg_report_confusion(rg_page *page, const rg_report *r)
{
    if (r->confusion == NULL || r->classes <= 0)
        return RG_OK;
    const size_t bytes = (size_t)r->classes * sizeof(class_row);
    rg_confusion_cell mistakes[MOST_PAIRS];
    void *memory;
    RG_TRY(rg_allocate(&rg_default_allocator, bytes, &memory));
    class_row *rows = memory;
    rg_confusion_count(r->confusion, r->confusion_count, r->classes, rows);
    const int count = rg_confusion_mistakes(r->confusion, r->confusion_count, mistakes, MOST_PAIRS);
    rg_section_begin(page, "confusion", "Confusion matrix");
    add_sentence(page, r, rows, mistakes, count);
    if (r->classes <= MATRIX_CLASSES) {
        add_matrix(page, r, rows);
    } else {
        rg_page_put(page, "<div class=\"wide\">\n");
        if (count > 0)
            add_pairs(page, r, rows, mistakes, count);
        add_classes(page, r, rows);
        rg_page_put(page, "</div>\n");
    }
    rg_section_end(page);
    rg_release(&rg_default_allocator, memory, bytes);
    return page->status;
}
