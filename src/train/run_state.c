/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a checkpoint holds beside its tensors: one table, from which it is written and read. */
#include "train/run_state.h"
#include "train/dataset.h"
#include "train/scores.h"

#include "core/dtype.h"
#include "core/memory.h"
#include "core/number.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

static const char format[] = "retrograde checkpoint 1";

typedef enum kind {
    TEXT,     /* char * */
    INTEGER,  /* int64_t from `low` to `high`, so that nothing overflows */
    CLASSES,  /* the same for an int32_t */
    REAL,     /* double */
    DTYPE,    /* rg_dtype, floating point */
    CHANNELS, /* a double for each channel of an image */
    NAMES,    /* char **: a text for each class */
    COLUMNS   /* double *: one for each column */
} kind;

/* All of it, in the order of the file. */
#define MANY      (INT64_C(1) << 48)
#define AT(field) offsetof(rg_run_state, field)
static const struct entry {
    const char *key;
    kind kind;
    size_t offset;
    int64_t low, high;
    bool optional; /* 0 in checkpoints that lack it */
} entries[] = {
    { "model_name", TEXT, AT(model_name), 0, 0 },
    { "model", TEXT, AT(model), 0, 0 },
    { "classes", CLASSES, AT(network.classes), 1, RG_DATASET_CLASSES },
    { "dtype", DTYPE, AT(network.dtype), 0, 0 },
    { "class_names", NAMES, AT(class_names), 0, 0 },
    { "mean", CHANNELS, AT(mean), 0, 0 },
    { "deviation", CHANNELS, AT(deviation), 0, 0 },
    { "options", TEXT, AT(options), 0, 0 },
    { "height", INTEGER, AT(network.height), 1, 1 << 20 },
    { "width", INTEGER, AT(network.width), 1, 1 << 20 },
    { "channels", INTEGER, AT(network.channels), 1, RG_DATASET_CHANNELS },
    { "dropout_seed", INTEGER, AT(network.seed), INT64_MIN, INT64_MAX },
    { "epoch", INTEGER, AT(epoch), 0, 1000000 },
    { "position", INTEGER, AT(position), 0, MANY },
    { "steps", INTEGER, AT(steps), 0, INT64_MAX / 2 },
    { "batches", INTEGER, AT(batches), 0, INT64_MAX / 2 },
    { "images", INTEGER, AT(images), 0, MANY },
    { "right", INTEGER, AT(right), 0, MANY },
    { "best_epoch", INTEGER, AT(best_epoch), 0, 1000000 },
    { "loss", REAL, AT(loss), 0, 0 },
    { "best_accuracy", REAL, AT(best_accuracy), 0, 0 },
    { "columns", INTEGER, AT(columns), 0, 1 << 20, .optional = true },
    { "column_mean", COLUMNS, AT(column_mean), 0, 0, .optional = true },
    { "column_deviation", COLUMNS, AT(column_deviation), 0, 0, .optional = true },
    { "pixels", INTEGER, AT(pixels), 0, RG_RANGE_NUMBERS, .optional = true },
    { "resize", INTEGER, AT(resize), 0, 1, .optional = true },
    { "score", REAL, AT(score), 0, 0, .optional = true },
    { "weight", REAL, AT(weight), 0, 0, .optional = true },
    { "set_images", INTEGER, AT(set_images), 0, MANY, .optional = true },
    { "set_hash", INTEGER, AT(set_hash), 0, INT64_MAX, .optional = true },
    { "target", CLASSES, AT(network.target), 0, RG_TARGET_MASK, .optional = true },
    { "targets", INTEGER, AT(network.outputs), 0, INT32_MAX, .optional = true },
    { "loss_kind", CLASSES, AT(network.loss), 0, RG_LOSS_KULLBACK_LEIBLER, .optional = true },
};
enum { ENTRIES = sizeof entries / sizeof entries[0], NUMBER = 32 };

/* Whether an entry can only be read when the numbers of classes and channels are known. */
static bool is_counted(const struct entry *e)
{
    return e->kind == CHANNELS || e->kind == NAMES || e->kind == COLUMNS;
}

/* ---- writing ---- */

/* The texts that are made: of numbers, and of all class names. */
typedef struct made_texts {
    char values[ENTRIES][RG_DATASET_CHANNELS * NUMBER + 1];
    char *names;
    char *columns[2]; /* mean and deviation; NULL where there are none */
} made_texts;

/* Numbers in one text, separated by commas. */
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

