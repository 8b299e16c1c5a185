/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution on a GPU: which strategy runs. Each pass has a list of them, and the first that
 * accepts wins. */
#include "ops/conv/cuda/conv_strategy.cuh"

/* ---- preferences ---- */

/* Products that cuBLASLt is slower at than cuDNN: dx with TF32 by up to a fifth, in 16 bits dw by
 * up to a twentieth, y by 2 to 3 per cent. */
static bool prefers_cudnn(const rg_conv_call *call)
{
    const bool data = call->direction == RG_CONV_DATA, half = rg_dtype_size(call->dtype) == 2;
    return conv_is_product(call->shape) && !call->add && !call->bias &&
           (call->dtype == RG_F32 ? call->target->tf32 && data : half && !data);
}

/* f32 that stays f32: products are cuBLASLt's, and cuDNN is faster where a window has too few
 * channels for vectors; elsewhere it is slower than conv_tf32x3.cu by up to a half. With TF32 cuDNN
 * is faster, but for dx of a first layer, which takes it 1.6 times as long. */
static bool prefers_tf32x3(const rg_conv_call *call)
{
    if (call->target->tf32)
        return call->direction == RG_CONV_DATA && rg_conv_tf32x3_merges(call->shape);
    return call->direction != RG_CONV_FORWARD || call->shape->in % 4 == 0;
}

/* ---- lists ---- */

struct choice {
    const rg_conv_strategy *strategy;          /* NULL at the end of a list */
    bool (*prefers)(const rg_conv_call *call); /* NULL: where it accepts */
};

static const choice forward_choices[] = {
    { &rg_conv_depthwise },
    { &rg_conv_cudnn, prefers_cudnn },
    { &rg_conv_cublaslt },
    { &rg_conv_stem },
    { &rg_conv_tf32x3, prefers_tf32x3 },
    { &rg_conv_cudnn },
    { &rg_conv_tf32x3 },
    { &rg_conv_generic },
    {},
};

static const choice data_choices[] = {
    { &rg_conv_depthwise },
    { &rg_conv_cudnn, prefers_cudnn },
    { &rg_conv_cublaslt },
    { &rg_conv_space_to_depth },
    { &rg_conv_tf32x3, prefers_tf32x3 },
    { &rg_conv_cudnn },
    { &rg_conv_tf32x3 },
    { &rg_conv_generic },
    {},
};

static const choice weights_choices[] = {
    { &rg_conv_depthwise_weights },
    { &rg_conv_cudnn_weights, prefers_cudnn },
    { &rg_conv_cublaslt_weights },
    { &rg_conv_stem_weights },
    { &rg_conv_tf32x3_weights, prefers_tf32x3 },
    { &rg_conv_cudnn_weights },
    { &rg_conv_tf32x3_weights },
    { &rg_conv_generic },
    {},
};

static const char *strategy_name(int32_t i)
{
    static const choice *const lists[] = { forward_choices, data_choices, weights_choices };
    for (const choice *list : lists) {
        for (; list->strategy != NULL; list++) {
            if (i-- == 0)
                return list->strategy->name;
        }
    }
    return NULL;
}

static bool is_chosen(const choice *choice, rg_conv_call *call)
{
    return (choice->prefers == NULL || choice->prefers(call)) && choice->strategy->accepts(call);
}

/* The forced strategy, where the list has it and it accepts; else NULL. */
static const rg_conv_strategy *forced(const choice *choices, rg_conv_call *call)
{
    for (; choices->strategy != NULL; choices++) {
        const rg_conv_strategy *s = choices->strategy;
        if (rg_choices_forces(call->target->choices, s->name) && s->accepts(call))
            return s;
    }
    return NULL;
}

/* The last of a list accepts all. A channel to itself has too little work for all but the first,
 * which is made for it, and the last. */
static const rg_conv_strategy *choose(const choice *choices, rg_conv_call *call)
{
    const rg_conv_strategy *wanted = forced(choices, call);
    if (wanted != NULL)
        return wanted;
    if (call->shape->groups > 1 && call->shape->in == 1 && !is_chosen(choices, call))
        return &rg_conv_generic;
    while (!is_chosen(choices, call))
        choices++;
    return choices->strategy;
}

/* ---- forward and data ---- */

static rg_conv_call call_of(rg_dtype dtype, const rg_conv_args *k, int32_t direction,
                            const rg_cuda_target *target)
{
    const bool plain = !k->has_z && k->neuron.kind == RG_NEURON_NONE;
    rg_conv_call call = {};
    call.dtype = dtype;
    call.direction = direction;
    call.shape = &k->shape;
    call.args = k;
    call.bias = plain && k->has_b && !k->add;
    call.add = k->add && !has_epilogue(k);
    call.target = target;
    return call;
}

/* Whether sums are so short that a strategy may make them: how a library adds up many products is
 * its own. */
