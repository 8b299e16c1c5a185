/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A page in memory: growth, and escapes for text from outside. */
#include "train/page.h"
#include "core/memory.h"
#include "files/whole_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_CAPACITY = 1 << 14, REPLACEMENT = 0xfffd };

/* ---- growth ---- */

/* Grows for `size` more bytes and a 0 after them. */
static bool reserve(rg_page *page, size_t size)
{
    if (page->status != RG_OK)
        return false;
    size_t capacity = page->capacity > 0 ? page->capacity : FIRST_CAPACITY;
    while (capacity <= page->length || capacity - page->length <= size) {
        if (!rg_multiply(capacity, 2, &capacity)) {
            page->status = rg_fail(RG_OUT_OF_MEMORY,
                                   "out of memory: a page of %zu bytes cannot grow", page->length);
            return false;
        }
    }
    if (capacity == page->capacity)
        return true;
    void *larger;
    page->status = rg_allocate(&rg_default_allocator, capacity, &larger);
    if (page->status != RG_OK)
        return false;
    if (page->length > 0)
        memcpy(larger, page->text, page->length);
    rg_release(&rg_default_allocator, page->text, page->capacity);
    page->text = larger;
    page->capacity = capacity;
    return true;
}

void rg_page_add(rg_page *page, const char *bytes, size_t size)
{
    if (!reserve(page, size))
        return;
    memcpy(page->text + page->length, bytes, size);
    page->length += size;
    page->text[page->length] = 0;
}

void rg_page_put(rg_page *page, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    const int size = vsnprintf(NULL, 0, format, list);
    if (size >= 0 && reserve(page, (size_t)size)) {
        vsnprintf(page->text + page->length, (size_t)size + 1, format, again);
        page->length += (size_t)size;
    }
    va_end(again);
    va_end(list);
}

void rg_page_clear(rg_page *page)
{
    rg_release(&rg_default_allocator, page->text, page->capacity);
    *page = (rg_page){ 0 };
}

rg_status rg_page_save(rg_page *page, const char *path)
{
    rg_status status = page->status;
    if (status == RG_OK)
        status = rg_file_write(path, page->length > 0 ? page->text : "", page->length);
    rg_page_clear(page);
    return status;
}

/* ---- text from outside ---- */

/* Characters that may be in a page: no control characters, no marks that reorder text. */
static bool is_shown(uint32_t c)
{
    return c >= 0x20 && !(c >= 0x7f && c < 0xa0) && !(c >= 0xd800 && c < 0xe000) &&
           !(c >= 0x202a && c <= 0x202e) && !(c >= 0x2066 && c <= 0x2069) &&
           (c & 0xfffe) != 0xfffe && !(c >= 0xfdd0 && c < 0xfdf0) && c <= 0x10ffff;
}

/* The next character of UTF-8; REPLACEMENT, for a byte at least, where there is none. */
static uint32_t next_character(const unsigned char **at)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const unsigned char first = *(*at)++;
    if (first == '\n' || first == '\t' || first == '\r')
        return ' ';
    const int length = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if ((first >= 0x80 && first < 0xc2) || first > 0xf4)
        return REPLACEMENT;
    uint32_t c = length == 1 ? first : first & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        if (((*at)[0] & 0xc0) != 0x80)
            return REPLACEMENT;
        c = c << 6 | (*(*at)++ & 0x3f);
    }
    return c >= least[length] && is_shown(c) ? c : REPLACEMENT;
}

static void add_utf8(rg_page *page, uint32_t c)
{
    char bytes[4];
    size_t size = 0;
    if (c < 0x80) {
        bytes[size++] = (char)c;
    } else if (c < 0x800) {
        bytes[size++] = (char)(0xc0 | c >> 6);
        bytes[size++] = (char)(0x80 | (c & 0x3f));
    } else {
        if (c < 0x10000) {
            bytes[size++] = (char)(0xe0 | c >> 12);
        } else {
            bytes[size++] = (char)(0xf0 | c >> 18);
            bytes[size++] = (char)(0x80 | (c >> 12 & 0x3f));
        }
        bytes[size++] = (char)(0x80 | (c >> 6 & 0x3f));
        bytes[size++] = (char)(0x80 | (c & 0x3f));
    }
    rg_page_add(page, bytes, size);
}

static const char *markup_escape(uint32_t c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

static const char *dot_escape(uint32_t c)
{
    return c == '"' ? "\\\"" : c == '\\' ? "\\\\" : NULL;
}

static void add_escaped(rg_page *page, const char *text, size_t most,
                        const char *(*escape)(uint32_t))
{
    const unsigned char *at = (const unsigned char *)(text != NULL ? text : "");
    for (size_t i = 0; *at != 0; i++) {
        if (i == most) {
            rg_page_add(page, "\xe2\x80\xa6", 3); /* … */
            return;
        }
        const uint32_t c = next_character(&at);
        const char *other = escape(c);
        if (other != NULL)
            rg_page_add(page, other, strlen(other));
        else
            add_utf8(page, c);
    }
}

void rg_page_text(rg_page *page, const char *text, size_t most)
{
    add_escaped(page, text, most, markup_escape);
}

void rg_page_dot_text(rg_page *page, const char *text, size_t most)
{
    add_escaped(page, text, most, dot_escape);
}

size_t rg_page_width(const char *text, size_t most)
{
    const unsigned char *at = (const unsigned char *)(text != NULL ? text : "");
    size_t width = 0;
    for (; *at != 0 && width <= most; width++)
        next_character(&at);
    return width;
}
