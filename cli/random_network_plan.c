/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: plans, and all the ways to run one. */
#include "cli/random_network.h"
#include "runtime/objects.h"

#include <retrograde/files.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct runner {
    const rg_net *net;
    const rg_net_graph *g;
    const rg_net_variant *variant;
    rg_plan_options options;
    rg_queue *queue;
    rg_plan *plan;
    rg_net_outcome *outcomes;
} runner;

/* ---- parameters and sources ---- */

static rg_status write_parameters(const runner *r, rg_plan *plan)
{
    for (int32_t v = 0; v < r->net->values_count; v++) {
        rg_tensor *tensor;
        if (r->net->values[v].kind == RG_NET_PARAMETER && r->g->elements[v] == NULL &&
            rg_plan_parameter(plan, r->net->values[v].name, &tensor) == RG_OK)
            RG_TRY(rg_net_write(r->net, v, 0, tensor));
    }
    return RG_OK;
}

static int32_t find_source(const runner *r, int32_t index)
{
    const char *name = rg_plan_source_name(r->plan, index);
    for (int32_t v = 0; v < r->net->values_count; v++) {
        if (r->net->values[v].kind == RG_NET_SOURCE && strcmp(r->net->values[v].name, name) == 0)
            return v;
    }
    return 0;
}

typedef struct sources {
    rg_tensor *by_value[RG_NET_VALUES], *list[RG_NET_VALUES];
    int32_t count;
} sources;

static rg_status open_sources(const runner *r, int32_t step, sources *s)
{
    memset(s, 0, sizeof *s);
    const bool strided = r->variant->strided == 1 || (r->variant->strided == 2 && step % 2 == 1);
    RG_TRY(rg_net_sources(r->net, r->queue->device, step, strided, s->by_value));
    s->count = rg_plan_sources(r->plan);
    for (int32_t i = 0; i < s->count; i++)
        s->list[i] = s->by_value[find_source(r, i)];
    return RG_OK;
}

static void close_sources(sources *s)
{
    for (int32_t v = 0; v < RG_NET_VALUES; v++)
        rg_tensor_destroy(s->by_value[v]);
}

/* ---- one run ---- */

typedef struct signal {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    rg_status outcome;
} signal_box;

static void tell(void *context, rg_status outcome)
{
    signal_box *box = context;
    pthread_mutex_lock(&box->lock);
    box->done = true;
    box->outcome = outcome;
    pthread_cond_signal(&box->changed);
    pthread_mutex_unlock(&box->lock);
}

static rg_status run_async(const runner *r, const sources *s)
{
    signal_box box = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    RG_TRY(rg_plan_run_async(r->plan, s->list, tell, &box));
    pthread_mutex_lock(&box.lock);
    while (!box.done)
        pthread_cond_wait(&box.changed, &box.lock);
    pthread_mutex_unlock(&box.lock);
    pthread_cond_destroy(&box.changed);
    pthread_mutex_destroy(&box.lock);
    return box.outcome;
}

static rg_status run_by_steps(const runner *r, const sources *s)
{
    rg_tensor_desc descs[RG_NET_VALUES];
    double milliseconds[1024];
    for (int32_t i = 0; i < s->count; i++)
        descs[i] = s->list[i]->desc;
    RG_TRY(rg_plan_prepare(r->plan, descs));
    RG_CHECK(rg_plan_steps(r->plan) <= 1024, RG_INVALID_STATE, "a plan of %d steps",
             rg_plan_steps(r->plan));
    return rg_plan_time(r->plan, r->queue, s->list, 1, milliseconds);
}

/* Whether the images of a source can be separate tensors. */
static bool has_images(const runner *r, int32_t source)
{
    const rg_tensor_desc *d = r->net->values[find_source(r, source)].desc;
    return d[0].rank > 1 && d[0].dims[0] == r->net->batch[0] && d[1].dims[0] == r->net->batch[1];
}