static bool is_short(const rg_conv_call *call)
{
    const rg_conv_shape *s = call->shape;
    const int64_t most = rg_dtype_size(call->dtype) == 2 ? 1 << 20 : 1 << 15;
    const int64_t taps = s->row.window * s->column.window;
    return (call->direction == RG_CONV_FORWARD ? s->in : s->out) <= most / taps;
}

static const rg_conv_strategy *choose_pass(rg_conv_call *call)
{
    const bool forward = call->direction == RG_CONV_FORWARD;
    return is_short(call) ? choose(forward ? forward_choices : data_choices, call)
                          : &rg_conv_generic;
}

/* By rg_conv_generic where a library that had no plan when work was recorded has one now and lacks
 * scratch, or refuses. */
static void run_pass(rg_dtype dtype, const void *args, int32_t direction,
                     const rg_cuda_target *target)
{
    const rg_conv_args *k = (const rg_conv_args *)args;
    const void *const tensors[] = { k->from, k->w, k->b, k->to };
    rg_conv_call call = call_of(dtype, k, direction, target);
    call.unaligned = unaligned_of(tensors, 4);
    scratch_arena plan = { .target = target };
    scratch_arena arena = { .target = target, .scratch = (char *)k->scratch, .enqueue = true };
    const rg_conv_strategy *strategy = choose_pass(&call);
    if (!strategy->run(&call, &plan) || arena_overflows(&plan) || !strategy->run(&call, &arena)) {
        strategy = &rg_conv_generic;
        rg_conv_generic.run(&call, &arena);
    }
    rg_choices_note(target->choices, strategy->name);
}

static size_t pass_scratch(rg_dtype dtype, const void *args, int32_t direction, uint32_t unaligned,
                           const rg_cuda_target *target)
{
    rg_conv_call call = call_of(dtype, (const rg_conv_args *)args, direction, target);
    call.unaligned = unaligned;
    scratch_arena plan = { .target = target };
    return choose_pass(&call)->run(&call, &plan) ? plan.used : 0;
}

template <rg_dtype T> static void forward(const void *args, const rg_cuda_target *target)
{
    run_pass(T, args, RG_CONV_FORWARD, target);
}

template <rg_dtype T>
static size_t forward_scratch(const void *args, uint32_t unaligned, const rg_cuda_target *target)
{
    return pass_scratch(T, args, RG_CONV_FORWARD, unaligned, target);
}

template <rg_dtype T> static void data(const void *args, const rg_cuda_target *target)
{
    run_pass(T, args, RG_CONV_DATA, target);
}

template <rg_dtype T>
static size_t data_scratch(const void *args, uint32_t unaligned, const rg_cuda_target *target)
{
    return pass_scratch(T, args, RG_CONV_DATA, unaligned, target);
}

/* ---- weights ---- */

static rg_conv_call weights_call_of(rg_dtype dtype, const rg_conv_weights_args *k,
                                    uint32_t unaligned, const rg_cuda_target *target)
{
    rg_conv_call call = {};
    call.dtype = dtype;
    call.direction = RG_CONV_WEIGHTS;
    call.shape = &k->shape;
    call.weights_args = k;
    call.unaligned = unaligned;
    call.add = k->add && !k->wide;
    call.target = target;
    return call;
}

/* False: none but rg_conv_generic does it. */
static bool run_weights(rg_dtype dtype, const rg_conv_weights_args *k, uint32_t unaligned,
                        scratch_arena *arena)
{
    rg_conv_call call = weights_call_of(dtype, k, unaligned, arena->target);
    const rg_conv_strategy *strategy = choose(weights_choices, &call);
    const bool runs = strategy != &rg_conv_generic && strategy->run(&call, arena);
    if (runs && arena->enqueue)
        rg_choices_note(call.target->choices, strategy->name);
    return runs;
}

/* ---- dw of many images. A library may add up many products inexactly, so it makes dw of some
 * images at a time, and a kernel of ours joins these sums. Images that are too large even one by
 * one are left to kernels for any shape ---- */

/* Windows that one call adds up. cuDNN's kernels for groups keep one long chain of f32; of images
 * that have few windows it is cut early, since there is no other sum in between. */
enum {
    LIBRARY_WINDOWS = 1 << 21,
    LIBRARY_GROUP_WINDOWS = 1 << 14,
    LIBRARY_SMALL_IMAGE_WINDOWS = 1 << 10,
    SMALL_IMAGE = 16 /* windows */
};

