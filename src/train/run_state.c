/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Checkpoints: texts and tensors, there and back. */
#include "train/run_state.h"

#include "core/memory.h"
#include "core/number.h"
#include "files/tensor_pieces.h"
#include "graph/plan.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* Whole numbers: where they are, and from where to where they go, so that nothing overflows. */
#define MANY (INT64_C(1) << 48)
static const struct {
    const char *key;
    size_t offset;
    int64_t low, high;
} integers[] = {
    { "height", offsetof(rg_run_state, network.height), 1, 1 << 20 },
    { "width", offsetof(rg_run_state, network.width), 1, 1 << 20 },
    { "channels", offsetof(rg_run_state, network.channels), 1, RG_DATASET_CHANNELS },
    { "dropout_seed", offsetof(rg_run_state, network.seed), INT64_MIN, INT64_MAX },
    { "epoch", offsetof(rg_run_state, epoch), 0, 1000000 },
    { "position", offsetof(rg_run_state, position), 0, MANY },
    { "steps", offsetof(rg_run_state, steps), 0, INT64_MAX / 2 },
    { "batches", offsetof(rg_run_state, batches), 0, INT64_MAX / 2 },
    { "images", offsetof(rg_run_state, images), 0, MANY },
    { "right", offsetof(rg_run_state, right), 0, MANY },
    { "best_epoch", offsetof(rg_run_state, best_epoch), 0, 1000000 },
};
enum { INTEGERS = sizeof integers / sizeof integers[0] };

/* ---- checking ---- */

static rg_status check_numbers(const char *name, const void *data, rg_dtype dtype, size_t bytes)
{
    const int64_t count = (int64_t)(bytes / rg_dtype_size(dtype));
    for (int64_t i = 0; i < count; i++) {
        const double value = rg_element_get(data, dtype, i);
        RG_CHECK(isfinite(value), RG_INVALID_STATE, "the parameter '%s' contains %g", name,
                 isnan(value) ? NAN : value);
    }
    return RG_OK;
}

static rg_status check_tensor(const char *name, const rg_tensor *tensor)
{
    const rg_dtype dtype = tensor->desc.dtype;
    rg_pieces pieces;
    RG_TRY(rg_pieces_of_tensor(tensor, true, name, &pieces));
    if (pieces.direct != NULL)
        return check_numbers(name, pieces.direct, dtype, pieces.bytes);
    void *staging;
    RG_TRY(rg_allocate(allocator, pieces.staging, &staging));
    rg_status status = RG_OK;
    for (size_t size; status == RG_OK && (size = rg_pieces_next(&pieces)) > 0;) {
        status = rg_pieces_copy(&pieces, staging);
        if (status == RG_OK)
            status = check_numbers(name, staging, dtype, size);
    }
    rg_release(allocator, staging, pieces.staging);
    return status;
}

rg_status rg_run_state_check(rg_stepper *stepper)
{
    rg_plan *plan = rg_stepper_plan(stepper);
    for (int32_t i = 0; i < rg_plan_parameters(plan); i++) {
        const char *name = rg_plan_parameter_name(plan, i);
        rg_tensor *tensor;
        RG_TRY(rg_plan_parameter(plan, name, &tensor));
        RG_TRY(check_tensor(name, tensor));
    }
    return RG_OK;
}

/* ---- writing ---- */

enum { TEXTS = 24, NUMBER = 32 };

typedef struct texts {
    rg_safetensors_text list[TEXTS];
    char numbers[TEXTS][NUMBER];
    size_t count;
} texts;

static void add_text(texts *t, const char *key, const char *value)
{
    assert(t->count < TEXTS);
    t->list[t->count++] = (rg_safetensors_text){ key, value };
}

static void add_integer(texts *t, const char *key, int64_t value)
{
    char *text = t->numbers[t->count];
    snprintf(text, NUMBER, "%" PRId64, value);
    add_text(t, key, text);
}

static void add_real(texts *t, const char *key, double value)
{
    char *text = t->numbers[t->count];
    rg_number_text(value, text, NUMBER);
    add_text(t, key, text);
}

/* Numbers in one text, one behind the other. */
static void list_reals(const double values[], int64_t count, char *text, size_t capacity)
{
    size_t at = 0;
    text[0] = 0;
    for (int64_t i = 0; i < count && at + NUMBER < capacity; i++) {
        char number[NUMBER];
        rg_number_text(values[i], number, sizeof number);
        at += (size_t)snprintf(text + at, capacity - at, "%s%s", i > 0 ? "," : "", number);
    }
}

