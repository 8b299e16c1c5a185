/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Every op with any number in any field, dimensions of any length and rank, and one tensor that
 * does not fit: refused with a sentence, results as they were, or done; never a crash. An op
 * without a row in `good` is a failure. */
#include "text_call.h"

/* ---- calls that work, and what is changed about them ---- */

static const line good[] = {
    { "softmax", "axis=1", "3,5,4", "" },
    { "softmax", "kind=log flatten=true axis=1", "3,5,4", "" },
    { "neuron", "kind=tanh", "3,17", "" },
    { "neuron", "kind=relu from_y=true", "3,17", "" },
    { "neuron", "kind=prelu", "3,4,5 5", "" },
    { "arithmetic", "kind=add", "3,4,5 4,1", "" },
    { "arithmetic", "kind=multiply", "4,1 3,4,5", "" },
    { "arithmetic", "kind=divide minimum=-1 maximum=1", "3,1 1,5", "" },
    { "arithmetic", "kind=compare", "3,4 4", "" },
    { "slice", "start=1,0 length=2,-1 step=1,2", "4,6", "" },
    { "concat", "sources=3 axis=1 multiple=4", "2,3 2,1 2,4", "" },
    { "reshape", "dims=-1,4", "2,6", "" },
    { "matmul", "", "2,6 6,3", "" },
    { "transpose", "order=1,0", "2,6", "" },
    { "upsample", "kind=bilinear grid=half_pixel", "2,3,4,5", "" },
    { "upsample", "output=5,7", "3,4,2", "" },
    { "pad", "mode=mirror before=0,1,2,0 after=0,-1,0,1", "2,3,4,5", "" },
    { "pad", "mode=constant fill=true after=1,1,0,2", "2,3,4,5 7", "" },
    { "pad", "mode=mirror_edge repeat=true before=0,9,0,0", "2,3,4,5", "" },
    { "reduce", "kind=mean dims=0,2 keep_dims=false", "3,4,5", "" },
    { "reduce", "kind=max dims=1", "3,4,5", "" },
    { "reduce", "kind=arg_max dims=-1", "3,4,5", "" },
    { "dropout", "broadcast=1", "3,4,5", "" },
    { "dropout", "step_input=true", "3,4 i64:-", "" },
    { "pool", "kind=max window=3,2 padding.top=1", "2,7,6,5", "" },
    { "pool", "kind=average padding.policy=same edge=clamp count_include_pad=true", "2,7,6,5", "" },
    { "pool", "kind=l2 dilation=2,1", "7,6,5", "" },
    { "lrn", "window=4 beta=0.75", "3,4,5", "" },
    { "lrn", "window=12 beta=0.6 even_after=true", "3,17", "" },
    { "spatial_norm", "window=3,2 beta=0.75", "2,7,6,5", "" },
    { "spatial_norm", "window=9,12 beta=0.6", "7,6,5", "" },
    { "local_contrast", "window=3,2 alpha=1", "2,7,6,5", "" },
    { "local_contrast", "window=2,11 alpha=1 beta=0.6 p0=0.5 pm=1 ps=2", "7,6,5", "" },
    { "batch_norm", "neuron.kind=tanh", "3,4,5 5 5", "" },
    { "batch_norm", "statistics=returned gamma=false", "3,4,5 5", "" },
    { "batch_norm", "statistics=running beta=false unbiased=true", "7,5 5 5 5", "" },
    { "batch_norm", "statistics=given neuron.kind=relu", "f16:3,4,5 5 5 5 5", "" },
    { "batch_norm", "statistics=given gamma=false beta=false", "3,4,5 5 5", "" },
    { "group_norm", "groups=3 neuron.kind=sigmoid", "2,3,4,6 6 6", "" },
    { "group_norm", "groups=2 axis=-1 gamma=false beta=false", "5,8", "" },
    { "group_norm", "groups=0 image_gradients=true beta=false", "f16:2,3,4,5 5", "" },
    { "conv_transpose", "stride=2,1 padding.top=1", "2,5,6,4 3,3,2,4 3", "" },
    { "conv_transpose", "layout=in_out groups=2 neuron.kind=gelu", "5,6,4 4,2,3,3 6", "" },
    { "conv", "padding.policy=same stride=2,1", "2,5,6,4 3,3,2,4 3", "" },
    { "conv", "groups=2 dilation=1,2 bias=false neuron.kind=gelu", "5,6,4 6,2,2,2", "" },
    { "conv", "groups=0 padding.top=1 neuron.kind=relu", "f16:2,5,6,4 f16:4,3,3,1 f16:4", "" },
    { "dense", "neuron.kind=relu", "3,5 4,5 4", "" },
    { "dense", "neuron.kind=gelu layout=in_out", "3,2,5 2,5,4 4", "" },
    { "dense", "bias=false alpha=0.5", "2,3,4,5 7,3,4,5", "" },
    { "gram", "alpha=0.25", "2,3,4,5", "" },
    { "gram", "", "3,4,33", "" },
    { "sgd", "", "3,17 3,17 -", "" },
    { "sgd", "momentum=0.9 scaled=true copy=f16", "3,17 f16:3,17 3,17 - f64:-", "" },
    { "rmsprop", "centered=true momentum=0.5", "3,17 3,17 3,17 3,17 3,17 -", "" },
    { "adam", "form=torch", "f64:3,17 f64:3,17 f64:3,17 f64:3,17 - i64:-", "" },
    { "adam", "amsgrad=true copy=bf16 scaled=true", "3,17 bf16:3,17 3,17 3,17 3,17 - i64:- -", "" },
    { "grad_norm", "", "3,17", "" },
    { "grad_scale", "max_norm=1", "7", "" },
    { "grad_scale", "scaling=dynamic stepped=true", "7 - i64:- i64:-", "" },
    { "loss", "kind=huber delta=0.5", "3,5 3,5", "" },
    { "loss", "weights=true across_batch=false label_smoothing=0.1", "3,4,5 3,4,5 3,4,5", "" },
    { "loss", "labels=classes ignored=-1 gradient_output=true", "3,5 i32:3", "" },
    { "loss", "kind=initial_gradient", "3,5", "" },
};

