/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Storage of plans: what is told before a run is what a run takes, how good placement is, and what
 * recomputation saves. */
#include "core/clock.h"
#include "graph/plan.h"
#include "plan_network.h"

#include <stdatomic.h>

enum { BATCH = 32, SIDE = 32, CLASSES = 10 };

/* ---- a small ResNet ---- */

typedef struct resnet {
    network n;
    bool running; /* averages of the statistics */
    int32_t norms;
} resnet;

static rg_value *conv_of(resnet *r, rg_value *x, int64_t in, int64_t out, int64_t size, int stride)
{
    rg_conv_desc desc = rg_conv_desc_default();
    desc.bias = false;
    desc.stride[0] = desc.stride[1] = stride;
    desc.padding.top = desc.padding.left = (int32_t)(size / 2);
    desc.padding.bottom = desc.padding.right = (int32_t)(size / 2);
    return NODE(&r->n, conv, desc, x, parameter_of(&r->n, 4, DIMS(out, size, size, in)));
}

static rg_value *norm_of(resnet *r, rg_value *x, int64_t channels)
{
    rg_batch_norm_desc desc = rg_batch_norm_desc_default();
    desc.epsilon = 1e-3;
    rg_value *gamma = parameter_of(&r->n, 1, DIMS(channels));
    rg_value *beta = parameter_of(&r->n, 1, DIMS(channels));
    if (!r->running)
        return NODE(&r->n, batch_norm, desc, x, gamma, beta);
    desc.statistics = RG_BATCH_NORM_RUNNING;
    rg_value *averages[2];
    for (int i = 0; i < 2; i++) {
        char name[32];
        const rg_tensor_desc shape = rg_tensor_desc_dense(r->n.dtype, 1, &channels);
        snprintf(name, sizeof name, "average%d.%d", r->norms, i);
        averages[i] = rg_graph_parameter(r->n.graph, name, &shape);
        rg_value_stop_gradient(averages[i]);
    }
    r->norms++;
    rg_node *node = rg_graph_batch_norm(r->n.graph, &desc,
                                        (rg_value *[]){ x, gamma, beta, averages[0], averages[1] });
    for (int i = 0; i < 2; i++)
        EXPECT_OK(rg_graph_assign(r->n.graph, averages[i], rg_node_output(node, i + 1)));
    return rg_node_output(node, 0);
}

/* conv-norm-relu-conv-norm beside a shortcut, then relu. */
static rg_value *block_of(resnet *r, rg_value *x, int64_t in, int64_t out, int stride)
{
    rg_value *y =
        neuron_of(&r->n, RG_NEURON_RELU, norm_of(r, conv_of(r, x, in, out, 3, stride), out));
    y = norm_of(r, conv_of(r, y, out, out, 3, 1), out);
    if (stride > 1)
        x = norm_of(r, conv_of(r, x, in, out, 1, stride), out);
    return neuron_of(&r->n, RG_NEURON_RELU, add_of(&r->n, y, x));
}

