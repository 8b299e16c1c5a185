/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Safetensors: the header, then the elements, straight from where they are.
 *
 *      {"__metadata__":{"step":"12"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
 *
 *  The format has no gaps between tensors, so they are aligned by their order: large elements
 *  come before small ones. */
#include "files/json.h"
#include "files/safetensors_format.h"
#include "files/tensor_pieces.h"
#include "files/whole_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The header is filled up with spaces, so that the elements begin at a multiple of this. */
enum { HEADER_STEP = 8 };

static const char who[] = "rg_safetensors_write";

/* One tensor that is being written. */
typedef struct item {
    const char *name;
    rg_tensor_desc desc;
    rg_pieces pieces;
    uint64_t offset; /* of its elements, from the end of the header */
} item;

typedef struct writer {
    const rg_allocator *allocator;
    item *items;
    size_t count;
    const rg_safetensors_text *texts;
    size_t text_count;
    size_t staging; /* bytes that the largest piece needs */
} writer;

/* ---- checks ---- */

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks the names or keys that `next` gives: UTF-8, and none twice. */
static rg_status check_names(const writer *w, size_t count, const char *what,
                             const char *(*next)(const writer *w, size_t i))
{
    void *memory;
    size_t bytes;
    RG_CHECK(rg_multiply(count, sizeof(char *), &bytes), RG_OUT_OF_MEMORY, "%s: out of memory",
             who);
    RG_TRY(rg_allocate(w->allocator, bytes, &memory));
    const char **names = memory;
    rg_status status = RG_OK;
    char quoted[RG_QUOTED];
    for (size_t i = 0; i < count && status == RG_OK; i++) {
        names[i] = next(w, i);
        if (names[i] == NULL)
            status = rg_fail(RG_INVALID_ARGUMENT, "%s: %s %zu is NULL", who, what, i);
        else if (!rg_text_is_utf8(names[i]))
            status = rg_fail(RG_INVALID_ARGUMENT, "%s: %s %zu, %s, is not UTF-8", who, what, i,
                             rg_text_quoted(names[i], quoted));
    }
    if (status == RG_OK && count > 1)
        qsort(names, count, sizeof *names, compare_text);
    for (size_t i = 1; i < count && status == RG_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            status = rg_fail(RG_INVALID_ARGUMENT, "%s: the %s %s is given twice", who, what,
                             rg_text_quoted(names[i], quoted));
    }
    rg_release(w->allocator, memory, bytes);
    return status;
}

static const char *next_name(const writer *w, size_t i)
{
    return w->items[i].name;
}

static const char *next_key(const writer *w, size_t i)
{
    return w->texts[i].key;
}

static rg_status check_texts(const writer *w)
{
    RG_TRY(check_names(w, w->text_count, "key", next_key));
    char quoted[RG_QUOTED];
    for (size_t i = 0; i < w->text_count; i++) {
        const rg_safetensors_text *text = &w->texts[i];
        RG_CHECK(text->value != NULL, RG_INVALID_ARGUMENT, "%s: the text of %s is NULL", who,
                 rg_text_quoted(text->key, quoted));
        RG_CHECK(rg_text_is_utf8(text->value), RG_INVALID_ARGUMENT,
                 "%s: the text of %s is not UTF-8", who, rg_text_quoted(text->key, quoted));
    }
    return RG_OK;
}

static rg_status take_entry(const rg_safetensors_entry *entry, item *to)
{
    to->name = entry->name;
    if (entry->tensor != NULL) {
        to->desc = entry->tensor->desc;
        return rg_pieces_of_tensor(entry->tensor, true, who, &to->pieces);
    }
    size_t bytes;
    to->desc = entry->desc;
    RG_TRY(rg_shape_check(&entry->desc, who, &bytes));
    RG_CHECK(entry->data != NULL || bytes == 0, RG_INVALID_ARGUMENT, "%s: data is NULL", who);
    to->pieces = rg_pieces_of_host(entry->data, &entry->desc);
    return RG_OK;
}

/* ---- the header ---- */

static const char *dtype_name(rg_dtype dtype)
{
    static const char *const names[] = {
        [RG_F32] = "F32", [RG_F64] = "F64", [RG_F16] = "F16", [RG_BF16] = "BF16",
        [RG_U8] = "U8",   [RG_I32] = "I32", [RG_I64] = "I64"
    };
    return names[dtype];
}

/* Gives each tensor its offset: those of 8 bytes an element first, then of 4, 2, 1. */
static rg_status set_offsets(writer *w)
{
    uint64_t offset = 0;
    for (size_t element = 8; element > 0; element /= 2) {
        for (size_t i = 0; i < w->count; i++) {
            item *t = &w->items[i];
            if (rg_dtype_size(t->desc.dtype) != element)
                continue;
            t->offset = offset;
            RG_CHECK(!__builtin_add_overflow(offset, t->pieces.bytes, &offset) &&
                         offset <= INT64_MAX - RG_SAFETENSORS_HEADER - 8,
                     RG_INVALID_ARGUMENT, "%s: the tensors are too large for a file", who);
            w->staging = t->pieces.staging > w->staging ? t->pieces.staging : w->staging;
        }
    }
    return RG_OK;
}

static void add_item(rg_text *to, const item *t)
{
    char numbers[96];
    rg_text_add_string(to, t->name);
    rg_text_add(to, ":{\"dtype\":\"");
    rg_text_add(to, dtype_name(t->desc.dtype));
    rg_text_add(to, "\",\"shape\":[");
    for (int32_t d = 0; d < t->desc.rank; d++) {
        snprintf(numbers, sizeof numbers, "%s%" PRId64, d > 0 ? "," : "", t->desc.dims[d]);
        rg_text_add(to, numbers);
    }
    snprintf(numbers, sizeof numbers, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->offset,
             t->offset + t->pieces.bytes);
    rg_text_add(to, numbers);
}

static void add_header(rg_text *to, const writer *w)
{
    rg_text_add(to, "{");
    if (w->text_count > 0) {
        rg_text_add(to, "\"" RG_SAFETENSORS_METADATA "\":{");
        for (size_t i = 0; i < w->text_count; i++) {
            rg_text_add(to, i > 0 ? "," : "");
            rg_text_add_string(to, w->texts[i].key);
            rg_text_add(to, ":");
            rg_text_add_string(to, w->texts[i].value);
        }
        rg_text_add(to, w->count > 0 ? "}," : "}");
    }
    for (size_t i = 0; i < w->count; i++) {
        rg_text_add(to, i > 0 ? "," : "");
        add_item(to, &w->items[i]);
    }
    rg_text_add(to, "}");
    while (to->length % HEADER_STEP != 0)
        rg_text_add(to, " ");
}

/* ---- the file ---- */

static rg_status write_header(const writer *w, rg_output *output)
{
    rg_text text;
    rg_text_begin(&text, NULL, 0);
    add_header(&text, w);
    const size_t length = text.length;
    RG_CHECK(length <= RG_SAFETENSORS_HEADER, RG_INVALID_ARGUMENT,
             "cannot be written: the header has %zu bytes; at most %d are supported", length,
             RG_SAFETENSORS_HEADER);
    void *memory;
    RG_TRY(rg_allocate(w->allocator, 8 + length + 1, &memory));
    unsigned char *bytes = memory;
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)length >> 8 * i);
    rg_text_begin(&text, (char *)memory + 8, length + 1);
    add_header(&text, w);
    const rg_status status = rg_output_add(output, memory, 8 + length);
    rg_release(w->allocator, memory, 8 + length + 1);
    return status;
}

