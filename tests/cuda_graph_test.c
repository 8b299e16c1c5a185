/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Plans on a GPU that are launched as one: the same bits as launch by launch, faults, sources that
 * change, plans that end early. */
#include "cuda_rig.h"

enum { BATCH = 5, IN = 7, HIDDEN = 6, OUT = 3, STEPS = 50 };

static rg_value *parameter(rg_graph *graph, const char *name, int32_t rank, const int64_t dims[])
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F64, rank, dims);
    return rg_graph_parameter(graph, name, &desc);
}

/* dense, tanh, dense, softmax cross-entropy, and a step of sgd with momentum */
static rg_graph *make_net(void)
{
    rg_graph *g = NULL;
    EXPECT_OK(rg_graph_create(&g));
    rg_value *x = rg_graph_source(g, "x"), *labels = rg_graph_source(g, "labels");
    rg_value *const p[] = { parameter(g, "w1", 2, DIMS(HIDDEN, IN)),
                            parameter(g, "b1", 1, DIMS(HIDDEN)),
                            parameter(g, "w2", 2, DIMS(OUT, HIDDEN)),
                            parameter(g, "b2", 1, DIMS(OUT)) };
    rg_value *rate = parameter(g, "rate", 0, NULL);
    const rg_dense_desc dense = rg_dense_desc_default();
    rg_neuron_desc neuron = rg_neuron_desc_default();
    neuron.kind = RG_NEURON_TANH;
    rg_loss_desc loss_desc = rg_loss_desc_default();
    loss_desc.labels = RG_LOSS_CLASS_LABELS;
    rg_sgd_desc sgd = rg_sgd_desc_default();
    sgd.momentum = 0.5;
    rg_value *h = rg_node_output(rg_graph_dense(g, &dense, (rg_value *[]){ x, p[0], p[1] }), 0);
    h = rg_node_output(rg_graph_neuron(g, &neuron, &h), 0);
    rg_value *y = rg_node_output(rg_graph_dense(g, &dense, (rg_value *[]){ h, p[2], p[3] }), 0);
    rg_value *loss = rg_node_output(rg_graph_loss(g, &loss_desc, (rg_value *[]){ y, labels }), 0);
    EXPECT_OK(rg_graph_result(g, loss, "loss"));
    EXPECT_OK(rg_value_stop_gradient(x));
    EXPECT_OK(rg_graph_gradients(g, &loss, NULL, 1, NULL, NULL));
    for (int i = 0; i < 4; i++)
        EXPECT(rg_graph_update(g, "sgd", &sgd, p[i], rg_value_gradient(p[i]), rate, NULL, NULL) !=
               NULL);
    return g;
}

typedef struct trained {
    rig r;
    rg_plan *plan;
    rg_tensor *x, *labels;
} trained;

static trained train_open(const char *device, bool replay)
{
    static const char *const names[] = { "w1", "b1", "w2", "b2" };
    const int32_t labels[BATCH] = { 0, 2, 1, 1, 0 };
    const double step = 0.2;
    trained t = { .r = rig_open_named(device, NULL) };
    rg_graph *graph = make_net();
    rg_plan_options options = rg_plan_options_default();
    EXPECT(options.replay);
    options.replay = replay;
    EXPECT_OK(rg_plan_create(t.r.device, graph, &options, &t.plan));
    rg_graph_destroy(graph);
    rg_tensor *tensor = NULL;
    for (uint64_t i = 0; i < 4; i++) {
        EXPECT_OK(rg_plan_parameter(t.plan, names[i], &tensor));
        fill(tensor, 10 + i);
    }
    EXPECT_OK(rg_plan_parameter(t.plan, "rate", &tensor));
    EXPECT_OK(rg_tensor_write(tensor, &step, sizeof step, RG_LAYOUT_SAME));
    t.x = filled(t.r.device, RG_F64, 2, DIMS(BATCH, IN), 1);
    t.labels = tensor_of(t.r.device, RG_I32, 1, DIMS(BATCH));
    EXPECT_OK(rg_tensor_write(t.labels, labels, sizeof labels, RG_LAYOUT_SAME));
    return t;
}

static void train_close(trained *t)
{
    rg_tensor_destroy(t->x);
    rg_tensor_destroy(t->labels);
    rg_plan_destroy(t->plan);
    rig_close(&t->r);
}

static rg_status run(trained *t, rg_tensor *x, rg_tensor *labels)
{
    EXPECT_OK(rg_plan_encode(t->plan, t->r.commands, (rg_tensor *[]){ x, labels }));
    return rig_run(&t->r);
}

