/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reading models. */
#include "train/model.h"

#include "core/memory.h"
#include "core/number.h"
#include "files/json.h"
#include "files/whole_file.h"
#include "ops/ops.h"
#include "train/layer_rules.h"
#include "train/model_onnx.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- words of a line ---- */

typedef struct reader {
    const char *name; /* of the file */
    const char *line; /* the line being read */
    const char *at;   /* in it */
    const char *end;  /* of it, without a comment */
    int32_t number;   /* of the line, from 1 */
    rg_model *model;
    rg_names labels; /* layers by their labels: their numbers, from 1 on */
} reader;

static int32_t find_label(const reader *r, const char *label)
{
    return (int32_t)(intptr_t)rg_names_find(&r->labels, label) - 1;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-' || c == '+';
}

static void skip_space(reader *r)
{
    while (r->at < r->end && isspace((unsigned char)*r->at))
        r->at++;
}

enum { WORD = 64 };

/* The next word, up to a space or one of = : and comma; false at the end of the line. */
static bool take_word(reader *r, char word[WORD])
{
    size_t length = 0;
    skip_space(r);
    while (r->at < r->end && is_word(*r->at) && length < WORD - 1)
        word[length++] = *r->at++;
    word[length] = 0;
    return length > 0;
}

static bool take_mark(reader *r, char mark)
{
    skip_space(r);
    if (r->at >= r->end || *r->at != mark)
        return false;
    r->at++;
    return true;
}

/* Fails with "name:line:column: " in front of the sentence. */
#define MISTAKE(r, at, ...)                                                                 \
    do {                                                                                    \
        rg_fail(RG_MALFORMED, __VA_ARGS__);                                                 \
        rg_error_prefix("%s:%d:%d: ", (r)->name, (r)->number, (int)((at) - (r)->line) + 1); \
        return RG_MALFORMED;                                                                \
    } while (0)

static rg_status unexpected(const reader *r)
{
    const char *what = r->at < r->end ? r->at : "the end of the line";
    MISTAKE(r, r->at, "unexpected %.*s",
            r->at < r->end ? (int)(r->end - r->at > 20 ? 20 : r->end - r->at) : 19, what);
}

/* ---- one line ---- */

static rg_status find_layer_op(const reader *r, const char *at, const char *word, rg_layer *layer)
{
    const rg_op_name *other;
    if (rg_op_find(word, &layer->op, &other) != RG_OK || other != NULL)
        MISTAKE(r, at, "unknown layer '%s'", word);
    if (layer->op->gradient == NULL || rg_layer_rule_of(layer->op)->no_layer)
        MISTAKE(r, at, "the op %s cannot be a layer", word);
    memcpy(layer->desc, layer->op->desc.defaults, layer->op->desc.size);
    return RG_OK;
}

static rg_status read_window(const reader *r, const char *at, const char *value, rg_layer *layer)
{
    char *end;
    const long rows = strtol(value, &end, 10);
    const long columns = *end == ',' ? strtol(end + 1, &end, 10) : rows;
    if (*end != 0 || rows < 1 || columns < 1 || rows > 1024 || columns > 1024)
        MISTAKE(r, at, "window must be one or two numbers between 1 and 1024, not '%s'", value);
    layer->window[0] = (int32_t)rows;
    layer->window[1] = (int32_t)columns;
    return RG_OK;
}

/* A field with one number for two: "stride=2" means 2 for rows and columns. */
static bool wants_two(const rg_op *op, const char *name)
{
    for (const rg_field *f = op->desc.fields; f->name != NULL; f++) {
        if (strcmp(f->name, name) == 0)
            return f->length == 2 && f->count == 0;
    }
    return false;
}