/* Names of classes, one a line. */
static rg_status list_names(const rg_run_state *c, char **text)
{
    size_t size = 1;
    for (int32_t i = 0; i < c->network.classes; i++)
        size += strlen(c->class_names[i]) + 1;
    *text = calloc(1, size);
    RG_CHECK(*text != NULL, RG_OUT_OF_MEMORY, "out of memory for the class names");
    char *at = *text;
    for (int32_t i = 0; i < c->network.classes; i++) {
        const char *name = c->class_names[i];
        for (; *name != 0; name++)
            *at++ = *name == '\n' ? ' ' : *name;
        *at++ = '\n';
    }
    return RG_OK;
}

static void fill_texts(const rg_run_state *c, texts *t, const char *names, char *mean,
                       char *deviation, size_t capacity)
{
    const rg_network_desc *n = &c->network;
    list_reals(c->mean, n->channels, mean, capacity);
    list_reals(c->deviation, n->channels, deviation, capacity);
    add_text(t, "format", "retrograde checkpoint 1");
    add_text(t, "model_name", c->model_name);
    add_text(t, "model", c->model);
    add_integer(t, "classes", n->classes);
    add_text(t, "dtype", rg_dtype_name(n->dtype));
    add_text(t, "class_names", names);
    add_text(t, "mean", mean);
    add_text(t, "deviation", deviation);
    add_text(t, "options", c->options);
    for (size_t i = 0; i < INTEGERS; i++) {
        int64_t value;
        memcpy(&value, (const char *)c + integers[i].offset, sizeof value);
        add_integer(t, integers[i].key, value);
    }
    add_real(t, "loss", c->loss);
    add_real(t, "best_accuracy", c->best_accuracy);
}

static rg_status write_file(const char *path, const texts *t, rg_plan *plan)
{
    const size_t count = (size_t)rg_plan_parameters(plan);
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, count * sizeof(rg_safetensors_entry), &memory));
    rg_safetensors_entry *entries = memory;
    rg_status status = RG_OK;
    for (size_t i = 0; i < count && status == RG_OK; i++) {
        rg_tensor *tensor = NULL;
        entries[i].name = rg_plan_parameter_name(plan, (int32_t)i);
        status = rg_plan_parameter(plan, entries[i].name, &tensor);
        entries[i].tensor = tensor;
    }
    if (status == RG_OK)
        status = rg_safetensors_write(path, entries, count, t->list, t->count);
    rg_release(allocator, memory, count * sizeof(rg_safetensors_entry));
    return status;
}

rg_status rg_run_state_write(const char *path, const rg_run_state *c, rg_stepper *stepper)
{
    texts t = { .count = 0 };
    char mean[RG_DATASET_CHANNELS * NUMBER + 1], deviation[sizeof mean], *names;
    RG_TRY(list_names(c, &names));
    fill_texts(c, &t, names, mean, deviation, sizeof mean);
    const rg_status status = write_file(path, &t, rg_stepper_plan(stepper));
    free(names);
    return status;
}

/* ---- reading ---- */

typedef struct source {
    const char *path;
    const rg_safetensors *file;
} source;

static rg_status find_text(const source *s, const char *key, const char **text)
{
    *text = rg_safetensors_metadata(s->file, key);
    RG_CHECK(*text != NULL, RG_MALFORMED, "%s: this is not a checkpoint: the entry '%s' is missing",
             s->path, key);
    return RG_OK;
}

static rg_status read_text(const source *s, const char *key, char **copy)
{
    const char *text;
    RG_TRY(find_text(s, key, &text));
    return rg_copy_text(text, copy);
}

static rg_status read_integer(const source *s, const char *key, int64_t low, int64_t high,
                              int64_t *value)
{
    const char *text;
    char *end;
    RG_TRY(find_text(s, key, &text));
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    RG_CHECK(errno == 0 && end != text && *end == 0 && number >= low && number <= high,
             RG_MALFORMED, "%s: '%s' is '%.40s', not a whole number from %" PRId64 " to %" PRId64,
             s->path, key, text, low, high);
    *value = number;
    return RG_OK;
}