/* Images of a call; 0: not even one. */
static int64_t images_per_call(const rg_conv_call *call)
{
    const rg_conv_shape *s = call->shape;
    const int64_t each = s->row.count * s->column.count;
    rg_conv_call asked = *call;
    if (choose(weights_choices, &asked) == &rg_conv_depthwise_weights)
        return s->images; /* a kernel of ours adds up any number */
    const bool chain = call->dtype == RG_F32 && s->groups > 1 && !call->target->tf32;
    const int64_t limit = !chain                ? LIBRARY_WINDOWS
                          : each <= SMALL_IMAGE ? LIBRARY_SMALL_IMAGE_WINDOWS
                                                : LIBRARY_GROUP_WINDOWS;
    const int64_t most = each > 0 ? limit / each : s->images;
    return most < 1            ? 0
           : most >= s->images ? s->images
                               : ceil_div(s->images, ceil_div(s->images, most));
}

/* `count` images of a call from `first` on, whose dw is dense and of the type that is computed in.
 */
static rg_conv_weights_args some_images(const rg_conv_call *call, int64_t first, int64_t count,
                                        void *sums)
{
    const rg_conv_weights_args *k = call->weights_args;
    const int64_t element = (int64_t)rg_dtype_size(call->dtype);
    rg_conv_weights_args some = *k;
    rg_conv_shape *const s = &some.shape;
    const int64_t weights = s->row.window * s->column.window * s->in;
    const int64_t steps[5] = { s->out * weights, weights, s->column.window * s->in, s->in, 1 };
    for (int d = 0; d < 5; d++)
        s->w[d] = steps[d];
    s->w_first = 0;
    s->images = count;
    some.x = (const char *)k->x + first * s->x[0] * element;
    some.dy = (const char *)k->dy + first * s->y[0] * element;
    some.dw = sums;
    some.add = false;
    some.wide = element == 2;
    return some;
}

/* dw is written last. */
static bool run_by_images(const rg_conv_call *call, scratch_arena *arena)
{
    const rg_conv_shape *s = call->shape;
    const int64_t element = (int64_t)rg_dtype_size(call->dtype);
    const int64_t sum_bytes =
        conv_weight_count(s) * (int64_t)(call->dtype == RG_F64 ? sizeof(double) : sizeof(float));
    const int64_t each = images_per_call(call), calls = each > 0 ? ceil_div(s->images, each) : 0;
    char *const sums = (char *)arena_alloc(arena, (size_t)(calls * sum_bytes));
    const size_t kept = arena->used;
    for (int64_t i = 0; i < calls; i++) {
        const int64_t first = i * each, left = s->images - first;
        const rg_conv_weights_args some = some_images(call, first, left < each ? left : each,
                                                      arena->enqueue ? sums + i * sum_bytes : NULL);
        const uint32_t odd = (first * s->x[0] * element % 16 != 0) |
                             (first * s->y[0] * element % 16 != 0) << 1 |
                             (i * sum_bytes % 16 != 0) << 2;
        scratch_arena own = *arena;
        own.used = kept;
        if (!run_weights(call->dtype, &some, (call->unaligned & 3) | odd, &own))
            return false;
        arena->used = arena->used > own.used ? arena->used : own.used;
    }
    if (arena->enqueue)
        rg_conv_join_weights[call->dtype](call->weights_args, sums, calls, arena->target);
    return calls > 0;
}

/* All images at once, or some at a time. */
static bool run_images(const rg_conv_call *call, scratch_arena *arena)
{
    return images_per_call(call) < call->shape->images
               ? run_by_images(call, arena)
               : run_weights(call->dtype, call->weights_args, call->unaligned, arena);
}

template <rg_dtype T> static void weights(const void *args, const rg_cuda_target *target)
{
    const rg_conv_weights_args *k = (const rg_conv_weights_args *)args;
    const void *const tensors[] = { k->x, k->dy, k->dw };
    const rg_conv_call call = weights_call_of(T, k, unaligned_of(tensors, 3), target);
    scratch_arena plan = { .target = target };
    scratch_arena arena = { .target = target, .scratch = (char *)k->scratch, .enqueue = true };
    if (!run_images(&call, &plan) || arena_overflows(&plan) || !run_images(&call, &arena)) {
        rg_conv_generic.run(&call, &arena);
        rg_choices_note(target->choices, rg_conv_generic.name);
    }
}

template <rg_dtype T>
static size_t weights_scratch(const void *args, uint32_t unaligned, const rg_cuda_target *target)
{
    const rg_conv_weights_args *k = (const rg_conv_weights_args *)args;
    const rg_conv_call call = weights_call_of(T, k, unaligned, target);
    scratch_arena plan = { .target = target };
    return run_images(&call, &plan) ? plan.used : 0;
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW_SCRATCH(RG_CONV_FORWARD, forward, forward_scratch),
    RG_CUDA_ROW_SCRATCH(RG_CONV_DATA, data, data_scratch),
    RG_CUDA_ROW_SCRATCH(RG_CONV_WEIGHTS, weights, weights_scratch),
};
RG_CUDA_TABLE(conv, kernel_rows, strategy_name);