static double loss_of(trained *t)
{
    rg_tensor *loss = NULL;
    double value = NAN;
    EXPECT_OK(rg_plan_result(t->plan, "loss", &loss));
    EXPECT_OK(rg_tensor_read(loss, &value, sizeof value, RG_LAYOUT_SAME));
    return value;
}

static bool same_parameters(const trained *a, const trained *b, double tolerance)
{
    bool same = true;
    for (int32_t i = 0; i < rg_plan_parameters(a->plan); i++) {
        rg_tensor *in_a = NULL, *in_b = NULL;
        const char *name = rg_plan_parameter_name(a->plan, i);
        EXPECT_OK(rg_plan_parameter(a->plan, name, &in_a));
        EXPECT_OK(rg_plan_parameter(b->plan, name, &in_b));
        same &= tolerance > 0 ? are_close(in_a, in_b, tolerance) : same_bits(in_a, in_b);
    }
    return same;
}

static void train(trained *t)
{
    for (int i = 0; i < STEPS; i++)
        EXPECT_OK(run(t, t->x, t->labels));
}

static void test_training(void)
{
    trained on = train_open("cuda", true), off = train_open("cuda", false);
    trained cpu = train_open("cpu", true);
    EXPECT_OK(run(&on, on.x, on.labels));
    EXPECT(!rg_plan_replays(on.plan)); /* from the second run on */
    const double first = loss_of(&on);
    EXPECT_OK(run(&off, off.x, off.labels));
    EXPECT_OK(run(&cpu, cpu.x, cpu.labels));
    train(&on);
    train(&off);
    train(&cpu);
    EXPECT(rg_plan_replays(on.plan));
    EXPECT(!rg_plan_replays(off.plan) && !rg_plan_replays(cpu.plan) && !rg_plan_replays(NULL));
    EXPECT(rg_plan_launches(on.plan) == rg_plan_launches(off.plan));
    EXPECT(loss_of(&on) < 0.5 * first);
    EXPECT(same_parameters(&on, &off, 0));
    EXPECT(same_parameters(&on, &cpu, 1e-4));
    for (int i = 0; i < 20; i++) { /* the same bits, every time */
        trained again = train_open("cuda", true);
        EXPECT_OK(run(&again, again.x, again.labels));
        train(&again);
        EXPECT(same_parameters(&on, &again, 0));
        train_close(&again);
    }
    train_close(&on);
    train_close(&off);
    train_close(&cpu);
}

/* A label out of range is told by the run that has it, and by no other. */
static void test_faults(void)
{
    const int32_t bad[BATCH] = { 0, 2, OUT, 1, 0 };
    trained t = train_open("cuda", true), off = train_open("cuda", false);
    rg_tensor *labels = tensor_of(t.r.device, RG_I32, 1, DIMS(BATCH));
    EXPECT_OK(rg_tensor_write(labels, bad, sizeof bad, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(off.labels, bad, sizeof bad, RG_LAYOUT_SAME));
    char want[200], got[200];
    EXPECT(run(&off, off.x, off.labels) == RG_KERNEL_FAULT);
    snprintf(want, sizeof want, "%s", rg_error_text());
    for (int i = 0; i < 5; i++) {
        EXPECT_OK(run(&t, t.x, t.labels));
        const rg_status status = run(&t, t.x, labels);
        snprintf(got, sizeof got, "%s", rg_error_text());
        EXPECT(status == RG_KERNEL_FAULT);
        EXPECT(strcmp(want, got) == 0);
    }
    EXPECT(rg_plan_replays(t.plan));
    for (int i = 0; i < 3; i++) /* three runs in one list, the second is wrong */
        EXPECT_OK(rg_plan_encode(t.plan, t.r.commands,
                                 (rg_tensor *[]){ t.x, i == 1 ? labels : t.labels }));
    EXPECT(rig_run(&t.r) == RG_KERNEL_FAULT);
    EXPECT_OK(run(&t, t.x, t.labels));
    rg_tensor_destroy(labels);
    train_close(&t);
    train_close(&off);
}

/* A step that is timed is a slice of the plan: its fault word is told as that of a whole run, and
 * those of steps that stand elsewhere are not. */
static void test_slice_faults(void)
{
    const int32_t bad[BATCH] = { 0, 2, OUT, 1, 0 };
    for (int replay = 0; replay < 2; replay++) {
        trained t = train_open("cuda", replay != 0);
        rg_tensor *labels = tensor_of(t.r.device, RG_I32, 1, DIMS(BATCH));
        double milliseconds[64];
        char want[200], got[200];
        EXPECT_OK(rg_tensor_write(labels, bad, sizeof bad, RG_LAYOUT_SAME));
        EXPECT(run(&t, t.x, labels) == RG_KERNEL_FAULT);
        snprintf(want, sizeof want, "%s", rg_error_text());
        EXPECT(rg_plan_steps(t.plan) <= 64);
        EXPECT(rg_plan_time(t.plan, t.r.queue, (rg_tensor *[]){ t.x, labels }, 2, milliseconds) ==
               RG_KERNEL_FAULT);
        snprintf(got, sizeof got, "%s", rg_error_text());
        EXPECT(strcmp(want, got) == 0 && strstr(got, "label") != NULL);
        EXPECT_OK(
            rg_plan_time(t.plan, t.r.queue, (rg_tensor *[]){ t.x, t.labels }, 2, milliseconds));
        EXPECT_OK(run(&t, t.x, t.labels));
        rg_tensor_destroy(labels);
        train_close(&t);
    }
}

/* Other tensors, other batches, views: each step has its own. */
static void test_sources(void)
{
    enum { ROUNDS = 12 };
    trained on = train_open("cuda", true), off = train_open("cuda", false);
    trained *const both[] = { &on, &off };
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < ROUNDS; i++) {
            trained *t = both[k];
            const int64_t batch = i % 4 == 3 ? 2 : BATCH; /* a layout of its own */
            const uint64_t seed = 100 + (uint64_t)i;
            rg_tensor *wide = filled(t->r.device, RG_F64, 2, DIMS(batch, 2 * IN + 1), seed);
            rg_tensor *x = sliced(wide, DIMS(0, i % 2), DIMS(batch, IN), DIMS(1, 1 + i % 3 / 2));
            rg_tensor *labels =
                sliced(t->labels, DIMS(batch == 2 ? i % 3 : 0), DIMS(batch), DIMS(1));
            EXPECT_OK(run(t, x, labels));
            rg_tensor_destroy(labels);
            rg_tensor_destroy(x);
            rg_tensor_destroy(wide);
        }
    }
    EXPECT(rg_plan_replays(on.plan));
    EXPECT(same_parameters(&on, &off, 0));
    train_close(&on);
    train_close(&off);
}