/* The text of an entry, in `made` or in the state itself. */
static const char *text_of(const rg_run_state *c, size_t index, made_texts *made)
{
    const struct entry *e = &entries[index];
    const void *at = (const char *)c + e->offset;
    char *text = made->values[index];
    const size_t capacity = sizeof made->values[index];
    switch (e->kind) {
    case TEXT:
        return *(char *const *)at;
    case INTEGER:
        snprintf(text, capacity, "%" PRId64, *(const int64_t *)at);
        break;
    case CLASSES:
        snprintf(text, capacity, "%" PRId32, *(const int32_t *)at);
        break;
    case REAL:
        rg_number_text(*(const double *)at, text, capacity);
        break;
    case DTYPE:
        return rg_dtype_name(*(const rg_dtype *)at);
    case CHANNELS:
        list_reals(at, c->network.channels, text, capacity);
        break;
    case NAMES:
        return made->names;
    case COLUMNS:
        return made->columns[e->offset == AT(column_deviation)];
    }
    return text;
}

/* The numbers of columns, where there are some. */
static rg_status list_columns(const rg_run_state *c, made_texts *made)
{
    const double *const numbers[] = { c->column_mean, c->column_deviation };
    const size_t size = (size_t)c->columns * NUMBER + NUMBER + 1;
    for (int i = 0; i < 2 && c->columns > 0; i++) {
        made->columns[i] = malloc(size);
        RG_CHECK(made->columns[i] != NULL, RG_OUT_OF_MEMORY, "out of memory for a checkpoint");
        list_reals(numbers[i], c->columns, made->columns[i], size);
    }
    return RG_OK;
}

/* What is said of columns is left out where there are none. */
static bool is_written(const rg_run_state *c, const struct entry *e)
{
    return c->columns > 0 || (e->kind != COLUMNS && e->offset != AT(columns));
}

static rg_status write_texts(const char *path, const rg_run_state *c, rg_stepper *stepper,
                             made_texts *made)
{
    rg_safetensors_text texts[ENTRIES + 1] = { { "format", format } };
    size_t count = 1;
    for (size_t i = 0; i < ENTRIES; i++) {
        if (is_written(c, &entries[i]))
            texts[count++] = (rg_safetensors_text){ entries[i].key, text_of(c, i, made) };
    }
    return rg_run_state_write_file(path, texts, count, stepper);
}

rg_status rg_run_state_write(const char *path, const rg_run_state *c, rg_stepper *stepper)
{
    made_texts made = { .names = NULL };
    rg_status status = list_names(c, &made.names);
    if (status == RG_OK)
        status = list_columns(c, &made);
    if (status == RG_OK)
        status = write_texts(path, c, stepper, &made);
    free(made.columns[0]);
    free(made.columns[1]);
    free(made.names);
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

static rg_status read_integer(const source *s, const struct entry *e, const char *text,
                              int64_t *value)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    RG_CHECK(errno == 0 && end != text && *end == 0 && number >= e->low && number <= e->high,
             RG_MALFORMED, "%s: '%s' is '%.40s', not a whole number from %" PRId64 " to %" PRId64,
             s->path, e->key, text, e->low, e->high);
    *value = number;
    return RG_OK;
}