enum { GOOD = sizeof good / sizeof good[0] };

static void test_every_op_has_a_row(void)
{
    for (int i = 0; rg_ops[i] != NULL; i++) {
        bool found = false;
        for (int k = 0; k < GOOD; k++)
            found |= strcmp(good[k].op, rg_ops[i]->name) == 0;
        EXPECT(found);
        if (!found)
            printf("    %s has no row in `good`\n", rg_ops[i]->name);
    }
}

/* All tensors of a call in both directions. */
typedef struct call {
    rg_kernel *kernel;
    spec recipe;
    int32_t outputs;
    bool has_gradient;
    uint32_t reads;
    rg_state *state;
    rg_tensor *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS], *dy[RG_MAX_OUTPUTS], *dx[RG_MAX_INPUTS];
} call;

static bool is_real(rg_dtype dtype)
{
    return dtype == RG_F32 || dtype == RG_F64 || dtype == RG_F16 || dtype == RG_BF16;
}

/* Integers are 0, the label or index that every shape has. */
static rg_tensor *tensor_for(rg_device *device, const rg_tensor_desc *desc, uint64_t seed)
{
    rg_tensor *tensor = tensor_of(device, desc->dtype, desc->rank, desc->dims);
    if (tensor != NULL && is_real(desc->dtype))
        fill(tensor, seed);
    else if (tensor != NULL && bytes_of(tensor) > 0)
        memset(rg_tensor_data(tensor), 0, bytes_of(tensor));
    return tensor;
}

/* Makes the tensors, and runs forward so that the state is filled. False where shapes are
 * refused. */
static bool call_open(call *c, rig *r)
{
    rg_tensor_desc y[RG_MAX_OUTPUTS];
    if (rg_kernel_shapes(c->kernel, c->recipe.x, y) != RG_OK)
        return false;
    c->outputs = rg_kernel_outputs(c->kernel);
    c->reads = c->recipe.op->gradient != NULL ? c->recipe.op->reads(c->recipe.desc) : 0;
    c->has_gradient = c->recipe.op->gradient != NULL;
    for (int32_t i = 0; i < c->recipe.inputs; i++) {
        c->x[i] = tensor_for(r->device, &c->recipe.x[i], 1 + (uint64_t)i);
        if (is_real(c->recipe.x[i].dtype) && rg_op_differentiates(c->recipe.op, c->recipe.desc, i))
            c->dx[i] = tensor_for(r->device, &c->recipe.x[i], 11 + (uint64_t)i);
    }
    for (int32_t i = 0; i < c->outputs; i++) {
        c->y[i] = tensor_for(r->device, &y[i], 21 + (uint64_t)i);
        c->dy[i] = tensor_for(r->device, &y[i], 31 + (uint64_t)i);
        c->has_gradient &= is_real(y[i].dtype);
    }
    EXPECT_OK(rg_state_create(c->kernel, c->x, &c->state));
    EXPECT_OK(rg_kernel_forward(c->kernel, r->commands, c->x, c->y, c->state));
    EXPECT_OK(rig_run(r));
    return true;
}

