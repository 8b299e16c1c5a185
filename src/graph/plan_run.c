/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Other ways to run a plan: for images that are tensors of their own, at once with a handler, on
 * another device. */
#include "graph/plan.h"

#include "core/dtype.h"

#include <retrograde/reshape.h>

#include <inttypes.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- images that are tensors of their own ---- */

/* Images of one source that are copied into one tensor. */
typedef struct gathering {
    const char *who;
    rg_commands *commands;
    int64_t count;
    rg_tensor *const *images;
    int32_t rank;      /* rg_plan_images_rank(): 3 are images (h, w, c), 1 vectors */
    rg_tensor *whole;  /* a temporary */
    rg_tensor **from;  /* the images, as elements that can be copied */
    rg_tensor **parts; /* views of `whole`, one for each image */
} gathering;

static rg_status check_images(const gathering *g, const char *name)
{
    for (int64_t n = 0; n < g->count; n++) {
        RG_CHECK(g->images[n] != NULL, RG_INVALID_ARGUMENT,
                 "%s: the source '%s' of image %" PRId64 " is NULL", g->who, name, n);
        RG_TRY(rg_tensor_usable(g->images[n], g->commands, g->who, "source ", name));
        const rg_tensor_desc *first = &g->images[0]->desc, *desc = &g->images[n]->desc;
        char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
        RG_CHECK(first->dtype == desc->dtype && rg_shape_same_dims(first, desc),
                 RG_INVALID_ARGUMENT,
                 "%s: the source '%s' is %s for image 0 and %s for image %" PRId64, g->who, name,
                 rg_shape_text(first, have), rg_shape_text(desc, want), n);
    }
    return RG_OK;
}

/* A dtype of the same size that kernels copy bit by bit. */
static rg_status copied_as(rg_dtype dtype, const char *who, const char *kind, const char *name,
                           rg_dtype *as)
{
    *as = dtype == RG_I32 ? RG_F32 : dtype == RG_I64 ? RG_F64 : dtype;
    RG_CHECK(rg_dtype_is_data(*as), RG_UNSUPPORTED, "%s: the %s '%s' is %s, which no op reads", who,
             kind, name, rg_dtype_name(dtype));
    return RG_OK;
}

/* The same elements under another dtype of the same size, for kernels alone. */
static rg_status view_as(const rg_tensor *tensor, rg_dtype dtype, rg_tensor **view)
{
    rg_tensor_desc desc = tensor->desc;
    desc.dtype = dtype;
    RG_TRY(rg_tensor_make(tensor->device, &desc, view));
    (*view)->storage = rg_storage_retain(tensor->storage);
    (*view)->offset = tensor->offset;
    (*view)->is_view = true;
    return RG_OK;
}

/* Whether the images are stacked along a new first dimension. */
static bool is_stacked(const gathering *g)
{
    return g->rank == 3 || g->images[0]->desc.rank == 0;
}

static rg_status make_whole(gathering *g, const char *name)
{
    rg_tensor_desc desc = g->images[0]->desc;
    char text[RG_SHAPE_TEXT];
    RG_CHECK(g->rank != 1 || desc.rank != 1 || desc.dims[0] == 1, RG_INVALID_ARGUMENT,
             "%s: the source '%s' is %s for each image, and has no dimension for images: give "
             "(h, w, c), or a dimension 0 of 1",
             g->who, name, rg_shape_text(&desc, text));
    if (is_stacked(g)) {
        RG_CHECK(desc.rank < RG_MAX_RANK, RG_INVALID_ARGUMENT,
                 "%s: the source '%s' has rank %d, and no rank is left for images", g->who, name,
                 desc.rank);
        memmove(&desc.dims[1], &desc.dims[0], (size_t)desc.rank * sizeof desc.dims[0]);
        memmove(&desc.strides[1], &desc.strides[0], (size_t)desc.rank++ * sizeof desc.dims[0]);
        desc.dims[0] = 1;
    }
    if (g->count == 1) { /* the image itself, with one more dimension */
        RG_TRY(view_as(g->images[0], desc.dtype, &g->whole));
        g->whole->desc = desc;
        rg_shape_normalize(&g->whole->desc);
        return RG_OK;
    }
    RG_CHECK(!__builtin_mul_overflow(desc.dims[0], g->count, &desc.dims[0]), RG_INVALID_ARGUMENT,
             "%s: the source '%s' has too many images", g->who, name);
    desc = rg_tensor_desc_dense(desc.dtype, desc.rank, desc.dims);
    return rg_tensor_create_temporary(g->commands, &desc, &g->whole);
}

