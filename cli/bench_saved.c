/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Saved rows of `bench`, and what is printed below its table. */
#include "cli/bench_saved.h"
#include "files/json.h"
#include "files/whole_file.h"

#include <math.h>
#include <stdlib.h>

rg_status rg_bench_entries_add(rg_bench_entries *to, const rg_bench_entry *entry)
{
    if (to->count == to->capacity) {
        const size_t capacity = to->capacity == 0 ? 64 : 2 * to->capacity;
        rg_bench_entry *grown = realloc(to->entries, capacity * sizeof *grown);
        RG_CHECK(grown != NULL, RG_OUT_OF_MEMORY, "not enough memory for %zu rows", capacity);
        to->entries = grown;
        to->capacity = capacity;
    }
    to->entries[to->count++] = *entry;
    return RG_OK;
}

void rg_bench_entries_clear(rg_bench_entries *entries)
{
    free(entries->entries);
    *entries = (rg_bench_entries){ 0 };
}

/* ---- an earlier run ---- */

static const char *text_of(const rg_json_value *row, const char *key)
{
    const rg_json_value *value = rg_json_find(row, key);
    return value != NULL && value->text != NULL ? value->text : "";
}

/* A row that was skipped has no time, and is left out. */
static rg_status add_row(const rg_json_value *row, rg_bench_entries *entries)
{
    RG_CHECK(row->type == RG_JSON_OBJECT && *text_of(row, "op") != 0 && *text_of(row, "case") != 0,
             RG_MALFORMED, "this is no row of bench");
    const double ms = strtod(text_of(row, "ms"), NULL);
    if (!(ms > 0) || !isfinite(ms))
        return RG_OK;
    rg_bench_entry entry = { .ms = ms };
    snprintf(entry.name, sizeof entry.name, "%s %s %s %s %s %s, %s threads, %s calls",
             text_of(row, "op"), text_of(row, "case"), text_of(row, "direction"),
             text_of(row, "dtype"), text_of(row, "device"), text_of(row, "isa"),
             text_of(row, "threads"), text_of(row, "calls"));
    return rg_bench_entries_add(entries, &entry);
}

static rg_status read_line(const char *text, size_t length, rg_bench_entries *entries)
{
    rg_json json;
    RG_TRY(rg_json_read(&json, &rg_default_allocator, text, length));
    const rg_status status = add_row(json.root, entries);
    rg_json_clear(&json);
    return status;
}

rg_status rg_bench_entries_read(const char *path, rg_bench_entries *entries)
{
    enum { MOST_BYTES = 1 << 26 };
    rg_bytes bytes = { 0 };
    rg_status status = rg_file_read(&rg_default_allocator, path, MOST_BYTES, &bytes);
    if (status != RG_OK)
        return rg_fail(status, "%s: %s", path, rg_error_text());
    const char *at = bytes.data, *end = bytes.data + bytes.size;
    for (int line = 1; at < end && status == RG_OK; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t length = (size_t)((newline != NULL ? newline : end) - at);
        status = length == 0 ? RG_OK : read_line(at, length, entries);
        if (status != RG_OK)
            status = rg_fail(status, "%s, line %d: %s", path, line, rg_error_text());
        at += length + 1;
    }
    rg_bytes_release(&rg_default_allocator, &bytes);
    return status;
}

double rg_bench_entries_ms(const rg_bench_entries *entries, const char *name)
{
    for (size_t i = 0; i < entries->count; i++) {
        if (strcmp(entries->entries[i].name, name) == 0)
            return entries->entries[i].ms;
    }
    return 0;
}

/* ---- below the table ---- */

static int by_times(const void *a, const void *b)
{
    const double x = ((const rg_bench_entry *)a)->times, y = ((const rg_bench_entry *)b)->times;
    return (x > y) - (x < y);
}

void rg_bench_print_worst(rg_bench_entries *entries, int64_t most)
{
    if (entries->count == 0) {
        printf("\nNo row was timed beside a peer.\n");
        return;
    }
    qsort(entries->entries, entries->count, sizeof *entries->entries, by_times);
    printf("\nFurthest behind the fastest peer (rows where a peer returns a view do not count):\n");
    for (size_t i = 0; i < entries->count && i < (size_t)most; i++) {
        const rg_bench_entry *e = &entries->entries[i];
        printf("%6.2fx of %-9s %s: %.4g ms\n", e->times, e->peer, e->name, e->ms);
    }
}

void rg_bench_print_compared(const rg_bench_entries *compared, const char *path)
{
    double logs = 0;
    size_t slower = 0, faster = 0;
    for (size_t i = 0; i < compared->count; i++) {
        logs += log(compared->entries[i].times);
        slower += compared->entries[i].times < 0.95;
        faster += compared->entries[i].times > 1 / 0.95;
    }
    if (compared->count == 0)
        printf("\n%s has none of these rows.\n", path);
    else
        printf("\n%zu rows compared with %s: %.3f times as fast (geometric mean), %zu slower and "
               "%zu faster by more than 5 %%.\n",
               compared->count, path, exp(logs / (double)compared->count), slower, faster);
}
