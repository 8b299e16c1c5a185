/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Fields: the table that describes an op's descriptor. Checking, comparing, printing and reading
 * a descriptor, from the command line or from JSON, all follow from it. */
#ifndef RG_RUNTIME_FIELD_H
#define RG_RUNTIME_FIELD_H

#include "core/status.h"

typedef enum rg_field_type {
    RG_FIELD_BOOL,
    RG_FIELD_I32,
    RG_FIELD_I64,
    RG_FIELD_F64,
    RG_FIELD_ENUM,  /* an int with names */
    RG_FIELD_GROUP, /* a struct with fields of its own, named "group.field" */
} rg_field_type;

typedef struct rg_field {
    const char *name;
    rg_field_type type;
    uint32_t offset;  /* in the descriptor, or in its group */
    int32_t length;   /* of an array; 0: a single value */
    uint32_t count;   /* offset of an int32_t with the used length of the array; 0: all of it */
    uint32_t present; /* offset of a bool, true where an optional field is given; 0: always */
    double low, high; /* of a number; both 0: no bounds */
    const char *const *names;      /* of an enum, NULL at the end */
    const struct rg_field *fields; /* of a group, name NULL at the end */
    const char *text;              /* one line for people */
} rg_field;

/* The fields of a descriptor: `fields` ends with a NULL name; `defaults` is the descriptor as
 * rg_<op>_desc_default() gives it, `size` its size. The first member of a descriptor is its
 * uint32_t size. */
typedef struct rg_fields {
    const rg_field *fields;
    const void *defaults;
    size_t size;
} rg_fields;

/* The longest descriptor, so that one fits on the stack. */
enum { RG_MAX_DESC = 512 };

/* Copies a caller's descriptor, which may be of an older version and so shorter, and checks all
 * ranges. `who` begins the sentence. */
rg_status rg_fields_copy(const rg_fields *fields, const char *who, const void *from, void *to);

/* Sets one field from text: "1", "3,3", "true", "log", "none" for an absent optional one. */
rg_status rg_fields_set(const rg_fields *fields, const char *who, void *desc, const char *name,
                        const char *value);

/* Sets fields from "axis=1 kind=log". */
rg_status rg_fields_parse(const rg_fields *fields, const char *who, void *desc, const char *text);

/* Walks over every single field, groups opened: `visit` receives its full name and its value as
 * text. */
typedef void rg_field_visit(void *context, const char *name, const rg_field *field,
                            const char *value);
void rg_fields_each(const rg_fields *fields, const void *desc, rg_field_visit *visit,
                    void *context);

/* "kind=log axis=1" as snprintf would write it. */
size_t rg_fields_text(const rg_fields *fields, const void *desc, char *text, size_t capacity);
bool rg_fields_equal(const rg_fields *fields, const void *a, const void *b);

#endif
