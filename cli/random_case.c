/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random trials as text. */
#include "cli/random_case.h"
#include "core/dtype.h"

#include <stdarg.h>
#include <stdlib.h>

static const char *const form_names[] = { "state",       "gradient",  "alone",     "add",  "alias",
                                          "differences", "hint",      "copy",      "json", "batch",
                                          "alloc",       "temporary", "interleave" };
static const char *const kind_names[RG_RANDOM_KINDS] = { "compute", "refuse" };
enum { FORMS = sizeof form_names / sizeof form_names[0] };

/* ---- writing ---- */

typedef struct writer {
    char *text;
    size_t capacity, length;
} writer;

__attribute__((format(printf, 2, 3))) static void say(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int added = vsnprintf(w->text + w->length, w->capacity - w->length, format, arguments);
    va_end(arguments);
    w->length += added > 0 ? (size_t)added : 0;
    if (w->length >= w->capacity)
        w->length = w->capacity - 1;
}

/* Ends after the last number that is not 0. */
static void say_fill(writer *w, const rg_fill *fill)
{
    const double numbers[] = { fill->low,    fill->high,    fill->step,
                               fill->spread, fill->special, (double)fill->repeat };
    int count = 6;
    while (count > 1 && numbers[count - 1] == 0)
        count--;
    for (int i = 0; i < count; i++)
        say(w, "%s%.17g", i > 0 ? ":" : "", numbers[i]);
}

void rg_random_text(const rg_random_case *c, char text[RG_RANDOM_TEXT])
{
    writer w = { text, RG_RANDOM_TEXT, 0 };
    text[0] = 0;
    if (c->kind != RG_RANDOM_COMPUTE)
        say(&w, "kind=%s; ", kind_names[c->kind]);
    say(&w, "dtype=%s; x=%s", rg_dtype_name(c->dtype), c->shapes);
    if (c->fields[0] != 0)
        say(&w, "; fields=%s", c->fields);
    say(&w, "; fill=");
    int inputs = c->shapes[0] != 0;
    for (const char *at = c->shapes; *at != 0; at++)
        inputs += *at == ' ';
    for (int i = 0; i < inputs; i++) {
        say(&w, "%s", i > 0 ? " " : "");
        say_fill(&w, &c->x_fill[i]);
    }
    say(&w, "; dy=");
    say_fill(&w, &c->dy_fill);
    if (c->flags != 0 || c->faults)
        say(&w, "; flags=%u:%d", c->flags, c->faults);
    say(&w, "; seed=%llu", (unsigned long long)c->seed);
    if (c->views.seed != 0)
        say(&w, "; views=%llu:%u", (unsigned long long)c->views.seed, c->views.mask);
    if (c->isa[0] != 0)
        say(&w, "; isa=%s", c->isa);
    if (c->strategy[0] != 0)
        say(&w, "; strategy=%s", c->strategy);
    if (c->threads > 0)
        say(&w, "; threads=%d", c->threads);
    if (c->forms != 0)
        say(&w, "; forms=");
    for (int i = 0, any = 0; i < FORMS; i++) {
        if (c->forms >> i & 1)
            say(&w, "%s%s", any++ ? "," : "", form_names[i]);
    }
}

typedef struct brief {
    writer w;
    const rg_fields *fields;
    char *defaults; /* "name=value name=value" with blanks around */
} brief;

static void say_field(void *context, const char *name, const rg_field *field, const char *value)
{
    (void)field;
    brief *b = context;
    char pair[512];
    snprintf(pair, sizeof pair, " %s=%s ", name, value);
    if (strstr(b->defaults, pair) == NULL)
        say(&b->w, "%s%s=%s", b->w.length > 0 ? " " : "", name, value);
}

void rg_random_fields(const rg_op *op, const void *desc, char *text, size_t capacity)
{
    char defaults[2048] = " ";
    brief b = { { text, capacity, 0 }, &op->desc, defaults };
    text[0] = 0;
    rg_fields_text(&op->desc, op->desc.defaults, defaults + 1, sizeof defaults - 2);
    strcat(defaults, " ");
    rg_fields_each(&op->desc, desc, say_field, &b);
}

