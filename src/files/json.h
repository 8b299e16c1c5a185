/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* JSON: a strict reader for text from strangers, and what is needed to write some. */
#ifndef RG_FILES_JSON_H
#define RG_FILES_JSON_H

#include "core/memory.h"

/* The length of the UTF-8 character at the start of `left` > 0 bytes; 0 if there is none. */
size_t rg_utf8_length(const char *text, size_t left);

/* ---- reading ---- */

typedef enum rg_json_type {
    RG_JSON_NULL,
    RG_JSON_FALSE,
    RG_JSON_TRUE,
    RG_JSON_NUMBER,
    RG_JSON_STRING,
    RG_JSON_ARRAY,
    RG_JSON_OBJECT
} rg_json_type;

typedef struct rg_json_value {
    rg_json_type type;
    const char *key;  /* of a member of an object; otherwise NULL */
    const char *text; /* of a string, without escapes; of a number, as written; otherwise NULL */
    size_t at;        /* where it begins in the text */
    size_t count;     /* of members, or of elements */
    struct rg_json_value *first, *next; /* the first of these; the next one beside this value */
} rg_json_value;

/* How deep arrays and objects may be nested. */
enum { RG_JSON_DEPTH = 64 };

typedef struct rg_json {
    const rg_json_value *root;
    const rg_allocator *allocator;
    const char *text; /* the caller's; used by rg_json_fail */
    size_t length;
    size_t at;                    /* the next byte to read */
    char *strings;                /* length + 1 bytes; unescaped text is never longer */
    size_t strings_used;          /* of them */
    struct rg_json_block *blocks; /* that hold the values */
} rg_json;

/* Reads one value and nothing after it: valid UTF-8, no key twice in an object, no character 0.
 * Otherwise RG_MALFORMED, with line and column. After a failure nothing is left to clear. */
rg_status rg_json_read(rg_json *json, const rg_allocator *allocator, const char *text,
                       size_t length);
void rg_json_clear(rg_json *json);

/* The member of an object; NULL if there is none. */
const rg_json_value *rg_json_find(const rg_json_value *object, const char *key);

/* Records "line 1, column 2: …" and returns RG_MALFORMED. */
__attribute__((format(printf, 3, 4))) rg_status rg_json_fail(const rg_json *json, size_t at,
                                                             const char *format, ...);

/* ---- writing ---- */

/* Text of at most `capacity` bytes with the 0 at its end; `length` counts on when it is full. */
typedef struct rg_text {
    char *text;
    size_t capacity, length;
} rg_text;
void rg_text_begin(rg_text *to, char *text, size_t capacity);
void rg_text_add(rg_text *to, const char *text);

/* Adds a string in quotes. Bytes that are not UTF-8 become the replacement character. */
void rg_text_add_string(rg_text *to, const char *text);

/* Text of strangers for a sentence: as a string in quotes, cut where it is long. Returns `to`. */
enum { RG_QUOTED = 96 };
const char *rg_text_quoted(const char *text, char to[RG_QUOTED]);

bool rg_text_is_utf8(const char *text);

#endif