/* Steps that are timed one by one make a run, and read views of sources as any other. */
static void test_time(void)
{
    trained timed = train_open("cuda", true), plain = train_open("cuda", false);
    trained *const both[] = { &timed, &plain };
    double milliseconds[64];
    for (int k = 0; k < 2; k++) {
        trained *t = both[k];
        rg_tensor *wide = filled(t->r.device, RG_F64, 2, DIMS(BATCH, 2 * IN), 7);
        rg_tensor *x = sliced(wide, DIMS(0, 1), DIMS(BATCH, IN), DIMS(1, 2));
        EXPECT_OK(run(t, x, t->labels));
        EXPECT(rg_plan_steps(t->plan) <= 64);
        if (t == &timed)
            EXPECT_OK(rg_plan_time(t->plan, t->r.queue, (rg_tensor *[]){ x, t->labels }, 1,
                                   milliseconds));
        for (int i = 0; t == &plain && i < 2; i++)
            EXPECT_OK(run(t, x, t->labels));
        rg_tensor_destroy(x);
        rg_tensor_destroy(wide);
    }
    EXPECT(same_parameters(&timed, &plain, 0));
    train_close(&timed);
    train_close(&plain);
}

/* Nothing is waited for, and plan, sources and result are given up with work under way. */
static void test_end(void)
{
    trained a = train_open("cuda", true), b = train_open("cuda", true);
    train(&a);
    EXPECT_OK(run(&a, a.x, a.labels));
    rg_tensor *want = NULL, *got = NULL;
    EXPECT_OK(rg_plan_parameter(a.plan, "w1", &want));
    char *expected = elements_of(want), *values = calloc(1, bytes_of(want));
    for (int i = 0; i <= STEPS; i++) {
        EXPECT_OK(rg_plan_encode(b.plan, b.r.commands, (rg_tensor *[]){ b.x, b.labels }));
        if (i < STEPS)
            EXPECT_OK(rg_commands_commit_and_continue(b.r.commands));
    }
    EXPECT_OK(rg_plan_parameter(b.plan, "w1", &got));
    EXPECT_OK(rg_commands_read(b.r.commands, got, values, bytes_of(got), RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_commit(b.r.commands));
    rg_plan_destroy(b.plan);
    rg_tensor_destroy(b.x);
    rg_tensor_destroy(b.labels);
    EXPECT_OK(rg_commands_wait(b.r.commands));
    EXPECT(memcmp(values, expected, bytes_of(want)) == 0);
    free(values);
    free(expected);
    rig_close(&b.r);
    train_close(&a);
}

int main(void)
{
    if (!has_gpu())
        return skip(rg_error_text());
    test_training();
    test_faults();
    test_slice_faults();
    test_sources();
    test_time();
    test_end();
    return rg_test_report();
}
