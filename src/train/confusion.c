/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Counts of what was taken for what. */
#include "train/confusion.h"

#include <stdlib.h>

static int by_label(const void *a, const void *b)
{
    const rg_confusion_cell *x = a, *y = b;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    return (x->predicted > y->predicted) - (x->predicted < y->predicted);
}

rg_status rg_confusion_create(const int32_t labels[], const int32_t predicted[], int64_t count,
                              rg_confusion *confusion)
{
    *confusion = (rg_confusion){ .capacity = (size_t)count };
    RG_TRY(rg_allocate_array(confusion->capacity, sizeof *confusion->cells, &confusion->cells));
    rg_confusion_cell *cells = confusion->cells;
    for (int64_t i = 0; i < count; i++)
        cells[i] = (rg_confusion_cell){ labels[i], predicted[i], 1 };
    if (count > 0)
        qsort(cells, (size_t)count, sizeof *cells, by_label);
    for (int64_t i = 0; i < count; i++) {
        const int64_t last = confusion->count - 1;
        if (last >= 0 && by_label(&cells[last], &cells[i]) == 0)
            cells[last].count++;
        else
            cells[confusion->count++] = cells[i];
    }
    return RG_OK;
}

void rg_confusion_release(rg_confusion *confusion)
{
    rg_release(&rg_default_allocator, confusion->cells,
               confusion->capacity * sizeof *confusion->cells);
    *confusion = (rg_confusion){ 0 };
}

void rg_confusion_count(const rg_confusion_cell cells[], int64_t count, int32_t classes,
                        rg_confusion_class of[])
{
    for (int32_t i = 0; i < classes; i++)
        of[i] = (rg_confusion_class){ .index = i };
    for (int64_t i = 0; i < count; i++) {
        const rg_confusion_cell *c = &cells[i];
        of[c->label].labels += c->count;
        of[c->predicted].predictions += c->count;
        of[c->label].right += c->label == c->predicted ? c->count : 0;
    }
}

static int by_recall(const void *a, const void *b)
{
    const rg_confusion_class *p = a, *q = b;
    const double x = p->labels > 0 ? (double)p->right / (double)p->labels : 2;
    const double y = q->labels > 0 ? (double)q->right / (double)q->labels : 2;
    return x < y ? -1 : x > y ? 1 : (p->index > q->index) - (p->index < q->index);
}

void rg_confusion_weakest(rg_confusion_class of[], int32_t classes)
{
    qsort(of, (size_t)classes, sizeof *of, by_recall);
}

int rg_confusion_mistakes(const rg_confusion_cell cells[], int64_t count, rg_confusion_cell to[],
                          int most)
{
    int found = 0;
    for (int64_t i = 0; i < count; i++) {
        const rg_confusion_cell *c = &cells[i];
        if (c->label == c->predicted || (found == most && c->count <= to[found - 1].count))
            continue;
        int at = found < most ? found++ : most - 1;
        for (; at > 0 && to[at - 1].count < c->count; at--)
            to[at] = to[at - 1];
        to[at] = *c;
    }
    return found;
}