static rg_status read_real(const source *s, const char *key, double *value)
{
    const char *text;
    RG_TRY(find_text(s, key, &text));
    RG_CHECK(rg_number_parse(text, value) && isfinite(*value), RG_MALFORMED,
             "%s: '%s' is '%.40s', not a number", s->path, key, text);
    return RG_OK;
}

static rg_status read_reals(const source *s, const char *key, int64_t count, double values[])
{
    const char *text;
    RG_TRY(find_text(s, key, &text));
    for (int64_t i = 0; i < count; i++) {
        char number[NUMBER];
        const size_t length = strcspn(text, ",");
        snprintf(number, sizeof number, "%.*s", (int)(length < NUMBER ? length : NUMBER - 1), text);
        RG_CHECK(length < NUMBER && text[length] == (i + 1 < count ? ',' : 0) &&
                     rg_number_parse(number, &values[i]) && isfinite(values[i]),
                 RG_MALFORMED, "%s: '%s' does not hold %" PRId64 " numbers", s->path, key, count);
        text += length + (text[length] == ',');
    }
    return RG_OK;
}

static rg_status read_names(const source *s, rg_run_state *c)
{
    const char *text;
    void *memory;
    const size_t classes = (size_t)c->network.classes;
    size_t lines = 0;
    RG_TRY(find_text(s, "class_names", &text));
    for (const char *end = text; (end = strchr(end, '\n')) != NULL; end++)
        lines++;
    RG_CHECK(lines == classes, RG_MALFORMED,
             "%s: the checkpoint has %zu classes but %zu class names", s->path, classes, lines);
    RG_TRY(rg_allocate_zero(allocator, classes * sizeof *c->class_names, &memory));
    c->class_names = memory;
    for (size_t i = 0; i < classes; i++) {
        const size_t length = strcspn(text, "\n");
        c->class_names[i] = strndup(text, length);
        RG_CHECK(c->class_names[i] != NULL, RG_OUT_OF_MEMORY, "out of memory for a name");
        text += length + (text[length] == '\n');
    }
    return RG_OK;
}

static rg_status read_network(const source *s, rg_network_desc *n)
{
    const char *dtype;
    int64_t classes;
    RG_TRY(read_integer(s, "classes", 1, RG_DATASET_CLASSES, &classes));
    RG_TRY(find_text(s, "dtype", &dtype));
    n->size = sizeof *n;
    n->classes = (int32_t)classes;
    RG_CHECK(rg_dtype_parse(dtype, &n->dtype) == RG_OK && rg_dtype_is_data(n->dtype), RG_MALFORMED,
             "%s: '%.20s' is not a floating-point dtype for a network", s->path, dtype);
    return RG_OK;
}

/* What counts the same thing twice. */
static rg_status check_counts(const source *s, const rg_run_state *c)
{
    RG_CHECK(c->right <= c->images && c->images <= c->position, RG_MALFORMED,
             "%s: the checkpoint counts %" PRId64 " correct images of %" PRId64
             " at position %" PRId64,
             s->path, c->right, c->images, c->position);
    RG_CHECK(c->steps <= c->batches, RG_MALFORMED,
             "%s: the checkpoint has %" PRId64 " steps, more than its %" PRId64 " batches", s->path,
             c->steps, c->batches);
    RG_CHECK(c->best_epoch <= c->epoch, RG_MALFORMED,
             "%s: the best epoch is %" PRId64 ", but the last complete epoch is %" PRId64, s->path,
             c->best_epoch, c->epoch);
    return RG_OK;
}

static rg_status read_texts(const source *s, rg_run_state *c)
{
    const char *format;
    RG_TRY(find_text(s, "format", &format));
    RG_CHECK(strcmp(format, "retrograde checkpoint 1") == 0, RG_UNSUPPORTED,
             "%s: the checkpoint format '%.60s' is not supported", s->path, format);
    for (size_t i = 0; i < INTEGERS; i++) {
        int64_t value;
        RG_TRY(read_integer(s, integers[i].key, integers[i].low, integers[i].high, &value));
        memcpy((char *)c + integers[i].offset, &value, sizeof value);
    }
    RG_TRY(read_text(s, "model_name", &c->model_name));
    RG_TRY(read_text(s, "model", &c->model));
    RG_TRY(read_text(s, "options", &c->options));
    RG_TRY(read_network(s, &c->network));
    RG_TRY(read_names(s, c));
    RG_TRY(read_reals(s, "mean", c->network.channels, c->mean));
    RG_TRY(read_reals(s, "deviation", c->network.channels, c->deviation));
    for (int64_t i = 0; i < c->network.channels; i++)
        RG_CHECK(c->deviation[i] > 0, RG_MALFORMED,
                 "%s: a standard deviation is not greater than 0", s->path);
    RG_TRY(read_real(s, "loss", &c->loss));
    RG_TRY(read_real(s, "best_accuracy", &c->best_accuracy));
    return check_counts(s, c);
}