static resnet make_resnet(int64_t batch, int64_t side, bool running, int blocks)
{
    resnet r = { .n = network_open(RG_F32), .running = running };
    rg_value *x = source_of(&r.n, RG_F32, 4, DIMS(batch, side, side, 3), 0);
    rg_value *labels = source_of(&r.n, RG_I32, 1, DIMS(batch), CLASSES);
    rg_value_stop_gradient(x);
    x = neuron_of(&r.n, RG_NEURON_RELU, norm_of(&r, conv_of(&r, x, 3, 16, 3, 1), 16));
    for (int i = 0; i < blocks; i++)
        x = block_of(&r, x, 16, 16, 1);
    x = block_of(&r, x, 16, 32, 2);
    for (int i = 0; i < blocks; i++)
        x = block_of(&r, x, 32, 32, 1);
    rg_reduce_desc mean = rg_reduce_desc_default();
    mean.kind = RG_REDUCE_MEAN;
    mean.keep_dims = false;
    mean.dims_count = 2;
    mean.dims[0] = 1;
    mean.dims[1] = 2;
    const rg_dense_desc dense = rg_dense_desc_default();
    rg_loss_desc loss = rg_loss_desc_default();
    loss.labels = RG_LOSS_CLASS_LABELS;
    x = NODE(&r.n, reduce, mean, x);
    x = NODE(&r.n, dense, dense, x, parameter_of(&r.n, 2, DIMS(CLASSES, 32)),
             parameter_of(&r.n, 1, DIMS(CLASSES)));
    x = NODE(&r.n, loss, loss, x, labels);
    EXPECT_OK(rg_graph_gradients(r.n.graph, &x, NULL, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(r.n.graph, x, "l0"));
    return r;
}

static void add_updates(resnet *r)
{
    const rg_tensor_desc number = rg_tensor_desc_dense(RG_F32, 0, NULL);
    rg_value *rate = rg_graph_parameter(r->n.graph, "rate", &number);
    rg_sgd_desc sgd = rg_sgd_desc_default();
    sgd.momentum = 0.9;
    for (int32_t i = 0; i < r->n.parameters_count; i++)
        EXPECT(rg_graph_update(r->n.graph, "sgd", &sgd, r->n.parameters[i],
                               rg_value_gradient(r->n.parameters[i]), rate, NULL, NULL) != NULL);
}

/* ---- what is allocated ---- */

typedef struct meter {
    _Atomic int64_t bytes, most;
} meter;

enum { LARGE = 1 << 18 }; /* storage and scratch are; lists of commands are not */

static void *meter_allocate(void *context, size_t size, size_t alignment)
{
    meter *m = context;
    void *pointer = NULL;
    if (posix_memalign(&pointer, alignment < 64 ? 64 : alignment, size) != 0)
        return NULL;
    if (size >= LARGE) {
        const int64_t now = atomic_fetch_add(&m->bytes, (int64_t)size) + (int64_t)size;
        m->most = now > m->most ? now : m->most;
    }
    return pointer;
}

static void meter_release(void *context, void *pointer, size_t size)
{
    meter *m = context;
    m->bytes -= size >= LARGE ? (int64_t)size : 0;
    free(pointer);
}

static void test_told_bytes(void)
{
    meter m = { 0 };
    const rg_allocator allocator = { meter_allocate, meter_release, &m };
    rg_device_options device = rg_device_options_default();
    device.threads = 2;
    device.allocator = &allocator;
    resnet r = make_resnet(BATCH, SIDE, true, 1);
    add_updates(&r);
    runner u = { .n = &r.n };
    EXPECT_OK(rg_device_create("cpu", &device, &u.r.device));
    EXPECT_OK(rg_queue_create(u.r.device, &u.r.queue));
    EXPECT_OK(rg_commands_create(u.r.queue, &u.r.commands));
    EXPECT_OK(rg_plan_create(u.r.device, r.n.graph, NULL, &u.plan));
    for (int32_t i = 0; i < r.n.sources_count; i++) {
        EXPECT_OK(rg_tensor_create(u.r.device, &r.n.sources[i], &u.sources[i]));
        write_drawn(u.sources[i], 100, -0.5, r.n.classes[i]);
    }
    const int64_t before = m.bytes;
    m.most = 0;
    EXPECT_OK(rg_plan_prepare(u.plan, r.n.sources));
    const int64_t told = (int64_t)(rg_plan_bytes(u.plan) + rg_plan_scratch(u.plan));
    for (int i = 0; i < 2; i++) {
        runner_run(&u);
        EXPECT(m.most - before >= told && m.most - before <= told + 4096);
    }
    printf("told %.1f MB, took %.1f MB (%.1f MB of it scratch); apart %.1f MB\n",
           (double)told / 1e6, (double)(m.most - before) / 1e6,
           (double)rg_plan_scratch(u.plan) / 1e6, (double)rg_plan_bytes_apart(u.plan) / 1e6);
    EXPECT((double)rg_plan_bytes(u.plan) <= 0.6 * (double)rg_plan_bytes_apart(u.plan));
    runner_close(&u);
    rg_graph_destroy(r.n.graph);
    EXPECT(m.bytes == 0);
}

/* ---- placement ---- */

static void check_placement(const char *what, const rg_sequence *s, size_t bytes)
{
    rg_claims c;
    size_t bound = 0;
    int32_t at;
    EXPECT_OK(rg_claims_make(s, &c));
    EXPECT_OK(rg_claims_bound(c.list, c.count, s->steps_count, &bound, &at));
    printf("%s: %.3f MB in %d steps, at least %.3f MB: %.1f %% more\n", what, (double)bytes / 1e6,
           s->steps_count, (double)bound / 1e6, 100 * ((double)bytes / (double)bound - 1));
    EXPECT(bytes >= bound && (double)bytes <= 1.05 * (double)bound);
    rg_claims_free(&c);
}

static void test_placement(void)
{
    for (int i = 0; i < 4; i++) {
        resnet r = make_resnet(4, 16, i & 1, 1 + 2 * (i & 2));
        rg_plan *plan = NULL;
        rig g = rig_open(1);
        add_updates(&r);
        EXPECT_OK(rg_plan_create(g.device, r.n.graph, NULL, &plan));
        EXPECT_OK(rg_plan_prepare(plan, r.n.sources));
        check_placement("a ResNet", &plan->current->sequence, rg_plan_bytes(plan));
        rg_plan_destroy(plan);
        rg_graph_destroy(r.n.graph);
        rig_close(&g);
    }
}

/* ---- recomputation ---- */

static void test_budget(bool running)
{
    resnet r = make_resnet(4, 16, running, 2);
    char name[16];
    for (int32_t i = 0; i < r.n.parameters_count; i++) {
        snprintf(name, sizeof name, "d%d", i);
        EXPECT_OK(rg_graph_result(r.n.graph, rg_value_gradient(r.n.parameters[i]), name));
    }
    rg_plan_options options = rg_plan_options_default();
    options.poison = true;
    runner u = runner_open(&r.n, &options, 1);
    runner_run(&u);
    const size_t whole = rg_plan_bytes(u.plan);
    size_t last = whole;
    for (int i = 9; i >= 1; i -= 2) {
        options.budget = whole * (size_t)i / 10;
        runner v = runner_open(&r.n, &options, 2);
        runner_run(&v);
        runner_run(&v);
        EXPECT(difference(&u, &v, "l") == 0 && difference(&u, &v, "d") == 0);
        EXPECT(rg_plan_bytes(v.plan) <= last);
        printf("budget %d %%: %.0f %%, %d steps instead of %d\n", i * 10,
               100 * (double)rg_plan_bytes(v.plan) / (double)whole, rg_plan_steps(v.plan),
               rg_plan_steps(u.plan));
        if (i >= 7) {
            EXPECT(rg_plan_bytes(v.plan) <= options.budget);
            EXPECT(rg_plan_steps(v.plan) > rg_plan_steps(u.plan));
        }
        last = rg_plan_bytes(v.plan);
        runner_close(&v);
    }
    runner_close(&u);
    rg_graph_destroy(r.n.graph);
}

/* ---- layouts ---- */

/* Where a source begins makes no layout of its own, and no other bits. */
static void test_alignments(void)
{
    enum { ROWS = 7, OFFSETS = 16 };
    const int64_t wide = ROWS * 5 + OFFSETS;
    network n = network_open(RG_F32);
    rg_value *x = source_of(&n, RG_F32, 1, DIMS(ROWS * 5), 0);
    x = add_of(&n, neuron_of(&n, RG_NEURON_TANH, x), parameter_of(&n, 1, DIMS(ROWS * 5)));
    EXPECT_OK(rg_graph_result(n.graph, x, "l0"));
    runner u = runner_open(&n, NULL, 1), v = runner_open(&n, NULL, 1);
    rg_tensor *all = tensor_of(v.r.device, RG_F32, 1, &wide);
    runner_run(&u);
    rg_tensor_destroy(v.sources[0]);
    for (int64_t i = 0; i < OFFSETS; i++) {
        EXPECT_OK(rg_tensor_slice(all, &i, DIMS(ROWS * 5), NULL, &v.sources[0]));
        write_drawn(v.sources[0], 100, -0.5, 0);
        runner_run(&v);
        EXPECT(difference(&u, &v, "l") == 0);
        rg_tensor_destroy(v.sources[0]);
    }
    EXPECT(v.plan->layouts != NULL && v.plan->layouts->next == NULL);
    v.sources[0] = NULL;
    rg_tensor_destroy(all);
    runner_close(&u);
    runner_close(&v);
    rg_graph_destroy(n.graph);
}

/* A plan that overwrites what is no longer read is given up before its run: what it overwrites
 * with must still be there, which the address sanitizer sees. */
static void test_poison_lasts(void)
{
    network n = network_open(RG_F32);
    rg_value *x = source_of(&n, RG_F32, 2, DIMS(64, 64), 0);
    for (int i = 0; i < 4; i++)
        x = neuron_of(&n, RG_NEURON_TANH, x);
    EXPECT_OK(rg_graph_result(n.graph, x, "l0"));
    const rg_plan_options options = plain_options();
    runner u = runner_open(&n, &options, 2);
    EXPECT(options.poison);
    EXPECT_OK(rg_plan_encode(u.plan, u.r.commands, u.sources));
    rg_plan_destroy(u.plan);
    u.plan = NULL;
    EXPECT_OK(rig_run(&u.r));
    runner_close(&u);
    rg_graph_destroy(n.graph);
}

/* ---- time, for people ---- */

static void print_times(int blocks, size_t budget)
{
    enum { RUNS = 20 };
    resnet r = make_resnet(1, 4, true, blocks);
    add_updates(&r);
    runner u = { .r = rig_open(1), .n = &r.n };
    rg_tensor *sources[MAX_SOURCES];
    rg_plan_options options = rg_plan_options_default();
    options.budget = budget;
    double start = rg_seconds();
    EXPECT_OK(rg_plan_create(u.r.device, r.n.graph, &options, &u.plan));
    const int32_t nodes = rg_plan_steps(u.plan);
    const double created = rg_seconds() - start;
    for (int32_t i = 0; i < r.n.sources_count; i++)
        EXPECT_OK(rg_tensor_create(u.r.device, &r.n.sources[i], &sources[i]));
    start = rg_seconds();
    EXPECT_OK(rg_plan_encode(u.plan, u.r.commands, sources));
    const double laid_out = rg_seconds() - start;
    rig_renew(&u.r);
    start = rg_seconds();
    for (int i = 0; i < RUNS; i++) {
        EXPECT_OK(rg_plan_encode(u.plan, u.r.commands, sources));
        rig_renew(&u.r);
    }
    printf("%d nodes%s: plan %.1f ms, layout %.1f ms, encoding %.3f us a node\n", nodes,
           budget > 0 ? ", as little storage as possible" : "", 1e3 * created, 1e3 * laid_out,
           1e6 * (rg_seconds() - start) / RUNS / nodes);
    for (int32_t i = 0; i < r.n.sources_count; i++)
        rg_tensor_destroy(sources[i]);
    rg_plan_destroy(u.plan);
    rig_close(&u.r);
    rg_graph_destroy(r.n.graph);
}

/* The time of each step, with bytes that overwrite what is no longer read behind a step that can
 * fault: those copies did not know how many faults stand before them. */
static void test_time_of_faults(void)
{
    network n = network_open(RG_F64);
    rg_loss_desc loss = rg_loss_desc_default();
    loss.kind = RG_LOSS_SOFTMAX_CROSS_ENTROPY;
    loss.labels = RG_LOSS_CLASS_LABELS;
    rg_value *x = neuron_of(&n, RG_NEURON_TANH, source_of(&n, RG_F64, 2, DIMS(10, 3), 0));
    x = NODE(&n, loss, loss, x, source_of(&n, RG_I64, 1, DIMS(10), 3));
    x = neuron_of(&n, RG_NEURON_TANH, neuron_of(&n, RG_NEURON_TANH, x));
    EXPECT_OK(rg_graph_result(n.graph, x, "l0"));
    const rg_plan_options options = plain_options();
    runner u = runner_open(&n, &options, 1);
    double milliseconds[8];
    EXPECT_OK(rg_plan_time(u.plan, u.r.queue, u.sources, 2, milliseconds));
    runner_close(&u);
    rg_graph_destroy(n.graph);
}

int main(void)
{
    test_told_bytes();
    test_placement();
    test_budget(false);
    test_budget(true);
    test_alignments();
    test_poison_lasts();
    print_times(1, 0);
    print_times(20, 0);
    print_times(20, 1);
    test_time_of_faults();
    return rg_test_report();
}
