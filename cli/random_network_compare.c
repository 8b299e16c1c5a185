/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: results against the definition, and against each other. */
#include "cli/random_network.h"
#include "core/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Those of docs/numerics.md. */
static const double tolerances[] = {
    [RG_F32] = 1e-5, [RG_F64] = 1e-12, [RG_F16] = 2e-3, [RG_BF16] = 1e-2
};

/* ---- the truth ---- */

bool rg_net_truth_make(const rg_net *net, rg_net_truth *t)
{
    memset(t, 0, sizeof *t);
    /* Where slopes jump, numbers of few bits may end up on the other side. */
    if (net->kinked && net->dtype != RG_F64)
        return true;
    bool done = rg_net_define(net, &t->exact, 0, 0);
    for (int32_t k = 0; k < RG_NET_NOISY && done; k++)
        done = rg_net_define(net, &t->noisy[k], tolerances[net->dtype],
                             UINT64_C(1000003) * (uint64_t)(k + 1));
    t->known = done;
    return done;
}

void rg_net_truth_free(rg_net_truth *t)
{
    rg_net_numbers_free(&t->exact);
    for (int32_t k = 0; k < RG_NET_NOISY; k++)
        rg_net_numbers_free(&t->noisy[k]);
}

/* The value whose numbers a chunk should have after the first run, or -1. */
static int32_t value_of(const rg_net *net, const rg_net_chunk *chunk)
{
    if (chunk->result >= 0)
        return net->results[chunk->result].value;
    for (int32_t v = 0; v < net->values_count; v++) {
        if (net->values[v].kind != RG_NET_PARAMETER ||
            strcmp(net->values[v].name, chunk->name) != 0)
            continue;
        for (int32_t n = 0; n < net->nodes_count; n++) {
            for (int32_t j = 0; rg_net_has_node(net, n) && j < RG_MAX_OUTPUTS; j++) {
                if (net->nodes[n].gradient_of < 0 && net->nodes[n].assigns[j] == v)
                    return net->nodes[n].out[j];
            }
        }
        return v;
    }
    return -1;
}

/* How far from the definition the elements of a value may be; -1: nothing can be said. The error
 * is made of those of all steps, each within the tolerance, carried on by the network. */
static double allowance(const rg_net *net, const rg_net_truth *t, int32_t v, int64_t count)
{
    double most = 0, far = 0;
    for (int64_t i = 0; i < count; i++) {
        most = fmax(most, fabs(t->exact.at[v][i]));
        for (int32_t k = 0; k < RG_NET_NOISY; k++) {
            const double error = fabs(t->noisy[k].at[v][i] - t->exact.at[v][i]);
            far = error <= far ? far : error; /* NaN counts */
        }
    }
    const double tolerance = tolerances[net->dtype];
    const double allowed = 8 * far + tolerance * (most + 1);
    return allowed < 0.25 * most || allowed < 1e3 * tolerance ? allowed : -1;
}

static bool is_true(const rg_net *net, const rg_net_truth *t, const rg_net_chunk *chunk,
                    const char *who, rg_net_report *report)
{
    const int32_t v = value_of(net, chunk);
    const int64_t count = rg_shape_count(&chunk->desc);
    if (v < 0 || t->exact.at[v] == NULL || !rg_dtype_is_data(chunk->desc.dtype))
        return true;
    const double allowed = allowance(net, t, v, count);
    report->comparisons += allowed >= 0;
    for (int64_t i = 0; i < count && allowed >= 0; i++) {
        const double got = rg_element_get(chunk->data, chunk->desc.dtype, i);
        const double want = t->exact.at[v][i];
        if (fabs(got - want) <= allowed)
            continue;
        snprintf(report->text, sizeof report->text,
                 "%s: %s[%lld] is %.9g, the definition says %.9g (allowed %.3g)", who, chunk->name,
                 (long long)i, got, want, allowed);
        return false;
    }
    return true;
}

bool rg_net_is_true(const rg_net *net, const rg_net_truth *truth, const rg_net_outcome *o,
                    const char *who, rg_net_report *report)
{
    for (int32_t i = 0; truth->known && i < o->count; i++) {
        if (!is_true(net, truth, &o->chunks[i], who, report))
            return false;
    }
    return true;
}

/* ---- the same bits ---- */

static const rg_net_chunk *find_chunk(const rg_net_outcome *o, const char *name)
{
    for (int32_t i = 0; i < o->count; i++) {
        if (strcmp(o->chunks[i].name, name) == 0)
            return &o->chunks[i];
    }
    return NULL;
}

static bool same_chunk(const rg_net_chunk *want, const rg_net_chunk *got, const char *who,
                       int32_t run, rg_net_report *report)
{
    report->comparisons++;
    if (want == NULL || want->desc.dtype != got->desc.dtype ||
        !rg_shape_same_dims(&want->desc, &got->desc)) {
        snprintf(report->text, sizeof report->text, "%s, run %d: %s has a different shape", who,
                 run, got->name);
        return false;
    }
    const size_t size = rg_dtype_size(got->desc.dtype);
    for (int64_t i = 0; i < rg_shape_count(&got->desc); i++) {
        const char *a = (const char *)want->data + (size_t)i * size;
        const char *b = (const char *)got->data + (size_t)i * size;
        if (memcmp(a, b, size) == 0)
            continue;
        snprintf(report->text, sizeof report->text,
                 "%s, run %d: %s[%lld] is %.17g, but %.17g without these options", who, run,
                 got->name, (long long)i, rg_element_get(got->data, got->desc.dtype, i),
                 rg_element_get(want->data, want->desc.dtype, i));
        return false;
    }
    return true;
}

bool rg_net_is_same(const rg_net *net, const rg_net_outcome want[], const rg_net_outcome got[],
                    const char *who, rg_net_report *report)
{
    for (int32_t run = 0; run < net->steps; run++) {
        for (int32_t i = 0; i < got[run].count; i++) {
            const rg_net_chunk *chunk = &got[run].chunks[i];
            if (!same_chunk(find_chunk(&want[run], chunk->name), chunk, who, run, report))
                return false;
        }
    }
    return true;
}
