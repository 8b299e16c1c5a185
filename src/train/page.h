/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A page being written: text that grows in memory and becomes a file all at once. */
#ifndef RG_TRAIN_PAGE_H
#define RG_TRAIN_PAGE_H

#include "core/status.h"
#include "train/figures.h"

/* Start from { 0 }. After a failure nothing more is added, and rg_page_save tells of it. */
typedef struct rg_page {
    char *text; /* `length` bytes and a 0; NULL before the first */
    size_t length, capacity;
    rg_status status;
} rg_page;

/* Bytes as they are. */
void rg_page_add(rg_page *page, const char *bytes, size_t size);

/* Text and markup of our own; nothing from outside may pass through it. */
__attribute__((format(printf, 2, 3))) void rg_page_put(rg_page *page, const char *format, ...);

/* Text from outside, fit for HTML, SVG and attributes: markup is escaped, what is no UTF-8 or no
 * printable character becomes U+FFFD. At most `most` characters, then "…". NULL counts as "". */
void rg_page_text(rg_page *page, const char *text, size_t most);

/* The same for a quoted string of DOT, without the quotes. */
void rg_page_dot_text(rg_page *page, const char *text, size_t most);

/* How many characters rg_page_text would show. */
size_t rg_page_width(const char *text, size_t most);

/* Writes the file, whole or not at all, and clears the page in either case. */
rg_status rg_page_save(rg_page *page, const char *path);
void rg_page_clear(rg_page *page);

#endif
