/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Weights of safetensors files: those of checkpoints of ours, whose tensors are as the graph has
 * them, and those of PyTorch, (out, in, h, w), by the names of either. */
#include "train/trainer.h"

#include "core/dtype.h"
#include "core/memory.h"
#include "core/shape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

enum { MOST_NAMED = 8 }; /* in one sentence */

typedef struct loader {
    rg_trainer *trainer;
    const char *path;
    rg_safetensors *file;
    bool ours; /* a checkpoint of ours */
    bool *taken;
    size_t count, loaded, missing, surplus;
    char names[MOST_NAMED * 96]; /* of what is missing, then of what is surplus */
} loader;

/* ---- names ---- */

/* What PyTorch calls a parameter of a layer: weight and bias, also of norms. */
static void torch_name(const char *name, char *text, size_t size)
{
    static const char *const pairs[][2] = { { ".w", ".weight" },
                                            { ".b", ".bias" },
                                            { ".gamma", ".weight" },
                                            { ".beta", ".bias" },
                                            { ".slope", ".weight" },
                                            { ".mean", ".running_mean" },
                                            { ".variance", ".running_var" } };
    const char *dot = strrchr(name, '.');
    const char *end = dot;
    for (size_t i = 0; dot != NULL && i < sizeof pairs / sizeof pairs[0]; i++) {
        if (strcmp(dot, pairs[i][0]) == 0)
            end = pairs[i][1];
    }
    snprintf(text, size, "%.*s%s", dot != NULL ? (int)(dot - name) : (int)strlen(name), name,
             end != NULL ? end : "");
}

static bool find(const loader *l, const char *name, size_t *index)
{
    char other[300];
    if (rg_safetensors_find(l->file, name, index))
        return true;
    if (l->ours || l->trainer->model->onnx != NULL)
        return false;
    torch_name(name, other, sizeof other);
    return rg_safetensors_find(l->file, other, index);
}

static void add_name(loader *l, size_t already, const char *name)
{
    const size_t used = strlen(l->names);
    if (already < MOST_NAMED)
        snprintf(l->names + used, sizeof l->names - used, "%s%.80s", used > 0 ? ", " : "", name);
}

/* ---- one tensor ---- */

/* The dimensions of the file that fit a parameter: as they are, or all inputs of a product in one.
 * *transposed: a product that has them the other way round. */
static bool fits(const loader *l, const rg_network_parameter *p, const rg_tensor_desc *found,
                 bool *transposed)
{
    const rg_tensor_desc *want = &p->value->desc;
    int64_t dims[RG_MAX_RANK];
    *transposed = false;
    for (int32_t d = 0; d < want->rank; d++)
        dims[l->ours ? d : p->order[d]] = want->dims[d];
    bool same = found->rank == want->rank;
    for (int32_t d = 0; d < want->rank && same; d++)
        same = found->dims[d] == dims[d];
    if (same || l->ours)
        return same;
    if (want->rank > 2 && found->rank == 2 && found->dims[0] == dims[0] &&
        rg_shape_count(found) == rg_shape_count(want))
        return true;
    *transposed = want->rank == 2 && found->rank == 2 && found->dims[0] == dims[1] &&
                  found->dims[1] == dims[0];
    return *transposed;
}

static rg_status write_tensor(const rg_network_parameter *p, rg_tensor *tensor, const void *data,
                              rg_dtype dtype, bool ours, bool transposed)
{
    rg_tensor *view = NULL;
    rg_tensor_desc desc;
    int32_t order[RG_MAX_RANK];
    void *made;
    RG_TRY(rg_tensor_get_desc(tensor, &desc));
    const size_t count = (size_t)rg_shape_count(&desc), bytes = count * rg_dtype_size(desc.dtype);
    for (int32_t d = 0; d < desc.rank; d++) {
        const int32_t to = ours ? d : transposed ? 1 - p->order[d] : p->order[d];
        order[to] = d;
    }
    RG_TRY(rg_allocate(allocator, bytes, &made));
    rg_status status = rg_convert(made, desc.dtype, data, dtype, count);
    if (status == RG_OK)
        status = rg_tensor_permute(tensor, order, &view);
    if (status == RG_OK)
        status = rg_tensor_write(view, made, bytes, RG_LAYOUT_SAME);
    rg_tensor_destroy(view);
    rg_release(allocator, made, bytes);
    return status;
}

/* Writes a parameter, and its copy of 32 bits where it has 16. */
static rg_status write_parameter(const loader *l, const rg_network_parameter *p, const void *data,
                                 rg_dtype dtype, bool transposed)
{
    const char *name = p->value->name;
    char master[300];
    rg_tensor *tensor;
    snprintf(master, sizeof master, "%s.master", name);
    if (rg_stepper_find(l->trainer->stepper, master, &tensor))
        RG_TRY(write_tensor(p, tensor, data, dtype, l->ours, transposed));
    return rg_stepper_find(l->trainer->stepper, name, &tensor)
               ? write_tensor(p, tensor, data, dtype, l->ours, transposed)
               : RG_OK;
}

static rg_status check_finite(const void *data, rg_dtype dtype, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        RG_CHECK(isfinite(rg_element_get(data, dtype, i)), RG_MALFORMED,
                 "it contains numbers that are not finite");
    return RG_OK;
}