static rg_status read_reals(const source *s, const char *key, const char *text, int64_t count,
                            double values[])
{
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

static rg_status read_names(const source *s, const char *text, rg_run_state *c)
{
    void *memory;
    const size_t classes = (size_t)c->network.classes;
    size_t lines = 0;
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

static rg_status read_columns(const source *s, const char *key, const char *text, int64_t count,
                              double **numbers)
{
    RG_CHECK(count > 0 && strlen(text) >= (size_t)count, RG_MALFORMED,
             "%s: '%s' does not hold %" PRId64 " numbers", s->path, key, count);
    RG_TRY(rg_allocate_array((size_t)count, sizeof **numbers, numbers));
    return read_reals(s, key, text, count, *numbers);
}

/* Reads one entry from its text. */
static rg_status read_entry(const source *s, const struct entry *e, const char *text,
                            rg_run_state *c)
{
    void *at = (char *)c + e->offset;
    int64_t value = 0;
    switch (e->kind) {
    case TEXT:
        return rg_copy_text(text, at);
    case INTEGER:
        return read_integer(s, e, text, at);
    case CLASSES:
        RG_TRY(read_integer(s, e, text, &value));
        *(int32_t *)at = (int32_t)value;
        return RG_OK;
    case REAL:
        RG_CHECK(rg_number_parse(text, at) && isfinite(*(double *)at), RG_MALFORMED,
                 "%s: '%s' is '%.40s', not a number", s->path, e->key, text);
        return RG_OK;
    case DTYPE:
        RG_CHECK(rg_dtype_parse(text, at) == RG_OK && rg_dtype_is_data(*(rg_dtype *)at),
                 RG_MALFORMED, "%s: '%.20s' is not a floating-point dtype for a network", s->path,
                 text);
        return RG_OK;
    case CHANNELS:
        return read_reals(s, e->key, text, c->network.channels, at);
    case NAMES:
        return read_names(s, text, c);
    case COLUMNS:
        return read_columns(s, e->key, text, c->columns, at);
    }
    return RG_OK;
}

/* Of labels there are as many as classes; a class for each image, and values, have no other limit
 * than that the network returns as many. */
static rg_status check_targets(const source *s, const rg_network_desc *n)
{
    const int64_t targets = rg_network_targets(n);
    RG_CHECK(n->target != RG_TARGET_LABELS || targets == n->classes, RG_MALFORMED,
             "%s: the checkpoint has %" PRId64 " labels an image but %" PRId32 " classes", s->path,
             targets, n->classes);
    return RG_OK;
}

/* Counts that depend on each other. */
static rg_status check_counts(const source *s, const rg_run_state *c)
{
    RG_TRY(check_targets(s, &c->network));
    RG_CHECK(c->right <= c->images && c->images <= c->position, RG_MALFORMED,
             "%s: the checkpoint counts %" PRId64 " correct images of %" PRId64
             " at position %" PRId64,
             s->path, c->right, c->images, c->position);
    RG_CHECK(c->weight >= 0 && c->weight <= (double)c->images, RG_MALFORMED,
             "%s: the checkpoint has a weight of %g for %" PRId64 " images", s->path, c->weight,
             c->images);
    RG_CHECK((c->set_images == 0) == (c->set_hash == 0), RG_MALFORMED,
             "%s: one of 'set_images' and 'set_hash' is missing", s->path);
    RG_CHECK(c->steps <= c->batches, RG_MALFORMED,
             "%s: the checkpoint has %" PRId64 " steps, more than its %" PRId64 " batches", s->path,
             c->steps, c->batches);
    RG_CHECK(c->best_epoch <= c->epoch, RG_MALFORMED,
             "%s: the best epoch is %" PRId64 ", but the last complete epoch is %" PRId64, s->path,
             c->best_epoch, c->epoch);
    return RG_OK;
}

static rg_status check_columns(const source *s, const rg_run_state *c)
{
    if (c->columns == 0)
        return RG_OK;
    RG_CHECK(c->column_mean != NULL && c->column_deviation != NULL, RG_MALFORMED,
             "%s: 'column_mean' or 'column_deviation' is missing", s->path);
    RG_CHECK(c->columns == c->network.width && c->network.channels == 1, RG_MALFORMED,
             "%s: 'columns' is %" PRId64 ", but the images have %" PRId64 " of %" PRId64
             " channels",
             s->path, c->columns, c->network.width, c->network.channels);
    for (int64_t i = 0; i < c->columns; i++)
        RG_CHECK(c->column_deviation[i] > 0, RG_MALFORMED,
                 "%s: a standard deviation is not greater than 0", s->path);
    return RG_OK;
}

static rg_status read_texts(const source *s, rg_run_state *c)
{
    const char *text;
    RG_TRY(find_text(s, "format", &text));
    RG_CHECK(strcmp(text, format) == 0, RG_UNSUPPORTED,
             "%s: the checkpoint format '%.60s' is not supported", s->path, text);
    c->network.size = sizeof c->network;
    for (int counted = 0; counted < 2; counted++) {
        for (const struct entry *e = entries; e < entries + ENTRIES; e++) {
            if (is_counted(e) != counted ||
                (e->optional && rg_safetensors_metadata(s->file, e->key) == NULL))
                continue;
            RG_TRY(find_text(s, e->key, &text));
            RG_TRY(read_entry(s, e, text, c));
        }
    }
    c->network.has_loss =
        c->network.target == RG_TARGET_LABELS || c->network.target == RG_TARGET_VALUES;
    if (rg_safetensors_metadata(s->file, "weight") == NULL)
        c->weight = (double)c->images; /* as older versions counted */
    for (int64_t i = 0; i < c->network.channels; i++)
        RG_CHECK(c->deviation[i] > 0, RG_MALFORMED,
                 "%s: a standard deviation is not greater than 0", s->path);
    RG_TRY(check_columns(s, c));
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

void rg_run_state_normalize(const rg_run_state *s, rg_loader_desc *desc)
{
    memcpy(desc->mean, s->mean, sizeof desc->mean);
    memcpy(desc->deviation, s->deviation, sizeof desc->deviation);
    desc->columns = s->columns;
    desc->column_mean = s->column_mean;
    desc->column_deviation = s->column_deviation;
}

void rg_run_state_release(rg_run_state *c)
{
    const size_t classes = (size_t)c->network.classes;
    for (size_t i = 0; c->class_names != NULL && i < classes; i++)
        free(c->class_names[i]);
    rg_release(allocator, c->class_names, classes * sizeof *c->class_names);
    rg_release(allocator, c->column_mean, (size_t)c->columns * sizeof *c->column_mean);
    rg_release(allocator, c->column_deviation, (size_t)c->columns * sizeof *c->column_deviation);
    free(c->model_name);
    free(c->model);
    free(c->options);
    *c = (rg_run_state){ 0 };
}
