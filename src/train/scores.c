/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses and scores, each from the formula of retrograde/loss.h. */
#include "train/scores.h"

#include "core/dtype.h"

#include <math.h>

int64_t rg_network_targets(const rg_network_desc *n)
{
    if (n->target == RG_TARGET_CLASS)
        return 1;
    return n->outputs > 0 ? n->outputs : n->classes;
}

int64_t rg_network_outputs(const rg_network_desc *n)
{
    const bool rows = n->target == RG_TARGET_CLASS || n->target == RG_TARGET_MASK;
    return rg_network_targets(n) * (rows ? n->classes : 1);
}

rg_loss_kind rg_network_loss(const rg_network_desc *n)
{
    if (n->has_loss)
        return n->loss;
    return n->target == RG_TARGET_LABELS   ? RG_LOSS_SIGMOID_CROSS_ENTROPY
           : n->target == RG_TARGET_VALUES ? RG_LOSS_MEAN_SQUARED
                                           : RG_LOSS_SOFTMAX_CROSS_ENTROPY;
}

static double output_at(const rg_scored *s, int64_t image, int64_t i)
{
    return rg_element_get(s->outputs, s->network->dtype,
                          image * rg_network_outputs(s->network) + i);
}

static double target_at(const rg_scored *s, int64_t image, int64_t i)
{
    return (double)((const float *)s->targets)[image * rg_network_targets(s->network) + i];
}

static int32_t label_at(const rg_scored *s, int64_t image, int64_t i)
{
    return ((const int32_t *)s->targets)[image * rg_network_targets(s->network) + i];
}

/* ---- rows of classes ---- */

/* log(sum of exp) over the classes of a row. */
static double log_sum(const rg_scored *s, int64_t image, int64_t row)
{
    const int64_t classes = s->network->classes, first = row * classes;
    double largest = -INFINITY, sum = 0;
    for (int64_t k = 0; k < classes; k++)
        largest = fmax(largest, output_at(s, image, first + k));
    for (int64_t k = 0; k < classes; k++)
        sum += exp(output_at(s, image, first + k) - largest);
    return log(sum) + largest;
}

/* The most probable class of a row. */
static int32_t best_class(const rg_scored *s, int64_t image, int64_t row)
{
    const int64_t classes = s->network->classes;
    int32_t best = 0;
    double largest = -INFINITY;
    for (int32_t k = 0; k < classes; k++) {
        const double value = output_at(s, image, row * classes + k);
        best = value > largest ? k : best;
        largest = value > largest ? value : largest;
    }
    return best;
}

static bool has_rows(const rg_scored *s)
{
    return s->network->target == RG_TARGET_CLASS || s->network->target == RG_TARGET_MASK;
}

/* ---- losses ---- */

static double element_loss(rg_loss_kind kind, double y, double t)
{
    const double e = y - t, delta = 1;
    switch (kind) {
    case RG_LOSS_MEAN_ABSOLUTE:
        return fabs(e);
    case RG_LOSS_HUBER:
        return fabs(e) > delta ? delta * (fabs(e) - delta / 2) : e * e / 2;
    case RG_LOSS_SIGMOID_CROSS_ENTROPY:
        return fmax(y, 0) - y * t + log1p(exp(-fabs(y)));
    case RG_LOSS_HINGE:
        return fmax(0, 1 - (2 * t - 1) * y);
    default:
        return e * e;
    }
}

double rg_scored_loss(const rg_scored *s, int64_t image)
{
    const rg_loss_kind kind = rg_network_loss(s->network);
    const int64_t count = rg_network_targets(s->network), classes = s->network->classes;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!has_rows(s))
            sum += element_loss(kind, output_at(s, image, i), target_at(s, image, i));
        else if (label_at(s, image, i) != RG_DATASET_IGNORED)
            sum += log_sum(s, image, i) - output_at(s, image, i * classes + label_at(s, image, i));
    }
    return sum / (double)count;
}

double rg_scored_weight(const rg_scored *s, int64_t image)
{
    const int64_t count = rg_network_targets(s->network);
    int64_t counted = 0;
    if (s->network->target != RG_TARGET_MASK)
        return 1;
    for (int64_t i = 0; i < count; i++)
        counted += label_at(s, image, i) != RG_DATASET_IGNORED;
    return (double)counted / (double)count;
}

double rg_weighted_mean(double sum, double weight)
{
    return weight > 0 ? sum / weight : 0;
}

/* ---- scores ---- */

static void count_overlap(const rg_scored *s, int32_t label, int32_t predicted)
{
    const int32_t classes = s->network->classes;
    s->overlaps[label] += label == predicted;
    s->overlaps[classes + label]++;
    s->overlaps[2 * classes + predicted]++;
}

double rg_scored_score(const rg_scored *s, int64_t image)
{
    const int64_t count = rg_network_targets(s->network);
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (has_rows(s)) {
            const int32_t label = label_at(s, image, i), predicted = best_class(s, image, i);
            sum += label == predicted;
            if (s->overlaps != NULL && label >= 0 && label < s->network->classes)
                count_overlap(s, label, predicted);
        } else if (s->network->target == RG_TARGET_LABELS) {
            sum += (output_at(s, image, i) > 0) == (target_at(s, image, i) > 0.5);
        } else {
            sum += fabs(output_at(s, image, i) - target_at(s, image, i));
        }
    }
    return sum / (double)count;
}

bool rg_scored_in_top5(const rg_scored *s, int64_t image)
{
    enum { TOP = 5 };
    const int32_t label = label_at(s, image, 0);
    const double own = output_at(s, image, label);
    int64_t better = 0;
    for (int32_t k = 0; k < s->network->classes; k++)
        better += output_at(s, image, k) > own || (output_at(s, image, k) == own && k < label);
    return better < TOP;
}

int64_t rg_scored_answers(const rg_scored *s, int64_t image, float *to)
{
    const rg_target_kind target = s->network->target;
    const bool classes = target == RG_TARGET_CLASS;
    const int64_t count = classes ? s->network->classes : rg_network_targets(s->network);
    const double sum = classes && to != NULL ? log_sum(s, image, 0) : 0;
    for (int64_t i = 0; i < count && to != NULL; i++) {
        const double y = target == RG_TARGET_MASK ? 0 : output_at(s, image, i);
        to[i] = (float)(classes                      ? exp(y - sum)
                        : target == RG_TARGET_MASK   ? best_class(s, image, i)
                        : target == RG_TARGET_LABELS ? 1 / (1 + exp(-y))
                                                     : y);
    }
    return count;
}