static rg_status read_field(reader *r, const char *at, const char *name, rg_layer *layer)
{
    char value[WORD], two[2 * WORD + 2];
    size_t length = 0;
    skip_space(r);
    while (r->at < r->end && (is_word(*r->at) || *r->at == ',') && length < WORD - 1)
        value[length++] = *r->at++;
    value[length] = 0;
    if (strcmp(name, "window") == 0 && rg_layer_rule_of(layer->op)->window)
        return read_window(r, at, value, layer);
    snprintf(two, sizeof two, "%s,%s", value, value);
    const bool twice = wants_two(layer->op, name) && strchr(value, ',') == NULL;
    const rg_status status =
        rg_fields_set(&layer->op->desc, layer->op->name, layer->desc, name, twice ? two : value);
    if (status != RG_OK)
        rg_error_prefix("%s:%d:%d: ", r->name, r->number, (int)(at - r->line) + 1);
    return status == RG_INVALID_ARGUMENT ? RG_MALFORMED : status;
}

static rg_status read_from(reader *r, rg_layer *layer)
{
    do {
        char word[WORD];
        skip_space(r);
        const char *at = r->at;
        if (!take_word(r, word))
            return unexpected(r);
        const bool images = strcmp(word, "input") == 0;
        const int32_t found = images ? -1 : find_label(r, word);
        if (found < 0 && !images)
            MISTAKE(r, at, "no earlier layer has the label '%s'", word);
        if (layer->from_count == RG_MAX_INPUTS)
            MISTAKE(r, at, "a layer can have at most %d inputs", RG_MAX_INPUTS);
        layer->from[layer->from_count++] = found;
    } while (take_mark(r, ','));
    return RG_OK;
}

static rg_status read_outputs(reader *r, const char *at, const char *word, rg_layer *layer)
{
    char *end;
    const long long number = strtoll(word, &end, 10);
    const bool classes = strcmp(word, "classes") == 0;
    if (!classes && (*end != 0 || number < 1 || number > 1 << 24))
        MISTAKE(r, at, "'%s' is neither a field of the layer nor a number of outputs", word);
    if (rg_layer_rule_of(layer->op)->weights == NULL || layer->outputs != 0)
        MISTAKE(r, at, "%s takes no number of outputs here", layer->op->name);
    layer->outputs = classes ? RG_MODEL_CLASSES : number;
    return RG_OK;
}

static rg_status read_rest(reader *r, rg_layer *layer)
{
    char word[WORD];
    for (;;) {
        skip_space(r);
        const char *at = r->at;
        if (!take_word(r, word))
            return r->at == r->end ? RG_OK : unexpected(r);
        if (strcmp(word, "from") == 0)
            RG_TRY(read_from(r, layer));
        else if (take_mark(r, '='))
            RG_TRY(read_field(r, at, word, layer));
        else
            RG_TRY(read_outputs(r, at, word, layer));
    }
}

static rg_status check_layer(const reader *r, const char *at, const rg_layer *layer)
{
    if (rg_layer_rule_of(layer->op)->weights != NULL && layer->outputs == 0)
        MISTAKE(r, at, "%s needs a number of outputs, for example: %s 16", layer->op->name,
                layer->op->name);
    if (layer->op->check != NULL && layer->op->check(layer->desc) != RG_OK) {
        rg_error_prefix("%s:%d:%d: ", r->name, r->number, (int)(at - r->line) + 1);
        return RG_MALFORMED;
    }
    if (find_label(r, layer->label) >= 0)
        MISTAKE(r, r->line, "two layers have the label '%s'", layer->label);
    return RG_OK;
}

static rg_status set_label(const reader *r, const char *label, rg_layer *layer)
{
    char text[2 * WORD];
    if (label[0] != 0)
        snprintf(text, sizeof text, "%s", label);
    else
        snprintf(text, sizeof text, "%s%zu", layer->op->name, r->model->layers_count + 1);
    return rg_copy_text(text, &layer->label);
}