/* The highest rank of these sources: where it is 3, images would be taken for (h, w, c). */
static int32_t highest_rank(const runner *r, int32_t count)
{
    int32_t most = 0;
    for (int32_t i = 0; i < count; i++) {
        const int32_t rank = r->net->values[find_source(r, i)].desc[0].rank;
        most = has_images(r, i) && rank > most ? rank : most;
    }
    return most;
}

/* Whether images are given as tensors of their own. */
static bool are_separate(const runner *r, int32_t count)
{
    const int32_t rank = highest_rank(r, count);
    return rank > 0 && rank != 3;
}

/* Whether a source that is given whole has the shape of one image, (1, h, w, c), or, where none is
 * separate, (h, w, c), as weights of labels may have: given for all images of a batch, it would be
 * taken for one that repeats. A network whose forward pass reads nothing but parameters has such a
 * source, the gradient that it begins with. */
static bool has_likeness(const runner *r, int32_t count)
{
    const bool separate = are_separate(r, count);
    bool any = false;
    for (int32_t i = 0; i < count; i++) {
        const rg_tensor_desc *d = &r->net->values[find_source(r, i)].desc[0];
        const bool alike = (d->rank == 4 && d->dims[0] == 1) || (d->rank == 3 && !separate);
        any |= alike && !(separate && has_images(r, i));
    }
    return any;
}

/* Images one by one, of sources that have as many as the batch; others are the same for all. */
static rg_status encode_images(const runner *r, rg_commands *commands, const sources *s,
                               int32_t step)
{
    const int64_t count = r->net->batch[r->net->shapes == 1 ? 0 : step % 2];
    rg_tensor **images = calloc((size_t)(s->count * count + 1), sizeof *images);
    rg_tensor **views = calloc((size_t)(s->count * count + 1), sizeof *views);
    rg_status status = RG_OK;
    const bool separate = are_separate(r, s->count);
    for (int32_t i = 0; i < s->count; i++) {
        const bool split = separate && has_images(r, i);
        for (int64_t n = 0; n < count && status == RG_OK; n++) {
            int64_t start[RG_MAX_RANK] = { n }, length[RG_MAX_RANK];
            memcpy(length, s->list[i]->desc.dims, sizeof length);
            length[0] = 1;
            if (split && count > 1)
                status = rg_tensor_slice(s->list[i], start, length, NULL, &views[i * count + n]);
            images[i * count + n] = split && count > 1 ? views[i * count + n] : s->list[i];
        }
    }
    if (status == RG_OK)
        status = rg_plan_encode_batch(r->plan, commands, count, images);
    for (int64_t k = 0; k < s->count * count; k++)
        rg_tensor_destroy(views[k]);
    free(views);
    free(images);
    return status;
}

/* rg_plan_time() begins with a whole run, which shows where parameters change. */
static bool changes_parameters(const rg_net *net)
{
    bool any = false;
    for (int32_t n = 0; n < net->nodes_count; n++) {
        for (int32_t j = 0; j < RG_MAX_OUTPUTS && rg_net_has_node(net, n); j++)
            any |= net->nodes[n].gradient_of < 0 && net->nodes[n].assigns[j] >= 0;
    }
    return any;
}

static rg_status run_once(const runner *r, int32_t step, rg_commands *list)
{
    sources s;
    rg_status status = open_sources(r, step, &s);
    rg_commands *commands = NULL;
    const rg_net_way way = r->variant->way;
    if (status == RG_OK && list != NULL) {
        status = rg_plan_encode(r->plan, list, s.list);
    } else if (status == RG_OK && way == RG_NET_ASYNC) {
        status = run_async(r, &s);
    } else if (status == RG_OK && way == RG_NET_STEP_BY_STEP && !changes_parameters(r->net)) {
        status = run_by_steps(r, &s);
    } else if (status == RG_OK) {
        status = rg_commands_create(r->queue, &commands);
        if (status == RG_OK)
            status = way == RG_NET_BATCH && !has_likeness(r, s.count)
                         ? encode_images(r, commands, &s, step)
                         : rg_plan_encode(r->plan, commands, s.list);
        status = rg_commands_finish(commands, status);
    }
    close_sources(&s);
    return status;
}

