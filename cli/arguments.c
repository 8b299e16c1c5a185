/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reading options. */
#include "cli/arguments.h"

#include "operators/onnx_node.h"

#include <retrograde/device.h>

#include <errno.h>
#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int take_known(const rg_option *option, const char *value)
{
    if (option->type == RG_OPTION_FLAG) {
        *(bool *)option->value = true;
        return 0;
    }
    if (value == NULL) {
        fprintf(stderr, "retrograde: --%s needs a value\n", option->name);
        return -1;
    }
    if (option->type == RG_OPTION_TEXT) {
        *(const char **)option->value = value;
        return 1;
    }
    char *end;
    errno = 0;
    if (option->type == RG_OPTION_REAL) {
        *(double *)option->value = strtod(value, &end);
        if (end != value && *end == 0 && *(double *)option->value >= 0 &&
            *(double *)option->value <= DBL_MAX)
            return 1;
        fprintf(stderr, "retrograde: --%s must be a number of at least 0, not '%s'\n", option->name,
                value);
        return -1;
    }
    const long long number = strtoll(value, &end, 10);
    if (end == value || *end != 0 || errno != 0 || number < 0) {
        const bool is_large = end != value && *end == 0 && errno == ERANGE && number > 0;
        fprintf(stderr, "retrograde: --%s must be a whole number of at %s, not '%s'\n",
                option->name, is_large ? "most 9223372036854775807" : "least 0", value);
        return -1;
    }
    *(int64_t *)option->value = number;
    return 1;
}

static const rg_option *find_option(const rg_option *options, const char *name)
{
    for (const rg_option *option = options; option->name != NULL; option++) {
        if (strcmp(option->name, name) == 0)
            return option;
    }
    return NULL;
}

/* Options under the names that they had in version 0.1, which still work. */
static const rg_option *find_renamed(const rg_option *options, const char *name)
{
    static const char *const renamed[][2] = { { "rung", "isa" } };
    for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++) {
        const rg_option *option = find_option(options, renamed[i][1]);
        if (option == NULL || strcmp(name, renamed[i][0]) != 0)
            continue;
        fprintf(stderr, "retrograde: --%s is deprecated, use --%s\n", name, option->name);
        return option;
    }
    return NULL;
}

static int take_one(const rg_option *options, const char *name, const char *value,
                    int (*unknown)(void *, const char *, const char *), void *context)
{
    const rg_option *option = find_option(options, name);
    if (option == NULL)
        option = find_renamed(options, name);
    if (option != NULL)
        return take_known(option, value);
    if (unknown != NULL)
        return unknown(context, name, value);
    char text[RG_SIMILAR_TEXT];
    rg_similar similar = rg_similar_begin(name);
    for (option = options; option->name != NULL; option++)
        rg_similar_try(&similar, option->name);
    fprintf(stderr, "retrograde: unknown option --%s%s%s\n", name, rg_similar_text(&similar, text),
            text[0] == 0 ? "; see --help" : "");
    return -1;
}

const char *rg_did_you_mean(const char *wanted, const char *(*name)(int32_t index),
                            char text[RG_DID_YOU_MEAN])
{
    rg_similar similar = rg_similar_begin(wanted);
    for (int32_t i = 0; name(i) != NULL; i++)
        rg_similar_try(&similar, name(i));
    _Static_assert((int)RG_DID_YOU_MEAN >= (int)RG_SIMILAR_TEXT, "texts must fit");
    return rg_similar_text(&similar, text);
}

void (*rg_options_show)(const rg_option *options);

int rg_options_take(const rg_option *options, int argc, char **argv,
                    int (*unknown)(void *context, const char *name, const char *value),
                    void *context)
{
    int left = 0;
    if (rg_options_show != NULL) {
        rg_options_show(options);
        return -1;
    }
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            while (++i < argc)
                argv[left++] = argv[i];
            break;
        }
        if (strcmp(argv[i], "-h") == 0 && find_option(options, "help") != NULL) {
            *(bool *)find_option(options, "help")->value = true;
            continue;
        }
        if (strncmp(argv[i], "--", 2) != 0) {
            argv[left++] = argv[i];
            continue;
        }
        char name[64];
        const char *inside = strchr(argv[i], '='); /* --name=value */
        const size_t length = inside != NULL ? (size_t)(inside - argv[i]) - 2 : strlen(argv[i]) - 2;
        snprintf(name, sizeof name, "%.*s", (int)length, argv[i] + 2);
        const bool has_next = i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0;
        const char *value = inside != NULL ? inside + 1 : has_next ? argv[i + 1] : NULL;
        const int taken = take_one(options, name, value, unknown, context);
        if (taken < 0)
            return -1;
        if (taken == 0 && inside != NULL) {
            fprintf(stderr, "retrograde: --%s takes no value\n", name);
            return -1;
        }
        i += taken > 0 && inside == NULL;
    }
    return left;
}

void rg_options_help(const rg_option *options)
{
    for (; options->name != NULL; options++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", options->name, options->argument != NULL ? " " : "",
                 options->argument != NULL ? options->argument : "");
        printf("  %-22s %s\n", left, options->text);
    }
}

int rg_wrong(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fprintf(stderr, "retrograde: ");
    vfprintf(stderr, format, values);
    fprintf(stderr, "\n");
    va_end(values);
    return 2;
}

int rg_threads_check(int64_t threads)
{
    return threads <= RG_MOST_THREADS ? 0
                                      : rg_wrong("--threads must be between 0 and %d, not %lld",
                                                 RG_MOST_THREADS, (long long)threads);
}

int rg_isa_check(const char *isa)
{
    bool known = isa == NULL;
    for (int32_t i = 0; rg_device_isa_list(i) != NULL && !known; i++)
        known = strcmp(rg_device_isa_list(i), isa) == 0;
    return known ? 0 : rg_wrong("this machine does not support the instruction set '%s'", isa);
}

/* The last sentence of the program; "": that of the library counts. */
static char own_failure[1024];
static bool is_usage; /* whether it is about the arguments */

rg_status rg_usage_status(rg_status status)
{
    is_usage = status == RG_INVALID_ARGUMENT;
    return status;
}

rg_status rg_fails(rg_status status, const char *format, ...)
{
    char text[sizeof own_failure]; /* as the values may hold the sentence before */
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    memcpy(own_failure, text, sizeof text);
    return status;
}

const char *rg_failure(void)
{
    return own_failure[0] != 0 ? own_failure : rg_error_text();
}

int rg_failed(void)
{
    fprintf(stderr, "retrograde: %s\n", rg_failure());
    own_failure[0] = 0;
    return is_usage ? 2 : 1;
}