static rg_status make_parts(gathering *g, rg_dtype dtype)
{
    const rg_tensor_desc *image = &g->images[0]->desc;
    const rg_tensor_desc dense = image->rank > 0
                                     ? rg_tensor_desc_dense(dtype, image->rank, image->dims)
                                     : rg_tensor_desc_dense(dtype, 1, (int64_t[]){ 1 });
    const int64_t elements = g->whole->desc.dims[0] / g->count * g->whole->desc.strides[0];
    for (int64_t n = 0; n < g->count; n++) {
        RG_TRY(view_as(g->images[n], dtype, &g->from[n]));
        RG_TRY(view_as(g->whole, dtype, &g->parts[n]));
        g->parts[n]->desc = dense;
        if (image->rank == 0)
            g->from[n]->desc = dense;
        g->parts[n]->offset += (size_t)(n * elements) * rg_dtype_size(dtype);
    }
    return RG_OK;
}

static rg_status copy_parts(const gathering *g, const rg_plan *plan)
{
    const rg_tensor_desc *image = &g->parts[0]->desc;
    rg_reshape_desc desc = rg_reshape_desc_default();
    rg_kernel *kernel;
    if (rg_shape_count(image) == 0)
        return RG_OK;
    desc.dims_count = image->rank;
    memcpy(desc.dims, image->dims, (size_t)image->rank * sizeof image->dims[0]);
    RG_TRY(rg_reshape_create(plan->device, &desc, &kernel));
    const rg_status status =
        rg_kernel_forward_batch(kernel, g->commands, g->count, g->from, g->parts, NULL);
    rg_kernel_destroy(kernel);
    return status;
}

/* Records copies of the images of a source into one temporary, *whole. */
static rg_status gather(const rg_plan *plan, gathering g, const char *name, rg_tensor **whole)
{
    rg_tensor *const *images = g.images;
    const int64_t count = g.count;
    rg_dtype dtype;
    RG_TRY(check_images(&g, name));
    RG_TRY(copied_as(images[0]->desc.dtype, g.who, "source", name, &dtype));
    rg_status status = rg_allocate_array((size_t)count, sizeof *g.from, &g.from);
    if (status == RG_OK)
        status = rg_allocate_array((size_t)count, sizeof *g.parts, &g.parts);
    if (status == RG_OK)
        status = make_whole(&g, name);
    if (status == RG_OK && count > 1)
        status = make_parts(&g, dtype);
    if (status == RG_OK && count > 1)
        status = copy_parts(&g, plan);
    for (int64_t n = 0; n < count; n++) {
        if (g.from != NULL)
            rg_tensor_destroy(g.from[n]);
        if (g.parts != NULL)
            rg_tensor_destroy(g.parts[n]);
    }
    rg_release(allocator, g.from, (size_t)count * sizeof *g.from);
    rg_release(allocator, g.parts, (size_t)count * sizeof *g.parts);
    *whole = g.whole;
    return status;
}

/* Whether one tensor stands for all images as it is: no image of its own. */
static bool is_whole(const rg_plan *plan, int32_t i, const gathering *g)
{
    return rg_plan_is_one_tensor(g->images, g->count) &&
           (g->images[0] == NULL ||
            !rg_plan_repeats_image(plan, i, g->count, g->rank, g->images[0]));
}

