/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The fields of an rg_padding, for the group "padding" of every op with windows. */
#ifndef RG_OPS_PADDING_FIELDS_H
#define RG_OPS_PADDING_FIELDS_H

#include "runtime/field.h"

extern const rg_field rg_padding_fields[];

#endif
