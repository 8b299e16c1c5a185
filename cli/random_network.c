/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: checking one, and shrinking one that fails. */
#include "cli/random_network.h"
#include "cli/arguments.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ISAS = 8, MOST_THREADS = 3 };

struct rg_networks {
    FILE *told;
    const char *device;
    const char *isas[MOST_ISAS]; /* NULL: that of the device */
    int32_t isas_count;
    rg_queue *queues[MOST_ISAS][MOST_THREADS]; /* made when first wanted */
    int64_t comparisons, failures;
};

/* ---- devices ---- */

static rg_status queue_of(rg_networks *n, uint32_t isa, int32_t threads, rg_queue **queue)
{
    rg_queue **at = &n->queues[isa % (uint32_t)n->isas_count][threads - 1];
    if (*at == NULL) {
        rg_device_options options = rg_device_options_default();
        rg_device *device;
        options.threads = threads;
        options.isa = n->isas[isa % (uint32_t)n->isas_count];
        if (options.isa == NULL)
            options.threads = 0;
        RG_TRY(rg_device_create(n->device, &options, &device));
        const rg_status status = rg_queue_create(device, at);
        rg_device_destroy(device);
        RG_TRY(status);
    }
    *queue = *at;
    return RG_OK;
}

rg_status rg_networks_open(const char *device, const char *isa, FILE *told, rg_networks **networks)
{
    rg_networks *n = calloc(1, sizeof *n);
    RG_CHECK(n != NULL, RG_OUT_OF_MEMORY, "out of memory");
    n->told = told;
    n->device = device;
    const char *name;
    for (int32_t i = 0; strcmp(device, "cpu") == 0 && (name = rg_device_isa_list(i)) != NULL; i++) {
        if ((isa == NULL || strcmp(name, isa) == 0) && n->isas_count < MOST_ISAS)
            n->isas[n->isas_count++] = name;
    }
    if (n->isas_count == 0)
        n->isas_count = 1;
    *networks = n;
    return RG_OK;
}

void rg_networks_close(rg_networks *n)
{
    for (int32_t i = 0; n != NULL && i < MOST_ISAS; i++) {
        for (int32_t k = 0; k < MOST_THREADS; k++)
            rg_queue_destroy(n->queues[i][k]);
    }
    free(n);
}

int64_t rg_networks_comparisons(const rg_networks *n)
{
    return n->comparisons;
}

int64_t rg_networks_failures(const rg_networks *n)
{
    return n->failures;
}

/* ---- one network ---- */

/* The network under test, with what it is compared with. */
typedef struct trial {
    rg_networks *all;
    rg_net *net;
    rg_net_graph g;
    rg_net_truth truth;
    rg_net_outcome plain[RG_NET_STEPS];
    rg_net_report report;
} trial;

static bool went_well(trial *t, rg_status status, const char *who)
{
    if (status != RG_OK)
        snprintf(t->report.text, sizeof t->report.text, "%s: %s", who, rg_error_text());
    return status == RG_OK;
}

/* A plan with the same fusion and nothing else, one thread: what gives other bits than without. */
static rg_net_variant reference_of(const rg_net_variant *v)
{
    const rg_plan_options *o = &v->options;
    rg_net_variant r = { .threads = 1, .options = { .size = sizeof r.options, .poison = true } };
    r.options.fuse_neurons = o->fuse_neurons;
    r.options.fuse_biases = o->fuse_biases;
    r.options.fuse_softmax = o->fuse_softmax;
    r.options.fuse_losses = o->fuse_losses;
    r.options.add_gradients = o->add_gradients;
    /* What is a view decides what is added in place; a source with gaps has no views. */
    r.options.share_views = o->add_gradients && o->share_views;
    r.strided = r.options.share_views ? v->strided : 0;
    return r;
}

static bool fuses(const rg_plan_options *o)
{
    return o->fuse_neurons || o->fuse_biases || o->fuse_softmax || o->fuse_losses ||
           o->add_gradients;
}

