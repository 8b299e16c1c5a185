/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Numbers as readable, short text, the same in every locale. */
#ifndef RG_TRAIN_FIGURES_H
#define RG_TRAIN_FIGURES_H

#include <stdint.h>

/* A text by value, so that it can stand in an argument list: rg_fixed(x, 1).text */
typedef struct rg_figure {
    char text[48];
} rg_figure;

/* With `decimals` decimals: "12.50". What is not finite: "NaN", "∞", "−∞". */
rg_figure rg_fixed(double value, int decimals);

/* With this many significant digits: "0.1235", "12.35", "1.24e-6". */
rg_figure rg_significant(double value, int digits);

/* The shortest text that is the same number: "0.001". */
rg_figure rg_shortest(double value);

/* A fraction as a percentage, "91.2 %"; "–" where it is not finite. */
rg_figure rg_percent(double fraction, int decimals);

/* A whole number in groups of three: "61 706". */
rg_figure rg_count(int64_t count);

/* "17 bytes", "3.1 MiB". */
rg_figure rg_byte_count(double bytes);

/* "38 µs", "4.20 ms", "12.3 s", "4 min 05 s", "2 h 10 min"; "–" where it is not finite. */
rg_figure rg_duration(double seconds);

#endif