static rg_status call_gradient(const call *c, rig *r, uint64_t add)
{
    return rg_kernel_gradient(c->kernel, r->commands, c->dy, c->x, c->y, c->state, c->dx, add);
}

static void call_close(call *c)
{
    for (int i = 0; i < RG_MAX_INPUTS; i++) {
        rg_tensor_destroy(c->x[i]);
        rg_tensor_destroy(c->dx[i]);
    }
    for (int i = 0; i < RG_MAX_OUTPUTS; i++) {
        rg_tensor_destroy(c->y[i]);
        rg_tensor_destroy(c->dy[i]);
    }
    rg_state_destroy(c->state);
    rg_kernel_destroy(c->kernel);
    *c = (call){ .kernel = NULL };
}

/* ---- one tensor of another shape, dtype or device ---- */

enum { LESS, MORE, EMPTY, RANK_MORE, FLAT, DTYPE, DEVICE, WAYS };

/* Another desc; false where it would be the same. */
static bool distort(const rg_tensor_desc *from, int way, int32_t d, rg_tensor_desc *to)
{
    int64_t dims[RG_MAX_RANK + 1] = { 1 }, count = 1;
    for (int32_t i = 0; i < from->rank; i++) {
        dims[i + (way == RANK_MORE)] = from->dims[i];
        count *= from->dims[i];
    }
    const int32_t rank = way == FLAT ? 1 : from->rank + (way == RANK_MORE);
    const bool half = from->dtype == RG_F16 || from->dtype == RG_BF16; /* may meet f32 */
    const rg_dtype other = from->dtype == RG_F32 ? RG_F16 : half ? RG_F64 : RG_F32;
    if (way == LESS || way == MORE || way == EMPTY)
        dims[d] = way == LESS ? dims[d] - 1 : way == MORE ? dims[d] + 1 : 0;
    if (way == FLAT)
        dims[0] = count;
    if (way == FLAT && from->rank == 1)
        return false;
    *to = rg_tensor_desc_dense(way == DTYPE ? other : from->dtype, rank, dims);
    return from->rank > 0 || way > EMPTY;
}

static void expect_untouched(rig *r, rg_tensor *const tensors[], int32_t count,
                             char *const before[])
{
    EXPECT_OK(rig_run(r)); /* nothing was recorded */
    for (int32_t i = 0; i < count; i++) {
        if (tensors[i] == NULL)
            continue;
        char *after = elements_of(tensors[i]);
        EXPECT(memcmp(before[i], after, bytes_of(tensors[i])) == 0);
        free(after);
    }
}

static bool refused_forward(const call *c, rig *r)
{
    return rg_kernel_forward(c->kernel, r->commands, c->x, c->y, NULL) != RG_OK && has_sentence();
}

/* With the state and, where that is possible, without one. */
static bool refused_gradient(call *c, rig *r, uint64_t add)
{
    rg_state *const state = c->state;
    bool refused = call_gradient(c, r, add) != RG_OK && has_sentence();
    c->state = NULL;
    refused &= call_gradient(c, r, add) != RG_OK && has_sentence();
    c->state = state;
    return refused;
}

/* The call is refused, and its results keep their bits. */
static bool is_refused(call *c, rig *r, bool forward, uint64_t add)
{
    rg_tensor *const *results = forward ? c->y : c->dx;
    const int32_t count = forward ? c->outputs : c->recipe.inputs;
    char *before[RG_MAX_INPUTS] = { NULL };
    for (int32_t i = 0; i < count; i++)
        before[i] = results[i] != NULL ? elements_of(results[i]) : NULL;
    const bool refused = forward ? refused_forward(c, r) : refused_gradient(c, r, add);
    expect_untouched(r, results, count, before);
    for (int32_t i = 0; i < count; i++)
        free(before[i]);
    return refused;
}

/* The call with every distortion of `slot`, overwriting and adding. */
static void try_slot(call *c, rig *r, rig *other, rg_tensor **slot, bool forward, const char *name)
{
    rg_tensor *const original = *slot;
    rg_tensor_desc desc;
    char text[512];
    rg_kernel_describe(c->kernel, text, sizeof text);
    EXPECT_OK(rg_tensor_get_desc(original, &desc));
    for (int way = 0; way < WAYS; way++) {
        for (int32_t d = 0; d < (way <= EMPTY ? desc.rank : 1); d++) {
            rg_tensor_desc bad = desc;
            if (way != DEVICE && !distort(&desc, way, d, &bad))
                continue;
            *slot = tensor_for(way == DEVICE ? other->device : r->device, &bad, 77);
            const bool refused = is_refused(c, r, forward, 0) && is_refused(c, r, forward, 1);
            EXPECT(refused);
            if (!refused)
                printf("    %s: %s by way %d of dimension %d\n", text, name, way, d);
            rg_tensor_destroy(*slot);
            *slot = original;
        }
    }
}