static void describe_variant(const rg_net_variant *v, char *text, size_t capacity)
{
    static const char *const ways[] = {
        "encoded", "in one list", "image by image",          "with a handler", "by copies",
        "by JSON", "by a file",   "a new plan for each run", "step by step",   "by data sources"
    };
    const rg_plan_options *o = &v->options;
    snprintf(text, capacity, "plan %s, %d threads%s%s%s%s%s%s%s%s%s%s%s", ways[v->way], v->threads,
             v->strided > 0 ? ", strided sources" : "", o->reuse_storage ? ", reuse_storage" : "",
             o->in_place ? ", in_place" : "", o->fuse_neurons ? ", fuse_neurons" : "",
             o->fuse_biases ? ", fuse_biases" : "", o->fuse_softmax ? ", fuse_softmax" : "",
             o->fuse_losses ? ", fuse_losses" : "", o->add_gradients ? ", add_gradients" : "",
             o->share_views ? ", share_views" : "", o->batch_updates ? ", batch_updates" : "",
             v->budget > 0 ? ", a budget" : "");
}

/* Runs a variant; compares with `want`, unless NULL, and with the definition. */
static bool check_run(trial *t, const rg_net_variant *v, const rg_net_outcome *want,
                      rg_net_outcome got[])
{
    char who[256];
    rg_queue *queue = NULL;
    describe_variant(v, who, sizeof who);
    return went_well(t, queue_of(t->all, t->net->isa, v->threads, &queue), who) &&
           went_well(t, rg_net_run(t->net, &t->g, v, queue, got, NULL), who) &&
           (want == NULL || rg_net_is_same(t->net, want, got, who, &t->report)) &&
           (v->way == RG_NET_ONE_LIST && t->net->steps > 1
                ? true
                : rg_net_is_true(t->net, &t->truth, &got[0], who, &t->report));
}

static void free_outcomes(rg_net_outcome o[])
{
    for (int32_t i = 0; i < RG_NET_STEPS; i++)
        rg_net_outcome_free(&o[i]);
}

static bool check_variant(trial *t, const rg_net_variant *v)
{
    rg_net_outcome reference[RG_NET_STEPS] = { 0 }, got[RG_NET_STEPS] = { 0 };
    const bool fused = fuses(&v->options);
    const rg_net_variant r = reference_of(v);
    bool right = !fused || check_run(t, &r, NULL, reference);
    right = right && check_run(t, v, fused ? reference : t->plain, got);
    free_outcomes(reference);
    free_outcomes(got);
    return right;
}

static bool has_purpose(const trial *t)
{
    bool any = rg_graph_results(t->g.graph) > 0;
    for (int32_t n = 0; n < t->net->nodes_count; n++) {
        for (int32_t j = 0; j < RG_MAX_OUTPUTS && rg_net_has_node(t->net, n); j++)
            any |= t->net->nodes[n].gradient_of < 0 && t->net->nodes[n].assigns[j] >= 0;
    }
    for (int32_t i = 0; i < t->net->states_count; i++)
        any |= t->net->keep[t->net->states[i].item] &&
               rg_net_has_node(t->net, t->net->states[i].value);
    return any;
}

static bool check_all(trial *t)
{
    const rg_net_variant base = reference_of(&(rg_net_variant){ .threads = 1 });
    rg_queue *queue = NULL;
    if (!went_well(t, rg_net_build(t->net, false, &t->g), "the graph"))
        return false;
    if (!has_purpose(t))
        return true;
    if (!went_well(t, queue_of(t->all, t->net->isa, 1, &queue), "the device") ||
        !went_well(t, rg_net_plain(t->net, &t->g, queue, t->plain), "nodes one by one"))
        return false;
    (void)rg_net_truth_make(t->net, &t->truth);
    if (!rg_net_is_true(t->net, &t->truth, &t->plain[0], "nodes one by one", &t->report))
        return false;
    rg_net_outcome got[RG_NET_STEPS] = { 0 };
    bool right = check_run(t, &base, t->plain, got);
    free_outcomes(got);
    for (int32_t i = 0; i < t->net->variants_count && right; i++)
        right = !t->net->keep[t->net->variants[i].item] || check_variant(t, &t->net->variants[i]);
    bool slope = true;
    if (right)
        right =
            went_well(t, rg_net_check_slope(t->net, &t->g, &t->truth, queue, &t->report, &slope),
                      "finite differences");
    return right && slope && rg_net_check_mistakes(t->net, &t->g, queue, &t->report);
}

