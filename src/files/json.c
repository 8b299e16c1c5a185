/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* JSON: the reader by recursive descent to a bounded depth, then the writer of strings. */
#include "files/json.h"

#include "core/private_api.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

RG_PRIVATE_API size_t rg_utf8_length(const char *text, size_t left)
{
    const unsigned char *c = (const unsigned char *)text;
    if (c[0] < 0x80)
        return 1;
    const size_t length = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
    if (c[0] < 0xc2 || c[0] > 0xf4 || length > left)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    }
    const bool overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    const bool surrogate = c[0] == 0xed && c[1] > 0x9f;
    const bool beyond = c[0] == 0xf4 && c[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : length;
}

/* ---- failures ---- */

rg_status rg_json_fail(const rg_json *json, size_t at, const char *format, ...)
{
    char sentence[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    size_t line = 1, column = 1; /* in characters */
    for (size_t i = 0; i < at; i++) {
        if (json->text[i] == '\n') {
            line++;
            column = 1;
        } else if ((json->text[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    return rg_fail(RG_MALFORMED, "line %zu, column %zu: %s", line, column, sentence);
}

static rg_status expected(const rg_json *json, const char *what)
{
    if (json->at == json->length)
        return rg_json_fail(json, json->at, "expected %s, but the text ends", what);
    const unsigned char c = (unsigned char)json->text[json->at];
    if (c > ' ' && c < 0x7f)
        return rg_json_fail(json, json->at, "expected %s, not '%c'", what, c);
    return rg_json_fail(json, json->at, "expected %s, not the byte 0x%02x", what, c);
}

/* ---- characters ---- */

static bool next_is(const rg_json *json, char c)
{
    return json->at < json->length && json->text[json->at] == c;
}

static bool accept(rg_json *json, char c)
{
    const bool found = next_is(json, c);
    json->at += found;
    return found;
}

static void skip_space(rg_json *json)
{
    while (next_is(json, ' ') || next_is(json, '\t') || next_is(json, '\n') || next_is(json, '\r'))
        json->at++;
}

static bool skip_digits(rg_json *json)
{
    const size_t start = json->at;
    while (json->at < json->length && json->text[json->at] >= '0' && json->text[json->at] <= '9')
        json->at++;
    return json->at > start;
}

static void keep(rg_json *json, const char *bytes, size_t count)
{
    memcpy(json->strings + json->strings_used, bytes, count);
    json->strings_used += count;
}

/* ---- strings ---- */

static rg_status read_hex(rg_json *json, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, json->at++) {
        const char c = json->at < json->length ? json->text[json->at] : 0;
        const char lower = (char)(c | 0x20);
        const bool digit = c >= '0' && c <= '9', letter = lower >= 'a' && lower <= 'f';
        if (!digit && !letter)
            return expected(json, "four hexadecimal digits");
        *code = *code << 4 | (uint32_t)(digit ? c - '0' : lower - 'a' + 10);
    }
    return RG_OK;
}

static void keep_character(rg_json *json, uint32_t code)
{
    char bytes[4];
    const size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t i = length; i-- > 1; code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(marks[length] | code);
    keep(json, bytes, length);
}

/* \uXXXX, or two of them for a character beyond the first 65536. */
static rg_status read_code(rg_json *json)
{
    const size_t start = json->at - 2;
    uint32_t code, low = 0;
    RG_TRY(read_hex(json, &code));
    if (code == 0)
        return rg_json_fail(json, start, "the character 0 is not supported");
    if (code >= 0xd800 && code < 0xdc00 && accept(json, '\\') && accept(json, 'u'))
        RG_TRY(read_hex(json, &low));
    if (code >= 0xd800 && code < 0xe000) {
        if (low < 0xdc00 || low > 0xdfff)
            return rg_json_fail(json, start, "a surrogate has no partner");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    keep_character(json, code);
    return RG_OK;
}

static rg_status read_escape(rg_json *json)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (accept(json, 'u'))
        return read_code(json);
    for (size_t i = 0; letters[i] != 0; i++) {
        if (accept(json, letters[i])) {
            keep(json, &meanings[i], 1);
            return RG_OK;
        }
    }
    return expected(json, "one of \"\\/bfnrtu after \\");
}

static rg_status read_string(rg_json *json, const char **text)
{
    if (!accept(json, '"'))
        return expected(json, "a string");
    *text = json->strings + json->strings_used;
    while (!accept(json, '"')) {
        if (json->at == json->length)
            return expected(json, "the end of a string");
        const char *c = json->text + json->at;
        const size_t length = rg_utf8_length(c, json->length - json->at);
        if (length == 0)
            return rg_json_fail(json, json->at, "the text is not UTF-8");
        if (length == 1 && (unsigned char)*c < ' ')
            return rg_json_fail(json, json->at, "a control character must be escaped");
        json->at += length;
        if (*c == '\\')
            RG_TRY(read_escape(json));
        else
            keep(json, c, length);
    }
    keep(json, "", 1);
    return RG_OK;
}

/* ---- values ---- */

typedef struct rg_json_block {
    struct rg_json_block *next;
    size_t used;
    rg_json_value values[63];
} rg_json_block;

static rg_status new_value(rg_json *json, rg_json_value **value)
{
    if (json->blocks == NULL || json->blocks->used == 63) {
        void *memory;
        RG_TRY(rg_allocate_zero(json->allocator, sizeof(rg_json_block), &memory));
        rg_json_block *block = memory;
        block->next = json->blocks;
        json->blocks = block;
    }
    *value = &json->blocks->values[json->blocks->used++];
    (*value)->at = json->at;
    return RG_OK;
}

static rg_status read_number(rg_json *json, const char **text)
{
    const size_t start = json->at;
    accept(json, '-');
    if (!accept(json, '0') && !skip_digits(json))
        return expected(json, "a digit");
    if (accept(json, '.') && !skip_digits(json))
        return expected(json, "a digit");
    if (accept(json, 'e') || accept(json, 'E')) {
        if (!accept(json, '+'))
            accept(json, '-');
        if (!skip_digits(json))
            return expected(json, "a digit");
    }
    *text = json->strings + json->strings_used;
    keep(json, json->text + start, json->at - start);
    keep(json, "", 1);
    return RG_OK;
}

static rg_status read_word(rg_json *json, rg_json_type *type)
{
    static const char *const words[] = { "null", "false", "true" }; /* as in rg_json_type */
    for (int i = 0; i < 3; i++) {
        const size_t length = strlen(words[i]);
        if (json->length - json->at >= length &&
            memcmp(json->text + json->at, words[i], length) == 0) {
            json->at += length;
            *type = (rg_json_type)i;
            return RG_OK;
        }
    }
    return expected(json, "a value");
}

static int compare_keys(const void *a, const void *b)
{
    const rg_json_value *const *left = a, *const *right = b;
    return strcmp((*left)->key, (*right)->key);
}

/* Sorting keeps this fast for an object of a million members. */
static rg_status check_keys(rg_json *json, const rg_json_value *object)
{
    if (object->count < 2)
        return RG_OK;
    void *memory;
    const size_t bytes = object->count * sizeof(rg_json_value *);
    RG_TRY(rg_allocate(json->allocator, bytes, &memory));
    const rg_json_value **members = memory;
    size_t count = 0;
    for (const rg_json_value *v = object->first; v != NULL; v = v->next)
        members[count++] = v;
    qsort(members, count, sizeof *members, compare_keys);
    rg_status status = RG_OK;
    for (size_t i = 1; i < count && status == RG_OK; i++) {
        const rg_json_value *a = members[i - 1], *b = members[i];
        if (strcmp(a->key, b->key) == 0)
            status =
                rg_json_fail(json, a->at > b->at ? a->at : b->at, "the object has this key twice");
    }
    rg_release(json->allocator, memory, bytes);
    return status;
}

static rg_status read_value(rg_json *json, int depth, rg_json_value **value);

static rg_status read_members(rg_json *json, int depth, rg_json_value *value)
{
    const bool object = value->type == RG_JSON_OBJECT;
    const char close = object ? '}' : ']';
    if (depth == RG_JSON_DEPTH)
        return rg_json_fail(json, json->at, "the nesting is deeper than %d levels", RG_JSON_DEPTH);
    rg_json_value **link = &value->first;
    json->at++;
    skip_space(json);
    if (accept(json, close))
        return RG_OK;
    do {
        const char *key = NULL;
        skip_space(json);
        if (object) {
            RG_TRY(read_string(json, &key));
            skip_space(json);
            if (!accept(json, ':'))
                return expected(json, "':'");
            skip_space(json);
        }
        RG_TRY(read_value(json, depth + 1, link));
        (*link)->key = key;
        link = &(*link)->next;
        value->count++;
        skip_space(json);
    } while (accept(json, ','));
    if (!accept(json, close))
        return expected(json, object ? "',' or '}'" : "',' or ']'");
    return object ? check_keys(json, value) : RG_OK;
}

static rg_status read_value(rg_json *json, int depth, rg_json_value **value)
{
    RG_TRY(new_value(json, value));
    rg_json_value *v = *value;
    const char c = json->at < json->length ? json->text[json->at] : 0;
    if (c == '{' || c == '[') {
        v->type = c == '{' ? RG_JSON_OBJECT : RG_JSON_ARRAY;
        return read_members(json, depth, v);
    }
    if (c == '"') {
        v->type = RG_JSON_STRING;
        return read_string(json, &v->text);
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        v->type = RG_JSON_NUMBER;
        return read_number(json, &v->text);
    }
    return read_word(json, &v->type);
}

/* ---- the whole text ---- */

rg_status rg_json_read(rg_json *json, const rg_allocator *allocator, const char *text,
                       size_t length)
{
    *json = (rg_json){ .allocator = allocator, .text = text, .length = length };
    void *strings;
    RG_TRY(rg_allocate(allocator, length + 1, &strings));
    json->strings = strings;
    rg_json_value *root;
    skip_space(json);
    rg_status status = read_value(json, 0, &root);
    skip_space(json);
    if (status == RG_OK && json->at < length)
        status = expected(json, "the end of the text");
    if (status != RG_OK)
        rg_json_clear(json);
    else
        json->root = root;
    return status;
}

void rg_json_clear(rg_json *json)
{
    while (json->blocks != NULL) {
        rg_json_block *next = json->blocks->next;
        rg_release(json->allocator, json->blocks, sizeof *json->blocks);
        json->blocks = next;
    }
    rg_release(json->allocator, json->strings, json->length + 1);
    json->strings = NULL;
    json->root = NULL;
}

const rg_json_value *rg_json_find(const rg_json_value *object, const char *key)
{
    const rg_json_value *v = object->type == RG_JSON_OBJECT ? object->first : NULL;
    while (v != NULL && strcmp(v->key, key) != 0)
        v = v->next;
    return v;
}

/* ---- writing ---- */

static void add_bytes(rg_text *to, const char *bytes, size_t count)
{
    if (to->length + 1 < to->capacity) {
        const size_t capacity = to->capacity - to->length - 1;
        const size_t copied = count < capacity ? count : capacity;
        memcpy(to->text + to->length, bytes, copied);
        to->text[to->length + copied] = 0;
    }
    to->length += count;
}

void rg_text_begin(rg_text *to, char *text, size_t capacity)
{
    *to = (rg_text){ text, text != NULL ? capacity : 0, 0 };
    if (to->capacity > 0)
        text[0] = 0;
}

void rg_text_add(rg_text *to, const char *text)
{
    add_bytes(to, text, strlen(text));
}

void rg_text_add_string(rg_text *to, const char *text)
{
    add_bytes(to, "\"", 1);
    for (size_t left = strlen(text); left > 0;) {
        const size_t length = rg_utf8_length(text, left);
        char escape[8];
        if (length == 0) {
            rg_text_add(to, "\\ufffd");
        } else if (*text == '"' || *text == '\\') {
            add_bytes(to, "\\", 1);
            add_bytes(to, text, 1);
        } else if (length == 1 && ((unsigned char)*text < ' ' || *text == 0x7f)) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)*text);
            rg_text_add(to, escape);
        } else {
            add_bytes(to, text, length);
        }
        const size_t step = length > 0 ? length : 1;
        text += step;
        left -= step;
    }
    add_bytes(to, "\"", 1);
}

const char *rg_text_quoted(const char *text, char to[RG_QUOTED])
{
    rg_text whole;
    rg_text_begin(&whole, to, RG_QUOTED);
    rg_text_add_string(&whole, text);
    if (whole.length >= RG_QUOTED) {
        size_t end = RG_QUOTED - 5; /* not within a character */
        while (end > 1 && (to[end] & 0xc0) == 0x80)
            end--;
        snprintf(to + end, RG_QUOTED - end, "…\"");
    }
    return to;
}

RG_PRIVATE_API bool rg_text_is_utf8(const char *text)
{
    for (size_t left = strlen(text), length; left > 0; left -= length, text += length) {
        length = rg_utf8_length(text, left);
        if (length == 0)
            return false;
    }
    return true;
}