static void test_one_wrong_tensor(rig *r, rig *other)
{
    for (int g = 0; g < GOOD; g++) {
        call c = { .kernel = NULL };
        EXPECT_OK(make(&good[g], r->device, &c.recipe, &c.kernel));
        EXPECT(call_open(&c, r));
        for (int32_t i = 0; i < c.outputs; i++)
            try_slot(&c, r, other, &c.y[i], true, "forward y");
        for (int32_t i = 0; i < c.outputs && c.has_gradient; i++) {
            if (i < rg_op_gradients(c.recipe.op, c.recipe.desc))
                try_slot(&c, r, other, &c.dy[i], false, "dy");
            if (c.reads & (uint32_t)RG_READS_Y << i)
                try_slot(&c, r, other, &c.y[i], false, "y");
        }
        for (int32_t i = 0; i < c.recipe.inputs && c.has_gradient; i++) {
            try_slot(&c, r, other, &c.x[i], false, "x");
            if (c.dx[i] != NULL)
                try_slot(&c, r, other, &c.dx[i], false, "dx");
        }
        call_close(&c);
    }
}

/* ---- any number in any field, any length of any dimension ---- */

static bool is_small(const rg_tensor_desc descs[], int32_t count)
{
    double bytes = 0;
    for (int32_t i = 0; i < count; i++) {
        double product = 8;
        for (int32_t d = 0; d < descs[i].rank; d++)
            product *= (double)descs[i].dims[d];
        bytes += product;
    }
    return bytes < 1e5;
}

/* Runs both directions where shapes are taken and fit into memory. */
static void run_if_taken(call *c, rig *r)
{
    rg_tensor_desc y[RG_MAX_OUTPUTS];
    memset(y, 0, sizeof y);
    if (rg_kernel_shapes(c->kernel, c->recipe.x, y) != RG_OK) {
        EXPECT(has_sentence());
        return;
    }
    if (!is_small(c->recipe.x, c->recipe.inputs) || !is_small(y, rg_kernel_outputs(c->kernel)))
        return;
    if (call_open(c, r) && c->has_gradient) {
        const rg_status status = call_gradient(c, r, 0);
        EXPECT(status == RG_OK || has_sentence());
        EXPECT_OK(rig_run(r));
    }
}

typedef struct hostile {
    const line *line;
    rig *r;
} hostile;

static void try_value(const hostile *h, const char *name, int32_t length, const char *value)
{
    char text[1024];
    size_t used = (size_t)snprintf(text, sizeof text, "%s %s=", h->line->fields, name);
    for (int32_t i = 0; i < length || i == 0; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? "," : "", value);
    const line changed = { h->line->op, text, h->line->shapes, "" };
    call c = { .kernel = NULL };
    if (make(&changed, h->r->device, &c.recipe, &c.kernel) == RG_OK)
        run_if_taken(&c, h->r);
    else
        EXPECT(has_sentence());
    call_close(&c);
}

static void try_field(void *context, const char *name, const rg_field *field, const char *value)
{
    static const char *const whole[] = {
        "-9223372036854775808",
        "-9223372036854775807",
        "-4294967297",
        "-2147483648",
        "-7",
        "-1",
        "0",
        "1",
        "2",
        "3",
        "255",
        "256",
        "2147483647",
        "2147483648",
        "4294967296",
        "4294967297",
        "1e18",
        "",
        "4611686018427387904",
        "9223372036854775807",
    };
    static const char *const real[] = { "nan",   "inf",    "-inf",  "1e308", "-1e308", "5e-324",
                                        "1e-30", "-0",     "0",     "1",     "-1",     "0.3",
                                        "1e9",   "2.5e15", "1e400", "one",   "" };
    (void)value;
    hostile *h = context;
    const bool is_real_field = field->type == RG_FIELD_F64;
    if (!is_real_field && field->type != RG_FIELD_I32 && field->type != RG_FIELD_I64)
        return;
    const size_t count =
        is_real_field ? sizeof real / sizeof real[0] : sizeof whole / sizeof *whole;
    for (size_t i = 0; i < count; i++) {
        const char *text = is_real_field ? real[i] : whole[i];
        try_value(h, name, field->length, text);
        for (int32_t length = 1; field->count != 0 && length < 4; length++)
            try_value(h, name, length, text);
    }
}