static rg_status read_parameter(const loader *l, const rg_network_parameter *p, size_t index)
{
    char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
    rg_tensor_desc found;
    bool transposed;
    void *data;
    RG_TRY(rg_safetensors_desc(l->file, index, &found));
    RG_CHECK(rg_dtype_is_data(found.dtype), RG_MALFORMED, "its elements are %s",
             rg_safetensors_dtype(l->file, index));
    RG_CHECK(fits(l, p, &found, &transposed), RG_MALFORMED, "it is %s, but the network needs %s%s",
             rg_shape_text(&found, have), rg_shape_text(&p->value->desc, want),
             p->head ? "; head replaces the last layer" : "");
    const size_t bytes = rg_safetensors_bytes(l->file, index);
    RG_TRY(rg_allocate(allocator, bytes, &data));
    rg_status status = rg_safetensors_read(l->file, index, data, bytes);
    if (status == RG_OK)
        status = check_finite(data, found.dtype, rg_shape_count(&found));
    if (status == RG_OK)
        status = write_parameter(l, p, data, found.dtype, transposed);
    rg_release(allocator, data, bytes);
    return status;
}

/* ---- all of them ---- */

/* Constants that the importer has made are no weights. */
static bool is_weight(const rg_network_parameter *p)
{
    return strncmp(p->value->name, "retrograde.", 11) != 0 &&
           rg_dtype_is_data(p->value->desc.dtype);
}

static rg_status read_all(loader *l)
{
    const rg_network *network = rg_stepper_network(l->trainer->stepper);
    for (size_t i = 0; i < network->parameters_count; i++) {
        const rg_network_parameter *p = &network->parameters[i];
        size_t index;
        const bool found = is_weight(p) && find(l, p->value->name, &index);
        if (found)
            l->taken[index] = true;
        if (!is_weight(p) || (p->head && l->trainer->desc.head != 0))
            continue; /* the last layer starts anew */
        if (!found) {
            add_name(l, l->missing++, p->value->name);
            continue;
        }
        const rg_status status = read_parameter(l, p, index);
        if (status != RG_OK)
            rg_error_prefix("%s: '%.80s': ", l->path, rg_safetensors_name(l->file, index));
        RG_TRY(status);
        l->loaded++;
    }
    RG_CHECK(l->loaded > 0, RG_MALFORMED,
             "%s: no tensor has the name of a parameter of the network; it needs %s", l->path,
             l->names);
    return RG_OK;
}

/* What optimizers and PyTorch count is no weight either. */
static bool is_state(const loader *l, const char *name)
{
    const char *dot = strrchr(name, '.');
    return l->ours || (dot != NULL && strcmp(dot, ".num_batches_tracked") == 0);
}

static void tell(loader *l, const char *what, size_t count, rg_weights_say *say, void *context)
{
    char sentence[sizeof l->names + 256];
    if (count > 0 && say != NULL) {
        snprintf(sentence, sizeof sentence, "%.100s: %zu %s: %s%s", l->path, count, what, l->names,
                 count > MOST_NAMED ? ", ..." : "");
        say(context, sentence);
    }
    l->names[0] = 0;
}

static rg_status load(loader *l, bool all, rg_weights_say *say, void *context)
{
    const char *format = rg_safetensors_metadata(l->file, "format");
    l->ours = format != NULL && strncmp(format, "retrograde", 10) == 0;
    RG_TRY(read_all(l));
    RG_CHECK(!all || l->missing == 0, RG_MALFORMED, "%s: %zu parameters are not in the file: %s%s",
             l->path, l->missing, l->names, l->missing > MOST_NAMED ? ", ..." : "");
    tell(l, "parameters are not in the file", l->missing, say, context);
    for (size_t i = 0; i < l->count; i++) {
        const char *name = rg_safetensors_name(l->file, i);
        if (!l->taken[i] && !is_state(l, name))
            add_name(l, l->surplus++, name);
    }
    tell(l, "tensors are of no parameter", l->surplus, say, context);
    return RG_OK;
}

rg_status rg_trainer_read_weights(rg_trainer *trainer, const char *path, bool all,
                                  rg_weights_say *say, void *context)
{
    loader l = { .trainer = trainer, .path = path };
    RG_TRY(rg_safetensors_open(path, &l.file));
    l.count = rg_safetensors_count(l.file);
    rg_status status = rg_allocate_array(l.count + 1, sizeof *l.taken, &l.taken);
    if (status == RG_OK)
        status = load(&l, all, say, context);
    rg_release(allocator, l.taken, (l.count + 1) * sizeof *l.taken);
    rg_safetensors_close(l.file);
    return status;
}

rg_status rg_trainer_load_weights(rg_trainer *trainer, const char *path, rg_weights_say *say,
                                  void *context)
{
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(path);
    RG_CHECK(trainer->loader != NULL && rg_stepper_batches(trainer->stepper) == 0, RG_INVALID_STATE,
             "rg_trainer_load_weights: weights are loaded before training begins");
    RG_TRY(rg_trainer_read_weights(trainer, path, false, say, context));
    return rg_trainer_agree_on_weights(trainer);
}
