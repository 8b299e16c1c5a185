/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the fuzz targets share. A target is a file fuzz_<name>.c that defines
 * LLVMFuzzerTestOneInput(): whatever bytes it is given, it must neither crash nor leak nor take
 * longer than their number allows, and what was read must survive being written and read again. */
#ifndef RG_TESTS_FUZZ_H
#define RG_TESTS_FUZZ_H

#include "core/shape.h"
#include "graph/graph.h"

#include <retrograde/retrograde.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A property that holds for every input; what breaks it is a finding. */
#define FUZZ_CHECK(condition)                                                                \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", __FILE__, __LINE__, \
                    #condition, rg_error_text());                                            \
            abort();                                                                         \
        }                                                                                    \
    } while (0)

/* A call that may fail, with a sentence. */
#define FUZZ_TRY(call) fuzz_explained(call)
static inline bool fuzz_explained(rg_status status)
{
    FUZZ_CHECK(status == RG_OK || rg_error_text()[0] != 0);
    return status == RG_OK;
}

/* ---- the input, taken from its start ---- */

typedef struct fuzz_input {
    const uint8_t *data;
    size_t size;
} fuzz_input;

/* The next byte; 0 behind the end. */
uint8_t fuzz_byte(fuzz_input *input);
/* Two bytes, the lowest first. */
size_t fuzz_word(fuzz_input *input);
/* The next `size` bytes, fewer at the end, in memory of their own size so that a read beyond them
 * is seen; to be freed. */
uint8_t *fuzz_take(fuzz_input *input, size_t size, size_t *taken);
/* All that is left, or up to the next line's end, with a 0 behind; to be freed. */
char *fuzz_text(fuzz_input *input);
char *fuzz_line(fuzz_input *input);

/* ---- files ---- */

/* The path of a name in a scratch folder, which is made on first use and removed at the end; valid
 * until the fourth call behind this one. */
const char *fuzz_path(const char *name);
/* Writes a file there and returns its path. */
const char *fuzz_file(const char *name, const void *data, size_t size);
/* Reads a file back; to be freed. */
uint8_t *fuzz_read(const char *path, size_t *size);
/* Removes all that the folder holds. */
void fuzz_clear(void);

/* ---- devices ---- */

/* A CPU with `threads` threads and an instruction set of rg_device_isa_list(), or NULL for the
 * best. Memory beyond 64 MiB is refused. Kept until the end. */
rg_device *fuzz_device(int32_t threads, const char *isa);
/* The device that readers use: one thread, the best instruction set. */
rg_device *fuzz_reader_device(void);
/* Fills a dense tensor with zeros. */
void fuzz_zero(rg_tensor *tensor);
/* Bytes that devices of this process hold. A target that runs no kernel compares them before and
 * after; devices keep the scratch of what they ran last. */
size_t fuzz_held(void);

/* ---- graphs ---- */

/* Makes a plan of a graph where its parameters are small, prepares and runs it with sources of
 * small shapes chosen by `input`. */
void fuzz_run_graph(rg_graph *graph, fuzz_input *input);
/* Runs a plan likewise. */
void fuzz_run_plan(rg_plan *plan, fuzz_input *input);
/* Writes a graph as text and reads it again: the texts must be the same. */
void fuzz_graph_round_trip(rg_graph *graph);

#endif
