/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Descriptors as JSON objects, for whatever holds one. */
#ifndef RG_FILES_KERNEL_JSON_H
#define RG_FILES_KERNEL_JSON_H

#include "files/json.h"
#include "runtime/field.h"

/* Adds {"kind": "log", "window": [3, 3], "group": {"field": null}}. Infinity, which JSON lacks, is
 * the string "inf" or "-inf". */
void rg_fields_to_json(const rg_fields *fields, const void *desc, rg_text *to);

/* Sets the fields that `object` holds; the others keep their values. Ranges are left to
 * rg_fields_copy. `who` begins the sentence. */
rg_status rg_fields_from_json(const rg_fields *fields, const char *who, const rg_json *json,
                              const rg_json_value *object, void *desc);

#endif