/* Whether the network, with the items that it keeps, passes. */
static bool check(rg_networks *n, rg_net *net, rg_net_report *report)
{
    trial t = { .all = n, .net = net };
    rg_net_settle(net);
    const bool right = check_all(&t);
    n->comparisons += t.report.comparisons;
    *report = t.report;
    free_outcomes(t.plain);
    rg_net_truth_free(&t.truth);
    rg_net_graph_free(&t.g);
    return right;
}

/* ---- what fails, made small ---- */

static void shrink(rg_networks *n, rg_net *net, rg_net_report *report)
{
    enum { MOST_TRIES = 600 };
    bool changed = true;
    for (int32_t tries = 0; changed && tries < MOST_TRIES;) {
        changed = false;
        for (int32_t i = net->items - 1; i >= 0 && tries < MOST_TRIES; i--) {
            rg_net_report other;
            if (!net->keep[i])
                continue;
            net->keep[i] = false;
            tries++;
            if (check(n, net, &other)) {
                net->keep[i] = true;
                continue;
            }
            *report = other;
            changed = true;
        }
    }
    rg_net_settle(net);
}

static void tell(rg_networks *n, const rg_net *net, const rg_net_report *report)
{
    rg_net_graph g;
    static char text[65536];
    const char *isa = n->isas[net->isa % (uint32_t)n->isas_count], *comma = "";
    fprintf(n->told, "FAIL network %llu %s%s%s: %s\n", (unsigned long long)net->seed,
            rg_dtype_name(net->dtype), isa != NULL ? " " : "", isa != NULL ? isa : "",
            report->text);
    if (rg_net_build(net, false, &g) == RG_OK) {
        rg_graph_describe(g.graph, text, sizeof text);
        fprintf(n->told, "%s", text);
    }
    rg_net_graph_free(&g);
    fprintf(n->told, "     retrograde check --networks 1 --seed %llu --device %s%s%s --only ",
            (unsigned long long)net->seed, n->device, isa != NULL ? " --isa " : "",
            isa != NULL ? isa : "");
    for (int32_t i = 0; i < net->items; i++) {
        if (net->keep[i]) {
            fprintf(n->told, "%s%d", comma, i);
            comma = ",";
        }
    }
    fprintf(n->told, "\n");
}

static rg_status keep_only(rg_net *net, const char *only)
{
    memset(net->keep, 0, sizeof net->keep);
    while (*only != 0) {
        char *end;
        const long item = strtol(only, &end, 10);
        RG_CHECK(end != only && item >= 0 && item < net->items &&
                     (*end == 0 || (*end == ',' && end[1] != 0)),
                 RG_INVALID_ARGUMENT,
                 "--only must list items of the network from 0 to %d, separated by commas: 1,4,17",
                 net->items - 1);
        net->keep[item] = true;
        only = *end == ',' ? end + 1 : end;
    }
    return RG_OK;
}

rg_status rg_networks_check(rg_networks *n, uint64_t seed, const char *only)
{
    rg_net *net = malloc(sizeof *net);
    rg_net_report report;
    RG_CHECK(net != NULL, RG_OUT_OF_MEMORY, "out of memory");
    rg_net_draw_all(net, seed);
    const rg_status status = only != NULL ? keep_only(net, only) : RG_OK;
    if (status == RG_OK && !check(n, net, &report)) {
        n->failures++;
        if (only == NULL)
            shrink(n, net, &report);
        tell(n, net, &report);
    }
    free(net);
    return status;
}

/* ---- the command ---- */

int rg_check_networks(const char *device, const char *isa, int64_t count, uint64_t seed,
                      const char *only)
{
    rg_networks *n = NULL;
    rg_status status = rg_networks_open(device, isa, stdout, &n);
    for (int64_t i = 0; i < count && status == RG_OK; i++)
        status = rg_networks_check(n, seed + (uint64_t)i, only);
    if (status == RG_OK)
        printf("networks     %lld from seed %llu  %lld comparisons  %lld failures\n",
               (long long)count, (unsigned long long)seed, (long long)n->comparisons,
               (long long)n->failures);
    const int exit_status = status == RG_INVALID_ARGUMENT ? rg_wrong("%s", rg_error_text())
                            : status != RG_OK             ? rg_failed()
                                                          : n->failures > 0;
    rg_networks_close(n);
    return exit_status;
}
