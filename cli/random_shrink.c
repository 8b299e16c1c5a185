/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Shrinking: a trial that fails is made simpler step by step, as long as it still fails. */
#include "cli/random_trials.h"
#include "core/shape.h"

#include <stdlib.h>
#include <time.h>

typedef struct shrinker {
    const char *device;
    rg_random_shared *shared;
    rg_random_case best;
    const rg_random_case *candidate;
    char said[RG_SAID];
    int runs;
    time_t end;
} shrinker;

static void run_candidate(void *context, rg_random_shared *shared)
{
    const shrinker *s = context;
    rg_random_devices *devices = rg_random_devices_open(s->device);
    rg_random_counts counts = { 0 };
    const rg_status status = rg_random_run(devices, s->candidate, &counts, shared->said);
    shared->outcome = status != RG_OK       ? RG_OUTCOME_REFUSED
                      : counts.failures > 0 ? RG_OUTCOME_FAILED
                                            : RG_OUTCOME_FINE;
    rg_random_devices_close(devices);
}

/* Whether two failures are of one kind: they say the same up to the first number. */
static bool is_alike(const char *a, const char *b)
{
    const size_t length = strcspn(a, "0123456789[");
    return length == strcspn(b, "0123456789[") && memcmp(a, b, length) == 0;
}

/* Takes the candidate where it fails, too, and in the same way. */
static bool try(shrinker *s, const rg_random_case *candidate)
{
    enum { MOST_RUNS = 400 };
    char before[RG_RANDOM_TEXT], after[RG_RANDOM_TEXT];
    rg_random_text(&s->best, before);
    rg_random_text(candidate, after);
    if (strcmp(before, after) == 0 || s->runs >= MOST_RUNS || time(NULL) > s->end)
        return false;
    s->runs++;
    s->candidate = candidate;
    if (rg_random_fork(s->shared, true, run_candidate, s) != RG_OK ||
        s->shared->outcome != RG_OUTCOME_FAILED || !is_alike(s->said, s->shared->said))
        return false;
    s->best = *candidate;
    snprintf(s->said, RG_SAID, "%s", s->shared->said);
    return true;
}

static bool shrink_forms(shrinker *s)
{
    bool any = false;
    rg_random_case c = s->best;
    c.forms = 0;
    if (try(s, &c))
        return true;
    for (int i = 0; i < 32; i++) {
        c = s->best;
        c.forms &= ~(1u << i);
        any |= try(s, &c);
    }
    return any;
}

static bool shrink_layout(shrinker *s)
{
    rg_random_case c = s->best;
    c.threads = c.threads > 0 ? 1 : 0;
    bool any = try(s, &c);
    c = s->best;
    c.strategy[0] = 0;
    any |= try(s, &c);
    c = s->best;
    c.views = (rg_views){ 0, 0 };
    any |= try(s, &c);
    for (int i = 0; i < 26 && s->best.views.seed != 0; i++) {
        c = s->best;
        c.views.mask &= ~(1u << i);
        any |= try(s, &c);
    }
    return any;
}

static bool shrink_values(shrinker *s)
{
    bool any = false;
    for (int i = 0; i <= RG_MAX_INPUTS; i++) {
        rg_random_case c = s->best;
        rg_fill *fill = i < RG_MAX_INPUTS ? &c.x_fill[i] : &c.dy_fill;
        fill->repeat = 0;
        any |= try(s, &c);
        c = s->best;
        *fill = (rg_fill){ 0 };
        any |= try(s, &c);
    }
    rg_random_case c = s->best;
    c.flags &= RG_CASE_NARROW | RG_CASE_NO_DIFFERENCES; /* what may be expected stays */
    any |= try(s, &c);
    c = s->best;
    c.dtype = RG_F32;
    return try(s, &c) || any;
}

/* Without one of the fields, which is then as by default. */
static bool shrink_fields(shrinker *s)
{
    bool any = false;
    for (size_t at = 0; at < strlen(s->best.fields);) {
        rg_random_case c = s->best;
        const size_t length = strcspn(c.fields + at, " ");
        char *rest = c.fields + at + length;
        rest += *rest == ' ';
        memmove(c.fields + at, rest, strlen(rest) + 1);
        const size_t used = strlen(c.fields);
        if (used > 0 && c.fields[used - 1] == ' ')
            c.fields[used - 1] = 0;
        if (try(s, &c))
            any = true;
        else
            at += length + 1;
    }
    return any;
}

/* A dimension becomes `size`: alone, or wherever there is one as long. */
static bool try_size(shrinker *s, int32_t input, int32_t dim, int64_t size, bool everywhere)
{
    const rg_case made = { .name = "random", .x = s->best.shapes };
    rg_random_case c = s->best;
    rg_tensor_desc x[RG_MAX_INPUTS];
    int32_t inputs;
    if (rg_case_shapes(&made, c.dtype, x, &inputs) != RG_OK || input >= inputs ||
        dim >= x[input].rank || size >= x[input].dims[dim] || size < 0)
        return false;
    const int64_t old = x[input].dims[dim];
    for (int32_t i = 0; i < inputs; i++) {
        for (int32_t d = 0; d < x[i].rank; d++) {
            if ((i == input && d == dim) || (everywhere && x[i].dims[d] == old))
                x[i].dims[d] = size;
        }
    }
    rg_random_shapes(x, inputs, c.dtype, c.shapes, sizeof c.shapes);
    return try(s, &c);
}

static bool shrink_dim(shrinker *s, int32_t input, int32_t dim)
{
    const rg_case made = { .name = "random", .x = s->best.shapes };
    rg_tensor_desc x[RG_MAX_INPUTS];
    int32_t inputs;
    if (rg_case_shapes(&made, s->best.dtype, x, &inputs) != RG_OK || input >= inputs ||
        dim >= x[input].rank)
        return false;
    const int64_t old = x[input].dims[dim], sizes[] = { 1, 2, old / 4, old / 2, old - 1 };
    for (int k = 0; k < 5; k++) {
        if (try_size(s, input, dim, sizes[k], true) || try_size(s, input, dim, sizes[k], false))
            return true;
    }
    return false;
}

static bool shrink_shapes(shrinker *s)
{
    bool any = false;
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        for (int32_t d = 0; d < RG_MAX_RANK; d++) {
            while (shrink_dim(s, i, d))
                any = true;
        }
    }
    return any;
}

void rg_random_shrink(const char *device, rg_random_case *c, char said[RG_SAID])
{
    enum { SECONDS = 30 };
    shrinker s = {
        .device = device, .shared = rg_random_share(), .best = *c, .end = time(NULL) + SECONDS
    };
    if (s.shared == NULL)
        return;
    snprintf(s.said, RG_SAID, "%s", said);
    bool smaller = true;
    while (smaller) {
        smaller = shrink_forms(&s);
        smaller |= shrink_layout(&s);
        smaller |= shrink_values(&s);
        smaller |= shrink_shapes(&s);
        smaller |= shrink_fields(&s);
    }
    *c = s.best;
    snprintf(said, RG_SAID, "%s", s.said);
}