/* Sources in one piece each: `wholes` are temporaries made here, NULL where the caller's serves. */
static rg_status gather_all(rg_plan *plan, rg_commands *commands, rg_tensor *const sources[],
                            const rg_given_states *given, const char *who)
{
    rg_tensor **const wholes = plan->buffers.wholes, **const pieces = plan->buffers.pieces;
    for (int32_t i = 0; i < plan->sources_count; i++) {
        const gathering g = { .who = who,
                              .commands = commands,
                              .count = given->images,
                              .images = sources + i * given->images,
                              .rank = given->rank };
        pieces[i] = g.images[0];
        if (is_whole(plan, i, &g))
            continue;
        RG_TRY(gather(plan, g, rg_plan_source_name(plan, i), &wholes[i]));
        pieces[i] = wholes[i];
    }
    rg_tensor_desc *const descs = plan->buffers.descs;
    for (int32_t i = 0; i < plan->sources_count; i++) {
        RG_CHECK(pieces[i] != NULL, RG_INVALID_ARGUMENT, "%s: the source '%s' is NULL", who,
                 rg_plan_source_name(plan, i));
        descs[i] = pieces[i]->desc;
    }
    RG_TRY(rg_plan_prepare_given(plan, descs, given, who)); /* reports how often sources are read */
    for (int32_t i = 0; i < plan->sources_count; i++) {
        const uint64_t reads = rg_plan_source_reads(plan, i);
        if (wholes[i] != NULL && wholes[i]->commands != 0 && reads > 1)
            RG_TRY(rg_tensor_set_read_count(wholes[i], reads));
    }
    return RG_OK;
}

static bool contains(rg_tensor *const tensors[], int64_t count, const rg_tensor *tensor)
{
    bool found = false;
    for (int64_t n = 0; n < count && !found; n++)
        found = tensors[n] == tensor;
    return found;
}

/* Temporaries must have as many reads left as their sources are read. */
static rg_status check_images_count(const rg_plan *plan, const rg_commands *commands, int64_t count,
                                    rg_tensor *const sources[], const char *who)
{
    for (int64_t k = 0; k < plan->sources_count * count; k++) {
        uint64_t reads = 0;
        if (sources[k]->commands == 0)
            continue;
        RG_TRY(rg_tensor_usable(sources[k], commands, who, "source ",
                                rg_plan_source_name(plan, (int32_t)(k / count))));
        for (int32_t i = 0; i < plan->sources_count; i++) {
            if (contains(sources + i * count, count, sources[k]))
                reads += rg_plan_source_reads(plan, i);
        }
        RG_CHECK(sources[k]->read_count >= reads, RG_INVALID_STATE,
                 "%s: the source '%s' of image %" PRId64
                 " is a temporary with a read count of %" PRIu64 ", and is read %" PRIu64 " times",
                 who, rg_plan_source_name(plan, (int32_t)(k / count)), k % count,
                 sources[k]->read_count, reads);
    }
    return RG_OK;
}

/* The images of a source are read as often as the source, each of them. */
static void count_images(const rg_plan *plan, int64_t count, rg_tensor *const sources[],
                         rg_tensor *const wholes[])
{
    for (int32_t i = 0; i < plan->sources_count; i++) {
        if (wholes[i] != NULL)
            rg_tensor_add_read_count(sources + i * count, (size_t)count,
                                     -(int64_t)rg_plan_source_reads(plan, i));
    }
}

rg_status rg_plan_encode_images(rg_plan *plan, rg_commands *commands, int64_t count,
                                rg_tensor *const sources[], rg_state *const states[],
                                const char *who)
{
    RG_TRY(rg_commands_recording(commands, who));
    RG_CHECK(sources != NULL || plan->sources_count == 0, RG_INVALID_ARGUMENT,
             "%s: sources is NULL", who);
    RG_CHECK(commands->queue->device == plan->device, RG_INVALID_ARGUMENT,
             "%s: the commands and the plan are on different devices (%s, %s)", who,
             commands->queue->device->name, plan->device->name);
    rg_given_states given = { .states = states, .images = count };
    given.rank = rg_plan_images_rank(plan, count, sources, states);
    given.stacked = given.rank == 3;
    const rg_mark mark = rg_commands_mark(commands);
    rg_tensor **const wholes = plan->buffers.wholes;
    for (int32_t i = 0; i < plan->sources_count; i++)
        wholes[i] = NULL;
    rg_status status = gather_all(plan, commands, sources, &given, who);
    if (status == RG_OK)
        status = check_images_count(plan, commands, count, sources, who);
    if (status == RG_OK)
        status = rg_plan_encode_given(plan, commands, plan->buffers.pieces, &given, who);
    if (status == RG_OK)
        count_images(plan, count, sources, wholes);
    for (int32_t i = 0; i < plan->sources_count; i++) {
        if (wholes[i] != NULL && wholes[i]->commands != 0 &&
            wholes[i]->read_count > 0) /* refused, or not read */
            (void)rg_tensor_set_read_count(wholes[i], 0);
        rg_tensor_destroy(wholes[i]);
    }
    if (status != RG_OK)
        rg_commands_rewind(commands, mark);
    return status;
}

