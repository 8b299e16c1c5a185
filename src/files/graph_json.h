/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What writing and reading of graphs share. */
#ifndef RG_FILES_GRAPH_JSON_H
#define RG_FILES_GRAPH_JSON_H

/* Longer texts are no graphs. */
enum { RG_GRAPH_TEXT_LIMIT = 64 << 20 };

#endif