static rg_status collect(const runner *r, rg_net_outcome *o)
{
    rg_tensor *tensor;
    rg_state *state;
    const char *name;
    char both[48];
    for (int32_t i = 0; i < rg_graph_results(r->g->graph); i++) {
        (void)rg_graph_result_at(r->g->graph, i, &name);
        RG_TRY(rg_plan_result(r->plan, name, &tensor));
        RG_TRY(rg_net_outcome_add(o, tensor, name, atoi(name + 1), -1));
    }
    for (int32_t i = 0; i < r->net->states_count; i++) {
        snprintf(both, sizeof both, "s%d", i);
        if (!r->net->keep[r->net->states[i].item] ||
            !rg_net_has_node(r->net, r->net->states[i].value))
            continue;
        RG_TRY(rg_plan_state(r->plan, both, &state));
        for (int32_t k = 0; k < rg_state_count(state); k++) {
            if (rg_state_name(state, k)[0] == 'd' || strcmp(rg_state_name(state, k), "sums") == 0)
                continue; /* what a gradient leaves, if there is one */
            snprintf(both, sizeof both, "s%d.%s", i, rg_state_name(state, k));
            RG_TRY(rg_state_tensor(state, rg_state_name(state, k), &tensor));
            RG_TRY(rg_net_outcome_add(o, tensor, both, -1, -1));
        }
    }
    for (int32_t i = 0; i < rg_plan_parameters(r->plan); i++) {
        name = rg_plan_parameter_name(r->plan, i);
        RG_TRY(rg_plan_parameter(r->plan, name, &tensor));
        RG_TRY(rg_net_outcome_add(o, tensor, name, -1, i));
    }
    return RG_OK;
}

/* ---- other plans of the same graph ---- */

static rg_status replace_plan(runner *r, rg_plan *plan)
{
    rg_plan_destroy(r->plan);
    r->plan = plan;
    return RG_OK;
}

static rg_status by_copies(runner *r, const rg_graph *graph)
{
    rg_graph *copy = NULL;
    RG_TRY(rg_graph_copy(graph, &copy));
    const bool equal = rg_graph_equal(graph, copy);
    const rg_status status = rg_plan_create(r->queue->device, copy, &r->options, &r->plan);
    rg_graph_destroy(copy);
    RG_TRY(status);
    RG_CHECK(equal, RG_INVALID_STATE, "the copy of a graph differs from the original");
    return RG_OK;
}

static rg_status by_json(runner *r, const rg_graph *graph)
{
    const size_t length = rg_graph_to_json(graph, NULL, 0);
    char *text = malloc(length + 1);
    rg_graph *read = NULL;
    RG_CHECK(text != NULL, RG_OUT_OF_MEMORY, "out of memory");
    rg_graph_to_json(graph, text, length + 1);
    rg_status status = rg_graph_from_json(text, length, &read);
    free(text);
    const bool equal = rg_graph_equal(graph, read);
    if (status == RG_OK)
        status = rg_plan_create(r->queue->device, read, &r->options, &r->plan);
    rg_graph_destroy(read);
    RG_TRY(status);
    RG_CHECK(equal, RG_INVALID_STATE, "the graph read from its own JSON differs from the original");
    return RG_OK;
}

static rg_status by_file(runner *r)
{
    const char *folder = getenv("TMPDIR");
    char path[512];
    rg_plan *loaded = NULL;
    snprintf(path, sizeof path, "%s/retrograde-network-XXXXXX", folder != NULL ? folder : "/tmp");
    const int file = mkstemp(path);
    RG_CHECK(file >= 0, RG_IO, "cannot create the file '%s'", path);
    close(file);
    rg_status status = rg_plan_save(r->plan, path);
    if (status == RG_OK)
        status = rg_plan_load(r->queue->device, path, &r->options, &loaded);
    unlink(path);
    return status == RG_OK ? replace_plan(r, loaded) : status;
}