static void test_any_field(rig *r)
{
    for (int g = 0; g < GOOD; g++) {
        hostile h = { .line = &good[g], .r = r };
        spec recipe;
        rg_kernel *kernel = NULL;
        EXPECT_OK(make(&good[g], r->device, &recipe, &kernel));
        rg_fields_each(&recipe.op->desc, recipe.desc, try_field, &h);
        rg_kernel_destroy(kernel);
    }
}

static void test_any_dimension(rig *r)
{
    static const int64_t sizes[] = { 0,
                                     1,
                                     2,
                                     INT32_MAX,
                                     INT64_C(1) << 31,
                                     (INT64_C(1) << 32) + 1,
                                     INT64_C(1) << 40,
                                     INT64_C(1) << 53,
                                     (INT64_C(1) << 56) - 1,
                                     INT64_C(1) << 62,
                                     INT64_MAX,
                                     -1,
                                     INT32_MIN,
                                     INT64_MIN };
    for (int g = 0; g < GOOD; g++) {
        spec start;
        rg_kernel *kernel = NULL;
        EXPECT_OK(make(&good[g], r->device, &start, &kernel));
        for (int32_t input = 0; input < start.inputs; input++)
            for (int32_t d = 0; d < start.x[input].rank; d++)
                for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                    call c = { .kernel = NULL };
                    EXPECT_OK(make(&good[g], r->device, &c.recipe, &c.kernel));
                    rg_tensor_desc *x = &c.recipe.x[input];
                    x->dims[d] = sizes[i];
                    *x = rg_tensor_desc_dense(x->dtype, x->rank, x->dims);
                    run_if_taken(&c, r);
                    call_close(&c);
                }
        rg_kernel_destroy(kernel);
    }
}

/* Every rank, of ones and of threes, and ranks that no tensor has. */
static void test_any_rank(rig *r)
{
    for (int g = 0; g < GOOD; g++)
        for (int32_t rank = -1; rank <= RG_MAX_RANK + 1; rank++)
            for (int64_t size = 1; size <= 3; size += 2) {
                const int64_t dims[RG_MAX_RANK + 1] = { size, size, size, size, size,
                                                        size, size, size, size };
                call c = { .kernel = NULL };
                EXPECT_OK(make(&good[g], r->device, &c.recipe, &c.kernel));
                for (int32_t i = 0; i < c.recipe.inputs; i++)
                    c.recipe.x[i] = rg_tensor_desc_dense(c.recipe.x[i].dtype, rank, dims);
                run_if_taken(&c, r);
                call_close(&c);
            }
}

/* ---- what is asked for does not change what is computed ---- */

static void test_each_gradient_alone(rig *r)
{
    for (int g = 0; g < GOOD; g++) {
        call c = { .kernel = NULL };
        EXPECT_OK(make(&good[g], r->device, &c.recipe, &c.kernel));
        EXPECT(call_open(&c, r));
        rg_tensor *all[RG_MAX_INPUTS] = { NULL };
        const bool runs = c.has_gradient && call_gradient(&c, r, 0) == RG_OK;
        EXPECT_OK(rig_run(r));
        for (int32_t i = 0; i < c.recipe.inputs; i++) {
            all[i] = c.dx[i];
            c.dx[i] = NULL;
        }
        for (int32_t i = 0; i < c.recipe.inputs && runs; i++) {
            if (all[i] == NULL)
                continue;
            c.dx[i] = tensor_for(r->device, &c.recipe.x[i], 99);
            EXPECT_OK(call_gradient(&c, r, 0));
            EXPECT_OK(rig_run(r));
            EXPECT(same_bits(c.dx[i], all[i]));
            rg_tensor_destroy(c.dx[i]);
            c.dx[i] = NULL;
        }
        for (int32_t i = 0; i < c.recipe.inputs; i++)
            rg_tensor_destroy(all[i]);
        call_close(&c);
    }
}

int main(void)
{
    rig r = rig_open(2), other = rig_open(1);
    test_every_op_has_a_row();
    test_one_wrong_tensor(&r, &other);
    test_any_field(&r);
    test_any_dimension(&r);
    test_any_rank(&r);
    test_each_gradient_alone(&r);
    rig_close(&r);
    rig_close(&other);
    return rg_test_report();
}
