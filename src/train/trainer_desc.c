/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* How to train: defaults, checks, the rate of a step, and as text in a checkpoint, where
 * `retrograde train` keeps its options under the same names. */
#include "train/trainer.h"

#include "core/dtype.h"
#include "core/memory.h"
#include "core/number.h"
#include "train/patterns.h"

#include <retrograde/schedule.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const optimizers[] = { "sgd", "rmsprop", "adam", NULL };
static const char *const schedules[] = { "constant", "step", "cosine", NULL };
static const char *const normalizations[] = { "data", "none", "imagenet", NULL };
static const char *const loss_names[] = { NULL }; /* which have a table of their own */

static const struct {
    const char *name;
    rg_loss_kind kind;
} losses[] = {
    { "softmax_cross_entropy", RG_LOSS_SOFTMAX_CROSS_ENTROPY },
    { "sigmoid_cross_entropy", RG_LOSS_SIGMOID_CROSS_ENTROPY },
    { "mean_squared", RG_LOSS_MEAN_SQUARED },
    { "mean_absolute", RG_LOSS_MEAN_ABSOLUTE },
    { "huber", RG_LOSS_HUBER },
    { "hinge", RG_LOSS_HINGE },
};
enum { LOSSES = sizeof losses / sizeof losses[0] };

rg_status rg_training_loss_parse(const char *name, rg_loss_kind *loss)
{
    RG_CHECK_NOT_NULL(name);
    RG_CHECK_NOT_NULL(loss);
    for (int i = 0; i < LOSSES; i++) {
        if (strcmp(losses[i].name, name) == 0) {
            *loss = losses[i].kind;
            return RG_OK;
        }
    }
    return rg_fail(RG_INVALID_ARGUMENT,
                   "loss must be softmax_cross_entropy, sigmoid_cross_entropy, mean_squared, "
                   "mean_absolute, huber or hinge, not '%s'",
                   name);
}

static const char *loss_name(const rg_trainer_desc *desc)
{
    int i = 0;
    while (i < LOSSES - 1 && losses[i].kind != desc->loss)
        i++;
    return desc->has_loss ? losses[i].name : "auto";
}

rg_trainer_desc rg_trainer_desc_default(void)
{
    return (rg_trainer_desc){ .size = sizeof(rg_trainer_desc),
                              .dtype = RG_F32,
                              .optimizer = RG_OPTIMIZER_ADAM,
                              .schedule = RG_SCHEDULE_COSINE,
                              .momentum = 0.9,
                              .drop = 0.5,
                              .drop_every = 2,
                              .epochs = 6,
                              .batch = 64,
                              .accumulate = 1,
                              .seed = 1,
                              .micro_batches = 1 };
}

/* ---- the fields ---- */

typedef enum kind { COUNT, REAL, FLAG, NAME, TEXT, HEAD } kind;