rg_status rg_run_state_open(const char *path, rg_run_state *checkpoint, rg_safetensors **file)
{
    *checkpoint = (rg_run_state){ 0 };
    RG_TRY(rg_safetensors_open(path, file));
    const source s = { path, *file };
    const rg_status status = read_texts(&s, checkpoint);
    if (status != RG_OK) {
        rg_run_state_release(checkpoint);
        rg_safetensors_close(*file);
        *file = NULL;
    }
    return status;
}

static rg_status find_tensor(const char *path, const rg_safetensors *file, const char *name,
                             size_t *index)
{
    RG_CHECK(
        rg_safetensors_find(file, name, index), RG_MALFORMED,
        "%s: the parameter '%s' is missing; the checkpoint belongs to another model or optimizer",
        path, name);
    return RG_OK;
}

static rg_status check_parameter(const char *path, const rg_safetensors *file,
                                 const rg_value *parameter)
{
    char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
    const rg_tensor_desc *desc = &parameter->desc;
    rg_tensor_desc found;
    size_t index;
    RG_TRY(find_tensor(path, file, parameter->name, &index));
    RG_TRY(rg_safetensors_desc(file, index, &found));
    RG_CHECK(found.dtype == desc->dtype && rg_shape_same_dims(&found, desc), RG_MALFORMED,
             "%s: the parameter '%s' is %s, but the model needs %s", path, parameter->name,
             rg_shape_text(&found, have), rg_shape_text(desc, want));
    return RG_OK;
}

rg_status rg_run_state_check_file(const char *path, const rg_safetensors *file,
                                  const rg_model *model, rg_network_desc options)
{
    rg_network network;
    void *live;
    options.training = false;
    const rg_status made = rg_network_create(model, &options, &network);
    if (made != RG_OK)
        rg_error_prefix("%s: ", path);
    RG_TRY(made);
    const rg_graph *graph = network.graph;
    rg_status status = rg_allocate_zero(allocator, graph->values_count * sizeof(bool), &live);
    if (status == RG_OK) {
        status = rg_graph_live(graph, live);
        for (size_t i = 0; i < graph->values_count && status == RG_OK; i++) {
            const rg_value *value = graph->values[i];
            if (((const bool *)live)[i] && value->kind == RG_VALUE_PARAMETER)
                status = check_parameter(path, file, value);
        }
        rg_release(allocator, live, graph->values_count * sizeof(bool));
    }
    rg_network_destroy(&network);
    return status;
}

rg_status rg_run_state_read_plan(const char *path, const rg_safetensors *file, rg_plan *plan)
{
    for (int32_t i = 0; i < rg_plan_parameters(plan); i++) {
        const char *name = rg_plan_parameter_name(plan, i);
        rg_tensor *tensor;
        size_t index;
        RG_TRY(rg_plan_parameter(plan, name, &tensor));
        RG_TRY(find_tensor(path, file, name, &index));
        RG_TRY(rg_safetensors_read_tensor(file, index, tensor));
    }
    return RG_OK;
}

rg_status rg_run_state_read(const char *path, const rg_safetensors *file, const rg_run_state *c,
                            rg_device *device, const rg_stepper_options *options, rg_model **model,
                            rg_stepper **stepper)
{
    rg_status status = rg_model_parse(c->model_name, c->model, model);
    if (status == RG_OK) {
        RG_TRY(rg_run_state_check_file(path, file, *model, options->network));
        status = rg_stepper_create(device, *model, options, stepper);
    }
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    RG_TRY(status);
    return rg_run_state_read_plan(path, file, rg_stepper_plan(*stepper));
}

void rg_run_state_release(rg_run_state *c)
{
    const size_t classes = (size_t)c->network.classes;
    for (size_t i = 0; c->class_names != NULL && i < classes; i++)
        free(c->class_names[i]);
    rg_release(allocator, c->class_names, classes * sizeof *c->class_names);
    free(c->model_name);
    free(c->model);
    free(c->options);
    *c = (rg_run_state){ 0 };
}
