/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Confusions: how often each class was predicted as each other. */
#include <retrograde/trainer.h>

#include <stdlib.h>

static int by_label(const void *a, const void *b)
{
    const rg_confusion_cell *x = a, *y = b;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    return (x->predicted > y->predicted) - (x->predicted < y->predicted);
}

int64_t rg_confusion_cells(const rg_prediction predictions[], int64_t count,
                           rg_confusion_cell cells[])
{
    int64_t found = 0;
    if (predictions == NULL || cells == NULL)
        return 0;
    for (int64_t i = 0; i < count; i++)
        cells[i] = (rg_confusion_cell){ predictions[i].label, predictions[i].predicted, 1 };
    if (count > 0)
        qsort(cells, (size_t)count, sizeof *cells, by_label);
    for (int64_t i = 0; i < count; i++) {
        if (found > 0 && by_label(&cells[found - 1], &cells[i]) == 0)
            cells[found - 1].count++;
        else
            cells[found++] = cells[i];
    }
    return found;
}

void rg_confusion_count(const rg_confusion_cell cells[], int64_t count, int32_t classes,
                        rg_confusion_class of[])
{
    for (int32_t i = 0; i < classes && of != NULL; i++)
        of[i] = (rg_confusion_class){ .index = i };
    for (int64_t i = 0; i < count && of != NULL && cells != NULL; i++) {
        const rg_confusion_cell *c = &cells[i];
        if (c->label < 0 || c->label >= classes || c->predicted < 0 || c->predicted >= classes)
            continue;
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
    if (of != NULL && classes > 0)
        qsort(of, (size_t)classes, sizeof *of, by_recall);
}

int32_t rg_confusion_mistakes(const rg_confusion_cell cells[], int64_t count,
                              rg_confusion_cell to[], int32_t most)
{
    int32_t found = 0;
    if (cells == NULL || to == NULL || most < 1)
        return 0;
    for (int64_t i = 0; i < count; i++) {
        const rg_confusion_cell *c = &cells[i];
        if (c->label == c->predicted || (found == most && c->count <= to[found - 1].count))
            continue;
        int32_t at = found < most ? found++ : most - 1;
        for (; at > 0 && to[at - 1].count < c->count; at--)
            to[at] = to[at - 1];
        to[at] = *c;
    }
    return found;
}