static rg_status open_plan(runner *r)
{
    const rg_graph *graph = r->g->graph;
    if (r->variant->way == RG_NET_COPY)
        RG_TRY(by_copies(r, graph));
    else if (r->variant->way == RG_NET_JSON)
        RG_TRY(by_json(r, graph));
    else
        RG_TRY(rg_plan_create(r->queue->device, graph, &r->options, &r->plan));
    return write_parameters(r, r->plan);
}

/* What happens to the plan between two runs. */
static rg_status between(runner *r)
{
    rg_plan *other = NULL;
    rg_plan_options options = r->options;
    if (r->variant->way == RG_NET_COPY)
        RG_TRY(rg_plan_copy(r->plan, NULL, &other));
    if (r->variant->way == RG_NET_FILE)
        return by_file(r);
    options.share = r->plan;
    if (r->variant->way == RG_NET_ANEW)
        RG_TRY(rg_plan_create(r->queue->device, r->g->graph, &options, &other));
    return other != NULL ? replace_plan(r, other) : RG_OK;
}

/* ---- all runs ---- */

static rg_status run_all(runner *r)
{
    rg_commands *list = NULL;
    rg_status status = RG_OK;
    if (r->variant->way == RG_NET_ONE_LIST)
        RG_TRY(rg_commands_create(r->queue, &list));
    for (int32_t step = 0; step < r->net->steps && status == RG_OK; step++) {
        if (step > 0)
            status = between(r);
        if (status == RG_OK)
            status = run_once(r, step, list);
        if (status == RG_OK && list == NULL)
            status = collect(r, &r->outcomes[step]);
    }
    if (list == NULL)
        return status;
    status = rg_commands_finish(list, status);
    return status == RG_OK ? collect(r, &r->outcomes[r->net->steps - 1]) : status;
}

static rg_status run_again(runner *r)
{
    for (int32_t step = 0; step < r->net->steps; step++)
        rg_net_outcome_free(&r->outcomes[step]);
    for (int32_t v = 0; v < r->net->values_count; v++) {
        rg_tensor *tensor; /* a plan may have no parameters */
        if (r->g->elements[v] != NULL &&
            rg_plan_parameter(r->plan, r->net->values[v].name, &tensor) == RG_OK) {
            RG_TRY(rg_plan_reload(r->plan, NULL));
            break;
        }
    }
    RG_TRY(write_parameters(r, r->plan));
    return run_all(r);
}

/* The share of what the plan takes without a budget, in bytes. */
static rg_status find_budget(runner *r)
{
    rg_tensor_desc descs[RG_NET_VALUES];
    r->options.budget = 0;
    if (r->variant->budget == 0)
        return RG_OK;
    RG_TRY(rg_plan_create(r->queue->device, r->g->graph, &r->options, &r->plan));
    for (int32_t i = 0; i < rg_plan_sources(r->plan); i++)
        descs[i] = r->net->values[find_source(r, i)].desc[0];
    RG_TRY(rg_plan_prepare(r->plan, descs));
    r->options.budget = (size_t)((double)rg_plan_bytes(r->plan) * r->variant->budget) + 1;
    return replace_plan(r, NULL);
}

rg_status rg_net_run(const rg_net *net, const rg_net_graph *g, const rg_net_variant *variant,
                     rg_queue *queue, rg_net_outcome outcomes[], size_t *bytes)
{
    runner r = { net, g, variant, variant->options, queue, NULL, outcomes };
    rg_net_graph from_sources = { .graph = NULL };
    rg_status status = RG_OK;
    if (variant->way == RG_NET_RELOAD) {
        status = rg_net_build(net, true, &from_sources);
        r.g = &from_sources;
    }
    if (status == RG_OK)
        status = find_budget(&r);
    if (status == RG_OK)
        status = open_plan(&r);
    if (status == RG_OK)
        status = run_all(&r);
    if (status == RG_OK && variant->way == RG_NET_RELOAD)
        status = run_again(&r);
    if (bytes != NULL)
        *bytes = rg_plan_bytes(r.plan);
    rg_plan_destroy(r.plan);
    rg_net_graph_free(&from_sources);
    return status;
}