/* ---- at once ---- */

/* Records copies of all results of the run that was encoded last into new tensors. */
static rg_status copy_results(const rg_plan *plan, rg_commands *commands, rg_tensor *results[])
{
    for (int32_t i = 0; i < plan->results_count; i++) {
        rg_tensor *from = NULL, *to = NULL;
        rg_tensor *const result = plan->current->tensors[plan->results[i]];
        RG_CHECK(result != NULL, RG_UNSUPPORTED, "rg_plan_run_async_results: '%s' is a source",
                 plan->result_names[i]);
        const rg_tensor_desc *d = &result->desc;
        const rg_tensor_desc dense = rg_tensor_desc_dense(d->dtype, d->rank, d->dims);
        RG_TRY(rg_tensor_create(plan->device, &dense, &results[i]));
        rg_dtype dtype;
        RG_TRY(copied_as(d->dtype, "rg_plan_run_async_results", "result", plan->result_names[i],
                         &dtype));
        rg_status status = view_as(result, dtype, &from);
        if (status == RG_OK)
            status = view_as(results[i], dtype, &to);
        if (status == RG_OK && d->rank == 0)
            from->desc = to->desc = rg_tensor_desc_dense(dtype, 1, (int64_t[]){ 1 });
        const gathering g = { .commands = commands, .count = 1, .from = &from, .parts = &to };
        if (status == RG_OK)
            status = copy_parts(&g, plan);
        rg_tensor_destroy(from);
        rg_tensor_destroy(to);
        RG_TRY(status);
    }
    return RG_OK;
}

rg_status rg_plan_run_async_results(rg_plan *plan, rg_tensor *const sources[], rg_tensor *results[],
                                    void (*handler)(void *context, rg_status outcome),
                                    void *context)
{
    rg_commands *commands = NULL;
    RG_CHECK_NOT_NULL(plan);
    for (int32_t i = 0; results != NULL && i < plan->results_count; i++)
        results[i] = NULL;
    if (plan->own_queue == NULL)
        RG_TRY(rg_queue_create(plan->device, &plan->own_queue));
    RG_TRY(rg_commands_create(plan->own_queue, &commands));
    rg_status status = rg_plan_encode(plan, commands, sources);
    if (status == RG_OK && results != NULL)
        status = copy_results(plan, commands, results);
    if (status == RG_OK && handler != NULL)
        status = rg_commands_on_completion(commands, handler, context);
    if (status == RG_OK)
        status = rg_commands_commit(commands);
    rg_commands_destroy(commands); /* no thread waits: the queue runs it by itself */
    for (int32_t i = 0; results != NULL && status != RG_OK && i < plan->results_count; i++) {
        rg_tensor_destroy(results[i]);
        results[i] = NULL;
    }
    return status;
}

rg_status rg_plan_run_async(rg_plan *plan, rg_tensor *const sources[],
                            void (*handler)(void *context, rg_status outcome), void *context)
{
    return rg_plan_run_async_results(plan, sources, NULL, handler, context);
}

/* ---- on another device ---- */

static rg_status copy_parameter(const rg_tensor *from, rg_tensor *to)
{
    const size_t bytes = (size_t)rg_shape_count(&from->desc) * rg_dtype_size(from->desc.dtype);
    void *elements;
    RG_TRY(rg_allocate(allocator, bytes, &elements));
    rg_status status = rg_tensor_read(from, elements, bytes, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_tensor_write(to, elements, bytes, RG_LAYOUT_SAME);
    rg_release(allocator, elements, bytes);
    return status;
}

rg_status rg_plan_copy(const rg_plan *plan, rg_device *device, rg_plan **copy)
{
    RG_CHECK_NOT_NULL(copy);
    *copy = NULL;
    RG_CHECK_NOT_NULL(plan);
    rg_plan *made = NULL;
    rg_status status =
        rg_plan_create(device != NULL ? device : plan->device, plan->graph, &plan->options, &made);
    for (int32_t v = 0; v < plan->slots_count && status == RG_OK; v++) {
        if (plan->parameters[v] != NULL)
            status = copy_parameter(plan->parameters[v], made->parameters[v]);
    }
    if (status != RG_OK) {
        rg_plan_destroy(made);
        return status;
    }
    made->runs = plan->runs;
    *copy = made;
    return RG_OK;
}
