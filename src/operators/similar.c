/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* "did you mean": the word closest to one that was not found. */
#include "operators/onnx_node.h"

#include <ctype.h>
#include <stdio.h>

enum { LONGEST = 63 };

rg_similar rg_similar_begin(const char *wanted)
{
    rg_similar s = { .wanted = wanted };
    const size_t length = strlen(wanted);
    s.distance = 2 * (length < 4 ? 2 : (int32_t)(length / 3) + 1); /* below this it is similar */
    return s;
}

/* Edits that turn one word into the other; letters of either case are equal. */
static int32_t edits(const char *a, const char *b)
{
    const size_t rows = strlen(a), columns = strlen(b);
    int32_t row[LONGEST + 1];
    if (rows > LONGEST || columns > LONGEST)
        return INT32_MAX;
    for (size_t j = 0; j <= columns; j++)
        row[j] = (int32_t)j;
    for (size_t i = 1; i <= rows; i++) {
        int32_t diagonal = row[0];
        row[0] = (int32_t)i;
        for (size_t j = 1; j <= columns; j++) {
            const bool same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            const int32_t replace = diagonal + !same;
            diagonal = row[j];
            const int32_t insert = (row[j - 1] < row[j] ? row[j - 1] : row[j]) + 1;
            row[j] = replace < insert ? replace : insert;
        }
    }
    return row[columns];
}

void rg_similar_try(rg_similar *s, const char *word)
{
    const int32_t count = edits(s->wanted, word);
    if (count > LONGEST)
        return;
    /* twice the edits: of words that are as similar one that begins with the same case wins */
    const int32_t distance = 2 * count + (word[0] != s->wanted[0]);
    if (distance >= s->distance)
        return;
    s->distance = distance;
    snprintf(s->best, sizeof s->best, "%s", word);
}

const char *rg_similar_text(const rg_similar *s, char text[RG_SIMILAR_TEXT])
{
    if (s->best[0] == 0)
        text[0] = 0;
    else
        snprintf(text, RG_SIMILAR_TEXT, "; did you mean '%s'?", s->best);
    return text;
}