void rg_random_shapes(const rg_tensor_desc x[], int32_t inputs, rg_dtype dtype, char *text,
                      size_t capacity)
{
    writer w = { text, capacity, 0 };
    text[0] = 0;
    for (int32_t i = 0; i < inputs; i++) {
        say(&w, "%s", i > 0 ? " " : "");
        if (x[i].dtype != dtype)
            say(&w, "%s:", rg_dtype_name(x[i].dtype));
        for (int32_t d = 0; d < x[i].rank; d++)
            say(&w, "%s%lld", d > 0 ? "," : "", (long long)x[i].dims[d]);
        if (x[i].rank == 0)
            say(&w, "-");
    }
}

/* ---- reading ---- */

static const char *parse_fill(const char *at, rg_fill *fill)
{
    double numbers[6] = { 0 };
    for (int i = 0; i < 6; i++) {
        char *end;
        numbers[i] = strtod(at, &end);
        at = end;
        if (*at != ':')
            break;
        at++;
    }
    *fill = (rg_fill){ .low = numbers[0],
                       .high = numbers[1],
                       .step = numbers[2],
                       .spread = numbers[3],
                       .special = numbers[4],
                       .repeat = (uint32_t)numbers[5] };
    return at + strspn(at, " ");
}

static rg_status parse_forms(const char *value, uint32_t *forms)
{
    while (*value != 0) {
        const size_t length = strcspn(value, ",");
        int found = -1;
        for (int i = 0; i < FORMS; i++) {
            if (strlen(form_names[i]) == length && memcmp(form_names[i], value, length) == 0)
                found = i;
        }
        RG_CHECK(found >= 0, RG_INVALID_ARGUMENT, "unknown form '%.*s' in a random case",
                 (int)length, value);
        *forms |= 1u << found;
        value += length + (value[length] == ',');
    }
    return RG_OK;
}

static rg_status parse_pair(rg_random_case *c, const char *key, const char *value)
{
    unsigned long long seed;
    unsigned mask;
    int faults;
    if (strcmp(key, "dtype") == 0)
        return rg_dtype_parse(value, &c->dtype);
    if (strcmp(key, "forms") == 0)
        return parse_forms(value, &c->forms);
    if (strcmp(key, "kind") == 0) {
        c->kind =
            strcmp(value, kind_names[RG_RANDOM_REFUSE]) == 0 ? RG_RANDOM_REFUSE : RG_RANDOM_COMPUTE;
    } else if (strcmp(key, "x") == 0) {
        snprintf(c->shapes, sizeof c->shapes, "%s", value);
    } else if (strcmp(key, "fields") == 0) {
        snprintf(c->fields, sizeof c->fields, "%s", value);
    } else if (strcmp(key, "fill") == 0) {
        for (int i = 0; i < RG_MAX_INPUTS && *value != 0; i++)
            value = parse_fill(value, &c->x_fill[i]);
    } else if (strcmp(key, "dy") == 0) {
        parse_fill(value, &c->dy_fill);
    } else if (strcmp(key, "flags") == 0 && sscanf(value, "%u:%d", &c->flags, &faults) == 2) {
        c->faults = faults != 0;
    } else if (strcmp(key, "seed") == 0) {
        c->seed = strtoull(value, NULL, 10);
    } else if (strcmp(key, "views") == 0 && sscanf(value, "%llu:%u", &seed, &mask) == 2) {
        c->views = (rg_views){ seed, mask };
    } else if (strcmp(key, "isa") == 0) {
        snprintf(c->isa, sizeof c->isa, "%s", value);
    } else if (strcmp(key, "strategy") == 0) {
        snprintf(c->strategy, sizeof c->strategy, "%s", value);
    } else if (strcmp(key, "threads") == 0) {
        c->threads = atoi(value);
    } else {
        return rg_fail(RG_INVALID_ARGUMENT, "a random case has no entry '%s=%s'", key, value);
    }
    return RG_OK;
}

rg_status rg_random_parse(const rg_op_test *test, const char *text, rg_random_case *c)
{
    *c = (rg_random_case){ .test = test, .dtype = RG_F32 };
    while (*text != 0) {
        char part[RG_RANDOM_TEXT];
        const size_t length = strcspn(text, ";");
        snprintf(part, sizeof part, "%.*s", (int)length, text);
        char *value = strchr(part, '=');
        RG_CHECK(value != NULL, RG_INVALID_ARGUMENT, "'%s' is not of the form name=value", part);
        *value++ = 0;
        RG_TRY(parse_pair(c, part, value));
        text += length + strspn(text + length, "; ");
    }
    RG_CHECK(c->shapes[0] != 0, RG_INVALID_ARGUMENT, "a random case needs x=");
    return RG_OK;
}