static rg_status read_line(reader *r)
{
    char word[WORD], label[WORD] = "";
    skip_space(r);
    const char *at = r->at;
    if (r->at == r->end)
        return RG_OK;
    if (!take_word(r, word))
        return unexpected(r);
    if (take_mark(r, ':')) {
        memcpy(label, word, sizeof label);
        if (strcmp(label, "input") == 0)
            MISTAKE(r, at, "the label 'input' is reserved for the images");
        skip_space(r);
        at = r->at;
        if (!take_word(r, word))
            return unexpected(r);
    }
    rg_model *model = r->model;
    RG_TRY(rg_grow(allocator, (void **)&model->layers, &model->layers_capacity, model->layers_count,
                   sizeof model->layers[0]));
    rg_layer *layer = &model->layers[model->layers_count];
    memset(layer, 0, sizeof *layer);
    layer->line = r->number;
    layer->column = (int32_t)(at - r->line) + 1;
    RG_TRY(find_layer_op(r, at, word, layer));
    RG_TRY(read_rest(r, layer));
    RG_TRY(set_label(r, label, layer));
    rg_status status = check_layer(r, at, layer);
    if (status == RG_OK)
        status = rg_names_add(&r->labels, layer->label,
                              (void *)(intptr_t)(model->layers_count + 1)); /* never NULL */
    if (status != RG_OK)
        free(layer->label);
    else
        model->layers_count++;
    return status;
}

/* ---- models ---- */

/* All but the last layer must be read by a later one: what nobody reads cannot be trained. */
static rg_status check_readers(const rg_model *model)
{
    bool *read = NULL;
    const size_t count = model->layers_count;
    RG_TRY(rg_allocate_array(count, sizeof *read, &read));
    for (size_t i = 0; i < count; i++) {
        const rg_layer *layer = &model->layers[i];
        for (int32_t k = 0; k < layer->from_count; k++) {
            if (layer->from[k] >= 0)
                read[layer->from[k]] = true;
        }
        if (layer->from_count == 0 && i > 0)
            read[i - 1] = true;
    }
    size_t unread = 0;
    while (unread + 1 < count && read[unread])
        unread++;
    rg_release(allocator, read, count * sizeof *read);
    const rg_layer *layer = &model->layers[unread];
    RG_CHECK(unread + 1 >= count, RG_MALFORMED,
             "%s:%d:%d: no layer reads '%s'; add it after 'from' of a later layer, or remove it",
             model->name, layer->line, layer->column, layer->label);
    return RG_OK;
}

static rg_status read_lines(reader *r, const char *text)
{
    for (const char *line = text; *line != 0;) {
        const size_t length = strcspn(line, "\n");
        const char *comment = memchr(line, '#', length);
        r->line = r->at = line;
        r->end = comment != NULL ? comment : line + length;
        r->number++;
        RG_TRY(read_line(r));
        line += length + (line[length] == '\n');
    }
    RG_CHECK(r->model->layers_count > 0, RG_MALFORMED, "%s: the model has no layers", r->name);
    return check_readers(r->model);
}

rg_status rg_model_parse(const char *name, const char *text, rg_model **model)
{
    RG_CHECK_NOT_NULL(model);
    *model = NULL;
    RG_CHECK_NOT_NULL(name);
    RG_CHECK_NOT_NULL(text);
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_model), &memory));
    rg_model *made = memory;
    atomic_init(&made->users, 1);
    made->name = strdup(name);
    made->text = strdup(text);
    reader r = { .name = name, .model = made };
    rg_status status = RG_OK;
    if (made->name == NULL || made->text == NULL)
        status = rg_fail(RG_OUT_OF_MEMORY, "out of memory for a model");
    else if (!rg_text_is_utf8(text)) /* a checkpoint keeps it */
        status = rg_fail(RG_MALFORMED, "%s: the text is not UTF-8", name);
    else
        status = rg_model_is_onnx_text(text) ? rg_model_read_onnx(made) : read_lines(&r, text);
    rg_names_clear(&r.labels);
    if (status != RG_OK) {
        rg_model_destroy(made);
        return status;
    }
    *model = made;
    return RG_OK;
}

rg_model *rg_model_retain(const rg_model *model)
{
    rg_model *own = (rg_model *)(uintptr_t)model; /* the count is all that changes */
    atomic_fetch_add(&own->users, 1);
    return own;
}

void rg_model_destroy(rg_model *model)
{
    if (model == NULL || atomic_fetch_sub(&model->users, 1) > 1)
        return;
    rg_onnx_close(model->onnx);
    if (model->base == NULL)
        rg_onnx_close(model->file);
    rg_model_destroy(model->base);
    for (size_t i = 0; i < model->layers_count; i++)
        free(model->layers[i].label);
    rg_release(allocator, model->layers, model->layers_capacity * sizeof model->layers[0]);
    free(model->name);
    free(model->text);
    rg_release(allocator, model, sizeof *model);
}

