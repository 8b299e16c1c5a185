/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The checker of markup: see markup.h. */
#include "tests/markup.h"

#include <ctype.h>

typedef struct markup {
    const char *text, *at, *problem;
    int tags, depth;
    char open[64][24]; /* names of the elements around */
} markup;

static bool markup_fail(markup *m, const char *problem)
{
    if (m->problem == NULL) {
        m->problem = problem;
        printf("markup: %s at byte %ld: %.60s\n", problem, (long)(m->at - m->text), m->at);
    }
    return false;
}

static bool markup_name(markup *m, char *name, size_t capacity)
{
    size_t length = 0;
    while (isalnum((unsigned char)*m->at) || *m->at == '-' || *m->at == ':') {
        if (length + 1 < capacity)
            name[length++] = *m->at;
        m->at++;
    }
    name[length] = 0;
    return length > 0 || markup_fail(m, "no name");
}

/* Text up to `end`: no '<', and '&' begins an entity that XML knows. */
static bool markup_text(markup *m, char end)
{
    static const char *const entities[] = { "&amp;", "&lt;", "&gt;", "&quot;", "&#39;", "&#160;" };
    for (; *m->at != 0 && *m->at != end; m->at++) {
        bool known = *m->at != '&';
        for (size_t i = 0; i < sizeof entities / sizeof entities[0] && !known; i++)
            known = strncmp(m->at, entities[i], strlen(entities[i])) == 0;
        if (!known)
            return markup_fail(m, "a bare &");
        if (*m->at == '<' || (end == '<' && *m->at == '>') ||
            ((unsigned char)*m->at < ' ' && *m->at != '\n'))
            return markup_fail(m, "a character that does not belong here");
    }
    return true;
}

static bool markup_attributes(markup *m)
{
    char name[64];
    while (isspace((unsigned char)*m->at)) {
        m->at++;
        if (!markup_name(m, name, sizeof name))
            return false;
        if (m->at[0] != '=' || m->at[1] != '"')
            return markup_fail(m, "an attribute without a quoted value");
        if (strncmp(name, "on", 2) == 0)
            return markup_fail(m, "a script");
        m->at += 2;
        if (!markup_text(m, '"') || *m->at != '"')
            return markup_fail(m, "an attribute that does not end");
        m->at++;
    }
    return true;
}

/* At '<'. */
static bool markup_tag(markup *m)
{
    char name[24];
    const bool closing = m->at[1] == '/';
    m->at += closing ? 2 : 1;
    m->tags++;
    if (!markup_name(m, name, sizeof name))
        return false;
    if (closing) {
        if (m->depth == 0 || strcmp(m->open[--m->depth], name) != 0)
            return markup_fail(m, "closes what is not open");
        return *m->at == '>' ? (m->at++, true) : markup_fail(m, "no >");
    }
    if (strcmp(name, "script") == 0)
        return markup_fail(m, "a script");
    if (!markup_attributes(m))
        return false;
    if (m->at[0] == '/' && m->at[1] == '>') {
        m->at += 2;
        return true;
    }
    if (*m->at++ != '>' || m->depth == 64)
        return markup_fail(m, "no >, or too deep");
    strcpy(m->open[m->depth++], name);
    if (strcmp(name, "style") == 0) { /* rules may hold > */
        const char *end = strstr(m->at, "</style>");
        if (end == NULL)
            return markup_fail(m, "a style that does not end");
        m->at = end;
    }
    return true;
}

bool markup_check(const char *text, int *tags)
{
    markup m = { .text = text, .at = text };
    if (strncmp(m.at, "<?xml", 5) == 0 || strncmp(m.at, "<!DOCTYPE html>", 15) == 0)
        m.at = strchr(m.at, '>') + 1;
    while (m.problem == NULL && *m.at != 0) {
        if (*m.at == '<')
            markup_tag(&m);
        else
            markup_text(&m, '<');
    }
    if (m.problem == NULL && m.depth != 0)
        markup_fail(&m, "an element that does not end");
    if (tags != NULL)
        *tags = m.tags;
    return m.problem == NULL;
}

int markup_count(const char *text, const char *word)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word))
        count++;
    return count;
}

char *markup_take(const char *name, size_t *size)
{
    const size_t capacity = 4 << 20;
    char *text = malloc(capacity);
    EXPECT(text != NULL);
    *size = text != NULL ? scratch_read(name, text, capacity - 1) : 0;
    if (text != NULL)
        text[*size] = 0;
    scratch_remove(name);
    return text;
}
