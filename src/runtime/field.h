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

/* Entries of a table of fields. Name, type and length are those of the member:
 *      RG_FIELD            a bool, a number, or an array of numbers
 *      RG_FIELD_IN         numbers from `least` to `most`
 *      RG_FIELD_COUNTED    likewise, <member>_count of them; 0, 0: any
 *      RG_FIELD_OPTIONAL   a number, given where has_<member> is true
 *      RG_FIELD_NAMED      an enum
 *      RG_FIELD_STRUCT     a group */
#define RG_FIELD(desc, member, line) RG_FIELD_VALUE_(desc, member, .text = line)
#define RG_FIELD_IN(desc, member, least, most, line) \
    RG_FIELD_VALUE_(desc, member, .low = least, .high = most, .text = line)
#define RG_FIELD_COUNTED(desc, member, least, most, line)                                \
    RG_FIELD_VALUE_(desc, member, .count = offsetof(desc, member##_count), .low = least, \
                    .high = most, .text = line)
#define RG_FIELD_OPTIONAL(desc, member, line) \
    RG_FIELD_VALUE_(desc, member, .present = offsetof(desc, has_##member), .text = line)
#define RG_FIELD_NAMED(desc, member, values, line) \
    RG_FIELD_(desc, member, RG_FIELD_ENUM, .names = values, .text = line)
#define RG_FIELD_STRUCT(desc, member, members, line) \
    RG_FIELD_(desc, member, RG_FIELD_GROUP, .fields = members, .text = line)

#define RG_FIELD_(desc, member, kind, ...)                                           \
    {                                                                                \
        .name = #member, .type = kind, .offset = offsetof(desc, member), __VA_ARGS__ \
    }
#define RG_FIELD_VALUE_(desc, member, ...)                       \
    RG_FIELD_(desc, member, RG_FIELD_TYPE_(((desc *)0)->member), \
              .length = RG_FIELD_LENGTH_(((desc *)0)->member), __VA_ARGS__)
/* In _Generic an array is a pointer to its first element. */
/* clang-format off */
#define RG_FIELD_TYPE_(member)                                                             \
    _Generic((member), bool: RG_FIELD_BOOL, double: RG_FIELD_F64, double *: RG_FIELD_F64,  \
             int32_t: RG_FIELD_I32, int32_t *: RG_FIELD_I32, int64_t: RG_FIELD_I64,        \
             int64_t *: RG_FIELD_I64)
#define RG_FIELD_LENGTH_(member)                                                           \
    ((int32_t)sizeof(member) /                                                             \
     _Generic((member), int32_t *: 4, int64_t *: 8, double *: 8, default: INT32_MAX))
/* clang-format on */

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