const char *rg_model_name(const rg_model *model)
{
    return model != NULL ? model->name : "";
}

const char *rg_model_text(const rg_model *model)
{
    return model != NULL ? model->text : "";
}

/* ---- those built in ---- */

static const char lenet[] = "# two convolutions with pooling, two dense layers\n"
                            "conv 16 window=5 padding.policy=same\n"
                            "neuron\n"
                            "pool\n"
                            "conv 32 window=5 padding.policy=same\n"
                            "neuron\n"
                            "pool\n"
                            "dense 128\n"
                            "neuron\n"
                            "dropout keep=0.7\n"
                            "dense classes\n";

static const char small[] = "# 3x3 convolutions of 8 and 16 channels, one dense layer\n"
                            "conv 8 window=3 padding.policy=same\n"
                            "neuron\n"
                            "pool\n"
                            "conv 16 window=3 padding.policy=same\n"
                            "neuron\n"
                            "pool\n"
                            "dense classes\n";

static const char mlp[] = "# two hidden layers\n"
                          "dense 256\n"
                          "neuron\n"
                          "dense 128\n"
                          "neuron\n"
                          "dense classes\n";

#define NORM "batch_norm epsilon=1e-5\n"
static const char resnet[] =
    "# three stages of residual blocks with batch normalization\n"
    "conv 16 window=3 padding.policy=same bias=false\n" NORM "start: neuron\n"
    "conv 16 window=3 padding.policy=same bias=false\n" NORM "neuron\n"
    "conv 16 window=3 padding.policy=same bias=false\n" NORM "arithmetic from batch_norm8, start\n"
    "one: neuron\n"
    "conv 32 window=3 stride=2 padding.policy=same bias=false from one\n" NORM "neuron\n"
    "conv 32 window=3 padding.policy=same bias=false\n"
    "left_two: " NORM "conv 32 window=1 stride=2 bias=false from one\n"
    "right_two: " NORM "arithmetic from left_two, right_two\n"
    "two: neuron\n"
    "conv 64 window=3 stride=2 padding.policy=same bias=false from two\n" NORM "neuron\n"
    "conv 64 window=3 padding.policy=same bias=false\n"
    "left_three: " NORM "conv 64 window=1 stride=2 bias=false from two\n"
    "right_three: " NORM "arithmetic from left_three, right_three\n"
    "neuron\n"
    "reduce kind=mean dims=1,2\n"
    "dense classes\n";

static const struct {
    const char *name, *text;
} builtin[] = { { "lenet", lenet }, { "small", small }, { "mlp", mlp }, { "resnet", resnet } };
enum { BUILTIN = sizeof builtin / sizeof builtin[0] };

const char *rg_model_builtin(int32_t index)
{
    return index >= 0 && index < BUILTIN ? builtin[index].name : NULL;
}

rg_status rg_model_open(const char *name, rg_model **model)
{
    RG_CHECK_NOT_NULL(model);
    *model = NULL;
    RG_CHECK_NOT_NULL(name);
    for (int i = 0; i < BUILTIN; i++) {
        if (strcmp(name, builtin[i].name) == 0)
            return rg_model_parse(name, builtin[i].text, model);
    }
    if (rg_model_is_onnx_path(name))
        return rg_model_open_onnx(name, model);
    enum { LIMIT = 1 << 20 };
    rg_bytes bytes = { 0 };
    rg_status status = rg_file_read(allocator, name, LIMIT, &bytes);
    char *text = status == RG_OK ? strndup(bytes.data != NULL ? bytes.data : "", bytes.size) : NULL;
    if (status == RG_OK && (text == NULL || strlen(text) != bytes.size))
        status = rg_fail(RG_MALFORMED, "%s: the file is not text", name);
    if (status == RG_OK)
        status = rg_model_parse(name, text, model);
    free(text);
    rg_bytes_release(allocator, &bytes);
    return status;
}
