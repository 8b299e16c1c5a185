/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Networks, and plans that run them: see plan_network.h. */
#include "tests/plan_network.h"

network network_open(rg_dtype dtype)
{
    network n = { .dtype = dtype };
    EXPECT_OK(rg_graph_create(&n.graph));
    return n;
}

rg_value *source_of(network *n, rg_dtype dtype, int32_t rank, const int64_t dims[], int64_t classes)
{
    char name[16];
    snprintf(name, sizeof name, "x%d", n->sources_count);
    n->sources[n->sources_count] = rg_tensor_desc_dense(dtype, rank, dims);
    n->classes[n->sources_count++] = classes;
    return rg_graph_source(n->graph, name);
}

rg_value *parameter_of(network *n, int32_t rank, const int64_t dims[])
{
    char name[16];
    const rg_tensor_desc desc = rg_tensor_desc_dense(n->dtype, rank, dims);
    snprintf(name, sizeof name, "p%d", n->parameters_count);
    rg_value *value = rg_graph_parameter(n->graph, name, &desc);
    n->parameters[n->parameters_count++] = value;
    return value;
}

rg_value *neuron_of(network *n, rg_neuron_kind kind, rg_value *x)
{
    rg_neuron_desc desc = rg_neuron_desc_default();
    desc.kind = kind;
    return NODE(n, neuron, desc, x);
}

rg_value *add_of(network *n, rg_value *a, rg_value *b)
{
    const rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    return NODE(n, arithmetic, desc, a, b);
}

void differentiate(network *n, rg_value *const losses[], int32_t count)
{
    char name[16];
    EXPECT_OK(rg_graph_gradients(n->graph, losses, NULL, count, NULL, NULL));
    for (int32_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "l%d", i);
        EXPECT_OK(rg_graph_result(n->graph, losses[i], name));
    }
    for (int32_t i = 0; i < n->parameters_count; i++) {
        snprintf(name, sizeof name, "d%d", i);
        EXPECT_OK(rg_graph_result(n->graph, rg_value_gradient(n->parameters[i]), name));
    }
}

/* ---- plans that run ---- */

double *numbers_of(const rg_tensor *tensor)
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(tensor, &desc));
    const size_t count = (size_t)count_of(tensor);
    double *numbers = calloc(count + 1, sizeof *numbers);
    char *data = elements_of(tensor);
    EXPECT_OK(rg_convert(numbers, RG_F64, data, desc.dtype, count));
    free(data);
    return numbers;
}

void write_numbers(rg_tensor *tensor, const double numbers[])
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(tensor, &desc));
    const size_t count = (size_t)count_of(tensor);
    void *data = calloc(count + 1, 8);
    EXPECT_OK(rg_convert(data, desc.dtype, numbers, RG_F64, count));
    EXPECT_OK(rg_tensor_write(tensor, data, bytes_of(tensor), RG_LAYOUT_SAME));
    free(data);
}

void write_drawn(rg_tensor *tensor, uint64_t seed, double low, int64_t classes)
{
    const int64_t count = count_of(tensor);
    double *numbers = calloc((size_t)count + 1, sizeof *numbers);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = classes > 0 ? (double)draw_from(&seed, 0, classes - 1)
                                 : low + (double)draw(&seed) / 0x1p31;
    write_numbers(tensor, numbers);
    free(numbers);
}

rg_tensor *parameter_tensor(const runner *u, int32_t i)
{
    char name[16];
    rg_tensor *tensor = NULL;
    snprintf(name, sizeof name, "p%d", i);
    EXPECT_OK(rg_plan_parameter(u->plan, name, &tensor));
    return tensor;
}

runner runner_open(const network *n, const rg_plan_options *options, int32_t threads)
{
    runner u = { .r = rig_open(threads), .n = n };
    rg_plan_options same = options != NULL ? *options : rg_plan_options_default();
    same.new_masks = false; /* runs are compared with one another */
    EXPECT_OK(rg_plan_create(u.r.device, n->graph, &same, &u.plan));
    EXPECT(rg_plan_sources(u.plan) == n->sources_count);
    for (int32_t i = 0; i < n->sources_count; i++) {
        EXPECT_OK(rg_tensor_create(u.r.device, &n->sources[i], &u.sources[i]));
        write_drawn(u.sources[i], 100 + (uint64_t)i, -0.5, n->classes[i]);
    }
    for (int32_t i = 0; i < n->parameters_count; i++)
        write_drawn(parameter_tensor(&u, i), 200 + (uint64_t)i, -0.4, 0);
    return u;
}

void runner_run(runner *u)
{
    EXPECT_OK(rg_plan_encode(u->plan, u->r.commands, u->sources));
    EXPECT_OK(rig_run(&u->r));
}

void runner_close(runner *u)
{
    for (int32_t i = 0; i < u->n->sources_count; i++)
        rg_tensor_destroy(u->sources[i]);
    rg_plan_destroy(u->plan);
    rig_close(&u->r);
}

double *result_of(const runner *u, const char *prefix, int32_t i, int64_t *count)
{
    char name[16];
    rg_tensor *tensor = NULL;
    snprintf(name, sizeof name, "%s%d", prefix, i);
    if (rg_plan_result(u->plan, name, &tensor) != RG_OK)
        return NULL;
    *count = count_of(tensor);
    return numbers_of(tensor);
}

double difference(const runner *a, const runner *b, const char *prefix)
{
    double worst = 0;
    int64_t count = 0, other = 0;
    for (int32_t i = 0;; i++) {
        double *x = result_of(a, prefix, i, &count), *y = result_of(b, prefix, i, &other);
        double most = 0, far = 0;
        EXPECT((x == NULL) == (y == NULL) && (x == NULL || count == other));
        for (int64_t k = 0; x != NULL && k < count; k++) {
            EXPECT(!isnan(x[k]) && !isnan(y[k]));
            most = fmax(most, fabs(x[k]));
            far = fmax(far, fabs(x[k] - y[k]));
        }
        if (x != NULL)
            EXPECT(most > 0);
        worst = fmax(worst, most > 0 ? far / most : far);
        free(x);
        free(y);
        if (x == NULL)
            return worst;
    }
}

double options_change(const network *n, const rg_plan_options *a, const rg_plan_options *b,
                      int32_t *steps_a, int32_t *steps_b)
{
    runner u = runner_open(n, a, 1), v = runner_open(n, b, 1);
    runner_run(&u);
    runner_run(&v);
    runner_run(&v); /* the second run finds what the first has left */
    if (steps_a != NULL)
        *steps_a = rg_plan_steps(u.plan);
    if (steps_b != NULL)
        *steps_b = rg_plan_steps(v.plan);
    const double worst = fmax(difference(&u, &v, "l"), difference(&u, &v, "d"));
    runner_close(&u);
    runner_close(&v);
    return worst;
}

rg_plan_options plain_options(void)
{
    return (rg_plan_options){ .size = sizeof(rg_plan_options), .poison = true };
}