static const struct field {
    const char *name;
    kind kind;
    size_t offset;
    double low, high;         /* of numbers */
    const char *const *names; /* of an enum; NULL: that of a dtype */
} fields[] = {
    { "dtype", NAME, offsetof(rg_trainer_desc, dtype), 0, 0, NULL },
    { "epochs", COUNT, offsetof(rg_trainer_desc, epochs), 1, 1000000, NULL },
    { "batch", COUNT, offsetof(rg_trainer_desc, batch), 1, 1 << 20, NULL },
    { "accumulate", COUNT, offsetof(rg_trainer_desc, accumulate), 1, 1 << 20, NULL },
    { "micro-batches", COUNT, offsetof(rg_trainer_desc, micro_batches), 1, 1 << 20, NULL },
    { "fast", FLAG, offsetof(rg_trainer_desc, fast), 0, 1, NULL },
    { "sync-batch-norm", FLAG, offsetof(rg_trainer_desc, sync_batch_norm), 0, 1, NULL },
    { "optimizer", NAME, offsetof(rg_trainer_desc, optimizer), 0, 0, optimizers },
    { "rate", REAL, offsetof(rg_trainer_desc, rate), 0, INFINITY, NULL },
    { "momentum", REAL, offsetof(rg_trainer_desc, momentum), 0, 1, NULL },
    { "decay", REAL, offsetof(rg_trainer_desc, decay), 0, INFINITY, NULL },
    { "schedule", NAME, offsetof(rg_trainer_desc, schedule), 0, 0, schedules },
    { "loss", NAME, offsetof(rg_trainer_desc, loss), 0, 0, loss_names },
    { "warmup", COUNT, offsetof(rg_trainer_desc, warmup), 0, 0x1p62, NULL },
    { "drop", REAL, offsetof(rg_trainer_desc, drop), 0, INFINITY, NULL },
    { "drop-every", COUNT, offsetof(rg_trainer_desc, drop_every), 1, 1000000, NULL },
    { "shift", COUNT, offsetof(rg_trainer_desc, shift), 0, 1024, NULL },
    { "crop", COUNT, offsetof(rg_trainer_desc, crop), 0, 1024, NULL },
    { "mirror", FLAG, offsetof(rg_trainer_desc, mirror), 0, 1, NULL },
    { "seed", COUNT, offsetof(rg_trainer_desc, seed), 0, 0x1p63, NULL },
    { "normalize", NAME, offsetof(rg_trainer_desc, normalize), 0, 0, normalizations },
    { "head", HEAD, offsetof(rg_trainer_desc, head), 0, 0, NULL },
    { "freeze", TEXT, offsetof(rg_trainer_desc, freeze), 0, 0, NULL },
    { "rates", TEXT, offsetof(rg_trainer_desc, rates), 0, 0, NULL },
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

static int find_name(const char *const names[], const char *name)
{
    int i = 0;
    while (names[i] != NULL && strcmp(names[i], name) != 0)
        i++;
    return names[i] != NULL ? i : -1;
}

rg_status rg_optimizer_parse(const char *name, rg_optimizer_kind *optimizer)
{
    RG_CHECK_NOT_NULL(name);
    RG_CHECK_NOT_NULL(optimizer);
    const int found = find_name(optimizers, name);
    RG_CHECK(found >= 0, RG_INVALID_ARGUMENT, "optimizer must be sgd, rmsprop or adam, not '%s'",
             name);
    *optimizer = (rg_optimizer_kind)found;
    return RG_OK;
}

rg_status rg_schedule_parse(const char *name, rg_schedule_kind *schedule)
{
    RG_CHECK_NOT_NULL(name);
    RG_CHECK_NOT_NULL(schedule);
    const int found = find_name(schedules, name);
    RG_CHECK(found >= 0, RG_INVALID_ARGUMENT, "schedule must be constant, step or cosine, not '%s'",
             name);
    *schedule = (rg_schedule_kind)found;
    return RG_OK;
}

rg_status rg_normalize_parse(const char *name, rg_normalize_kind *normalize)
{
    RG_CHECK_NOT_NULL(name);
    RG_CHECK_NOT_NULL(normalize);
    const int found = find_name(normalizations, name);
    RG_CHECK(found >= 0, RG_INVALID_ARGUMENT, "normalize must be data, none or imagenet, not '%s'",
             name);
    *normalize = (rg_normalize_kind)found;
    return RG_OK;
}

/* ---- checks ---- */

static rg_status check_tuning(const rg_trainer_desc *desc)
{
    RG_CHECK((unsigned)desc->normalize <= RG_NORMALIZE_IMAGENET, RG_INVALID_ARGUMENT,
             "normalize is %d, which is not one of its values", (int)desc->normalize);
    RG_CHECK(desc->head >= RG_HEAD_AUTO && desc->head <= RG_DATASET_CLASSES, RG_INVALID_ARGUMENT,
             "head must be auto or between 1 and %d, not %" PRId64, RG_DATASET_CLASSES, desc->head);
    RG_CHECK(memchr(desc->freeze, 0, sizeof desc->freeze) != NULL &&
                 memchr(desc->rates, 0, sizeof desc->rates) != NULL,
             RG_INVALID_ARGUMENT, "freeze and rates must end with 0");
    RG_TRY(rg_patterns_check("freeze", desc->freeze));
    return rg_rates_check(desc->rates);
}

/* A number of either kind. The bounds of counts are doubles, which hold them exactly. */
static rg_status check_number(const struct field *f, const void *at)
{
    if (f->kind == COUNT) {
        int64_t value;
        memcpy(&value, at, sizeof value);
        RG_CHECK((double)value >= f->low && (double)value <= f->high, RG_INVALID_ARGUMENT,
                 "%s must be between %.0f and %.0f, not %" PRId64, f->name, f->low, f->high, value);
    } else if (f->kind == REAL) {
        double value;
        memcpy(&value, at, sizeof value);
        RG_CHECK(value >= f->low && isfinite(value), RG_INVALID_ARGUMENT,
                 "%s must be finite and at least %g, not %g", f->name, f->low,
                 isnan(value) ? (double)NAN : value);
        RG_CHECK(value < f->high, RG_INVALID_ARGUMENT, "%s must be less than %g, not %g", f->name,
                 f->high, value);
    }
    return RG_OK;
}

rg_status rg_trainer_desc_check(const rg_trainer_desc *desc)
{
    RG_CHECK_NOT_NULL(desc);
    RG_CHECK(rg_dtype_is_data(desc->dtype), RG_INVALID_ARGUMENT,
             "dtype must be f32, f64, bf16 or f16, not %s", rg_dtype_name(desc->dtype));
    RG_CHECK((unsigned)desc->optimizer <= RG_OPTIMIZER_ADAM, RG_INVALID_ARGUMENT,
             "optimizer is %d, which is not one of its values", (int)desc->optimizer);
    RG_CHECK((unsigned)desc->schedule <= RG_SCHEDULE_COSINE, RG_INVALID_ARGUMENT,
             "schedule is %d, which is not one of its values", (int)desc->schedule);
    RG_TRY(check_tuning(desc));
    for (size_t i = 0; i < FIELDS; i++)
        RG_TRY(check_number(&fields[i], (const char *)desc + fields[i].offset));
    RG_CHECK((desc->micro_batches & (desc->micro_batches - 1)) == 0, RG_INVALID_ARGUMENT,
             "micro-batches must be a power of two, not %" PRId64, desc->micro_batches);
    RG_CHECK(desc->micro_batches <= desc->batch, RG_INVALID_ARGUMENT,
             "micro-batches must be at most batch, %" PRId64 ", not %" PRId64, desc->batch,
             desc->micro_batches);
    RG_CHECK(desc->micro_batches >= rg_group_size(desc->group), RG_INVALID_ARGUMENT,
             "micro-batches must be at least the number of ranks, %d, not %" PRId64,
             rg_group_size(desc->group), desc->micro_batches);
    RG_CHECK(desc->workers >= 0 && desc->workers <= 64, RG_INVALID_ARGUMENT,
             "workers must be between 0 and 64, not %" PRId64, desc->workers);
    return RG_OK;
}

rg_status rg_trainer_desc_copy(const char *who, const rg_trainer_desc *desc,
                               rg_trainer_desc *checked)
{
    RG_CHECK(desc != NULL, RG_INVALID_ARGUMENT, "%s: desc is NULL", who);
    RG_CHECK(desc->size > sizeof desc->size && desc->size <= sizeof *desc, RG_INVALID_ARGUMENT,
             "%s: size is %u; start from rg_trainer_desc_default()", who, desc->size);
    *checked = rg_trainer_desc_default();
    memcpy(checked, desc, desc->size);
    checked->size = sizeof *checked;
    const rg_status status = rg_trainer_desc_check(checked);
    if (status != RG_OK)
        rg_error_prefix("%s: ", who);
    return status;
}

/* ---- the rate ---- */

double rg_trainer_desc_base_rate(const rg_trainer_desc *desc)
{
    if (desc == NULL)
        return 0;
    if (desc->rate > 0)
        return desc->rate;
    return desc->optimizer == RG_OPTIMIZER_SGD ? 0.05 : 0.001;
}

double rg_trainer_desc_rate(const rg_trainer_desc *desc, int64_t step, int64_t steps)
{
    const double rate = rg_trainer_desc_base_rate(desc);
    const int64_t epoch = steps / desc->epochs;
    double now = rate;
    if (desc->schedule == RG_SCHEDULE_COSINE)
        now = rg_rate_cosine(rate, 0, steps, step);
    else if (desc->schedule == RG_SCHEDULE_STEP)
        now = rg_rate_step(rate, desc->drop, desc->drop_every * (epoch > 0 ? epoch : 1), step);
    return rg_rate_warmup(now, desc->warmup, step);
}

/* ---- as text ---- */

static const char *name_of(const struct field *f, const rg_trainer_desc *desc)
{
    if (f->names == NULL)
        return rg_dtype_name(desc->dtype);
    if (f->names == loss_names)
        return loss_name(desc);
    if (f->names == normalizations)
        return normalizations[desc->normalize];
    return f->names == optimizers ? optimizers[desc->optimizer] : schedules[desc->schedule];
}

static void value_text(const struct field *f, const rg_trainer_desc *desc, char *text, size_t size)
{
    const char *at = (const char *)desc + f->offset;
    int64_t count = 0;
    double real = 0;
    switch (f->kind) {
    case COUNT:
        memcpy(&count, at, sizeof count);
        snprintf(text, size, "%" PRId64, count);
        break;
    case REAL:
        memcpy(&real, at, sizeof real);
        rg_number_text(real, text, size);
        break;
    case FLAG:
        snprintf(text, size, "%d", *(const bool *)at);
        break;
    case NAME:
        snprintf(text, size, "%s", name_of(f, desc));
        break;
    case TEXT:
        snprintf(text, size, "%s", at);
        break;
    case HEAD:
        text[0] = 0;
        if (desc->head > 0)
            snprintf(text, size, "%" PRId64, desc->head);
        else if (desc->head == RG_HEAD_AUTO)
            snprintf(text, size, "auto");
        break;
    }
}

rg_status rg_trainer_desc_text(const rg_trainer_desc *desc, char **text)
{
    enum { SIZE = FIELDS * 64 + 2 * RG_TRAINER_TEXT };
    char *const made = calloc(1, SIZE);
    RG_CHECK(made != NULL, RG_OUT_OF_MEMORY, "out of memory for a checkpoint");
    size_t used = 0;
    for (size_t i = 0; i < FIELDS; i++) {
        char value[RG_TRAINER_TEXT];
        value_text(&fields[i], desc, value, sizeof value);
        used += (size_t)snprintf(made + used, SIZE - used, "%s=%s\n", fields[i].name, value);
    }
    *text = made;
    return RG_OK;
}

static bool set_name(const struct field *f, const char *value, rg_trainer_desc *desc)
{
    if (f->names == NULL)
        return rg_dtype_parse(value, &desc->dtype) == RG_OK;
    if (f->names == loss_names) {
        desc->has_loss = strcmp(value, "auto") != 0;
        return !desc->has_loss || rg_training_loss_parse(value, &desc->loss) == RG_OK;
    }
    if (f->names == normalizations)
        return rg_normalize_parse(value, &desc->normalize) == RG_OK;
    return f->names == optimizers ? rg_optimizer_parse(value, &desc->optimizer) == RG_OK
                                  : rg_schedule_parse(value, &desc->schedule) == RG_OK;
}

static bool set_value(const struct field *f, const char *value, rg_trainer_desc *desc)
{
    char *const at = (char *)desc + f->offset, *end;
    double real;
    if (f->kind == NAME)
        return set_name(f, value, desc);
    if (f->kind == TEXT) {
        snprintf(at, RG_TRAINER_TEXT, "%s", value);
        return true;
    }
    if (f->kind == HEAD && (value[0] == 0 || strcmp(value, "auto") == 0)) {
        desc->head = value[0] == 0 ? 0 : RG_HEAD_AUTO;
        return true;
    }
    if (f->kind == REAL) {
        const bool parsed = rg_number_parse(value, &real);
        if (parsed)
            memcpy(at, &real, sizeof real);
        return parsed;
    }
    errno = 0;
    const int64_t count = strtoll(value, &end, 10);
    if (f->kind == FLAG)
        *(bool *)at = count != 0;
    else
        memcpy(at, &count, sizeof count);
    return errno == 0 && end != value && *end == 0;
}

/* One line; names that are not fields of a trainer belong to the caller. */
static rg_status read_line(const char *line, size_t length, rg_trainer_desc *desc)
{
    for (size_t i = 0; i < FIELDS; i++) {
        const struct field *f = &fields[i];
        const size_t name = strlen(f->name);
        char value[RG_TRAINER_TEXT];
        if (length <= name || memcmp(line, f->name, name) != 0 || line[name] != '=')
            continue;
        const size_t given = length - name - 1;
        snprintf(value, sizeof value, "%.*s", (int)(given < sizeof value ? given : 40),
                 line + name + 1);
        RG_CHECK(given < sizeof value && set_value(f, value, desc), RG_MALFORMED,
                 "its option %s is '%.40s'", f->name, value);
    }
    return RG_OK;
}

rg_status rg_trainer_desc_read(const char *text, rg_trainer_desc *desc)
{
    *desc = rg_trainer_desc_default();
    while (*text != 0) {
        const size_t length = strcspn(text, "\n");
        RG_TRY(read_line(text, length, desc));
        text += length + (text[length] == '\n');
    }
    const rg_status status = rg_trainer_desc_check(desc);
    if (status != RG_OK)
        rg_error_prefix("its option ");
    return status == RG_INVALID_ARGUMENT ? RG_MALFORMED : status;
}
