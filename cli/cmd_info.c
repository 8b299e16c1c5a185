/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde info`: version, devices, instruction sets, threads, build. */
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/peer_api.h"
#include "cli/print_json.h"

#include <retrograde/device.h>

#include <stdio.h>
#include <string.h>

static char peers[128]; /* filled by the command */

/* How the program was built; the values come from the build. */
static const struct {
    const char *name, *value;
} build[] = {
    { "compiler", RG_INFO_COMPILER },
    { "type", RG_INFO_TYPE },
    { "files", RG_INFO_FILES },
    { "images", RG_INFO_IMAGES },
    { "peers", peers },
    { "sanitizers", RG_INFO_SANITIZERS },
    { "cuda", RG_INFO_CUDA },
};
enum { BUILD_LINES = sizeof build / sizeof build[0] };

enum { NAME = 32, LINE = 1024 };

/* The description of a device, or why it cannot be opened; returns whether it can. */
static bool describe(const char *name, char line[LINE])
{
    rg_device *device;
    if (rg_device_create(name, NULL, &device) != RG_OK) {
        snprintf(line, LINE, "%s", rg_error_text());
        return false;
    }
    rg_device_describe(device, line, LINE);
    rg_device_destroy(device);
    return true;
}

/* Every device that was found; then, where there is none, why there is no GPU. */
static void print_devices(void)
{
    char name[NAME], line[LINE];
    bool has_gpu = false;
    printf("devices\n");
    for (int32_t i = 0; rg_device_list(i, name, sizeof name) == RG_OK; i++) {
        describe(name, line);
        printf("  %-12s%s\n", name, line);
        has_gpu |= strncmp(name, "cuda", 4) == 0;
    }
    if (!has_gpu && !describe("cuda", line))
        printf("  %-12s%s\n", "cuda", line);
}

static void print_text(const rg_device *cpu)
{
    printf("retrograde %s\n\n", rg_version());
    print_devices();
    printf("\n%-14s", "ISAs");
    for (int32_t i = 0; rg_device_isa_list(i) != NULL; i++)
        printf("%s%s", i > 0 ? ", " : "", rg_device_isa_list(i));
    printf("; %s in use\n", rg_device_isa(cpu));
    printf("%-14s%d\n\nbuild\n", "threads", rg_device_threads(cpu));
    for (int i = 0; i < BUILD_LINES; i++)
        printf("  %-12s%s\n", build[i].name, build[i].value);
}

static void print_json(const rg_device *cpu)
{
    char name[NAME], line[LINE];
    printf("{\"version\": \"%s\", \"devices\": [", rg_version());
    for (int32_t i = 0; rg_device_list(i, name, sizeof name) == RG_OK; i++)
        printf("%s\"%s\"", i > 0 ? ", " : "", name);
    printf("], \"about\": [");
    for (int32_t i = 0; rg_device_list(i, name, sizeof name) == RG_OK; i++) {
        describe(name, line);
        printf("%s{\"name\": \"%s\", \"text\": ", i > 0 ? ", " : "", name);
        rg_print_json_text(line); /* drivers and the system may say anything */
        printf("}");
    }
    printf("], \"cuda\": %s, \"isas\": [", describe("cuda", line) ? "true" : "false");
    for (int32_t i = 0; rg_device_isa_list(i) != NULL; i++)
        printf("%s\"%s\"", i > 0 ? ", " : "", rg_device_isa_list(i));
    printf("], \"isa\": \"%s\", \"threads\": %d, \"build\": {", rg_device_isa(cpu),
           rg_device_threads(cpu));
    for (int i = 0; i < BUILD_LINES; i++)
        printf("%s\"%s\": \"%s\"", i > 0 ? ", " : "", build[i].name, build[i].value);
    printf("}}\n");
}

int rg_cmd_info(int argc, char **argv)
{
    bool json = false, help = false;
    const rg_option options[] = {
        { "json", RG_OPTION_FLAG, &json, NULL, "print one JSON object" },
        { "help", RG_OPTION_FLAG, &help, NULL, "print this help" },
        { .name = NULL },
    };
    const int left = rg_options_take(options, argc, argv, NULL, NULL);
    if (left < 0)
        return 2;
    if (left > 0)
        return rg_wrong("info takes no argument '%s'", argv[0]);
    if (help) {
        printf("usage: retrograde info\n\n"
               "Prints the version, devices, instruction sets, threads and build options.\n\n");
        rg_options_help(options);
        return 0;
    }
    rg_peers_text(true, " ", peers, sizeof peers);
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