static rg_status write_item(item *t, rg_output *output, void *staging)
{
    rg_pieces *pieces = &t->pieces;
    if (pieces->direct != NULL)
        return rg_output_add(output, pieces->direct, pieces->bytes);
    for (size_t size = rg_pieces_next(pieces); size > 0; size = rg_pieces_next(pieces)) {
        RG_TRY(rg_pieces_copy(pieces, staging));
        RG_TRY(rg_output_add(output, staging, size));
    }
    return RG_OK;
}

static rg_status write_all(const writer *w, rg_output *output)
{
    void *staging;
    RG_TRY(write_header(w, output));
    RG_TRY(rg_allocate(w->allocator, w->staging, &staging));
    rg_status status = RG_OK;
    for (size_t element = 8; element > 0; element /= 2) { /* in the order of set_offsets() */
        for (size_t i = 0; i < w->count && status == RG_OK; i++) {
            if (rg_dtype_size(w->items[i].desc.dtype) == element)
                status = write_item(&w->items[i], output, staging);
        }
    }
    rg_release(w->allocator, staging, w->staging);
    return status;
}

static rg_status check_and_write(writer *w, const char *path, const rg_safetensors_entry entries[])
{
    char quoted[RG_QUOTED];
    for (size_t i = 0; i < w->count; i++)
        w->items[i].name = entries[i].name;
    RG_TRY(check_names(w, w->count, "name", next_name));
    RG_TRY(check_texts(w));
    for (size_t i = 0; i < w->count; i++) {
        RG_CHECK(strcmp(entries[i].name, RG_SAFETENSORS_METADATA) != 0, RG_INVALID_ARGUMENT,
                 "%s: a tensor cannot be called %s", who, RG_SAFETENSORS_METADATA);
        const rg_status status = take_entry(&entries[i], &w->items[i]);
        if (status != RG_OK)
            rg_error_prefix("%s: ", rg_text_quoted(entries[i].name, quoted));
        RG_TRY(status);
    }
    RG_TRY(set_offsets(w));
    rg_output output;
    rg_status status = rg_output_open(&output, path);
    if (status == RG_OK)
        status = rg_output_close(&output, write_all(w, &output));
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    return status;
}

rg_status rg_safetensors_write_with(const rg_allocator *allocator, const char *path,
                                    const rg_safetensors_entry entries[], size_t count,
                                    const rg_safetensors_text metadata[], size_t texts)
{
    RG_CHECK(path != NULL, RG_INVALID_ARGUMENT, "%s: path is NULL", who);
    RG_CHECK(entries != NULL || count == 0, RG_INVALID_ARGUMENT, "%s: entries is NULL", who);
    RG_CHECK(metadata != NULL || texts == 0, RG_INVALID_ARGUMENT, "%s: metadata is NULL", who);
    RG_CHECK(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, RG_UNSUPPORTED,
             "%s: big-endian machines are not supported by this format", who);
    size_t bytes;
    void *memory;
    RG_CHECK(rg_multiply(count, sizeof(item), &bytes), RG_OUT_OF_MEMORY, "%s: out of memory", who);
    RG_TRY(rg_allocate_zero(allocator, bytes, &memory));
    writer w = { allocator, memory, count, metadata, texts, 0 };
    const rg_status status = check_and_write(&w, path, entries);
    rg_release(allocator, memory, bytes);
    return status;
}

rg_status rg_safetensors_write(const char *path, const rg_safetensors_entry entries[], size_t count,
                               const rg_safetensors_text metadata[], size_t texts)
{
    return rg_safetensors_write_with(&rg_default_allocator, path, entries, count, metadata, texts);
}
