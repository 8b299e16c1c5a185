/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde info`: version, devices, instruction sets, threads, build. */
#include "cli/arguments.h"
#include "cli/cli.h"

#include <retrograde/device.h>

#include <stdio.h>
#include <string.h>

/* How the program was built; the values come from the build. */
static const struct {
    const char *name, *value;
} build[] = {
    { "compiler", RG_INFO_COMPILER },     { "type", RG_INFO_TYPE },
    { "files", RG_INFO_FILES },           { "peers", RG_INFO_PEERS },
    { "sanitizers", RG_INFO_SANITIZERS },
};
enum { BUILD_LINES = sizeof build / sizeof build[0] };

/* Why there is no GPU: the sentence of the attempt to open one, or NULL. */
static const char *missing_cuda(void)
{
    rg_device *device;
    if (rg_device_create("cuda", NULL, &device) != RG_OK)
        return rg_error_text();
    rg_device_destroy(device);
    return NULL;
}

static void print_text(const rg_device *cpu)
{
    char name[32];
    printf("retrograde %s\n\n%-14s", rg_version(), "devices");
    for (int32_t i = 0; rg_device_list(i, name, sizeof name) == RG_OK; i++)
        printf("%s%s", i > 0 ? ", " : "", name);
    printf("\n");
    const char *missing = missing_cuda();
    if (missing != NULL)
        printf("%-14s%s\n", "cuda", missing);
    printf("%-14s", "rungs");
    for (int32_t i = 0; rg_device_rung_list(i) != NULL; i++)
        printf("%s%s", i > 0 ? ", " : "", rg_device_rung_list(i));
    printf("; %s in use\n", rg_device_rung(cpu));
    printf("%-14s%d\n\nbuild\n", "threads", rg_device_threads(cpu));
    for (int i = 0; i < BUILD_LINES; i++)
        printf("  %-12s%s\n", build[i].name, build[i].value);
}

static void print_json(const rg_device *cpu)
{
    char name[32];
    printf("{\"version\": \"%s\", \"devices\": [", rg_version());
    for (int32_t i = 0; rg_device_list(i, name, sizeof name) == RG_OK; i++)
        printf("%s\"%s\"", i > 0 ? ", " : "", name);
    printf("], \"cuda\": %s, \"rungs\": [", missing_cuda() == NULL ? "true" : "false");
    for (int32_t i = 0; rg_device_rung_list(i) != NULL; i++)
        printf("%s\"%s\"", i > 0 ? ", " : "", rg_device_rung_list(i));
    printf("], \"rung\": \"%s\", \"threads\": %d, \"build\": {", rg_device_rung(cpu),
           rg_device_threads(cpu));
    for (int i = 0; i < BUILD_LINES; i++)
        printf("%s\"%s\": \"%s\"", i > 0 ? ", " : "", build[i].name, build[i].value);
    printf("}}\n");
}

int rg_cmd_info(int argc, char **argv)
{
    bool json = false, help = false;
    const rg_option options[] = {
        { "json", RG_OPTION_FLAG, &json, NULL, "one object" },
        { "help", RG_OPTION_FLAG, &help, NULL, "this text" },
        { .name = NULL },
    };
    const int left = rg_options_take(options, argc, argv, NULL, NULL);
    if (left < 0)
        return 2;
    if (left > 0)
        return rg_wrong("info takes no '%s'", argv[0]);
    if (help) {
        printf("usage: retrograde info\n\nVersion, devices, instruction sets, threads, build.\n\n");
        rg_options_help(options);
        return 0;
    }
    rg_device *cpu;
    if (rg_device_create("cpu", NULL, &cpu) != RG_OK)
        return rg_failed();
    if (json)
        print_json(cpu);
    else
        print_text(cpu);
    rg_device_destroy(cpu);
    return 0;
}
