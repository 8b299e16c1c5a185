/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization of any number of channels: row by row. */
#include "ops/batch_norm/batch_norm_record.h"

static bool accepts(const rg_call *call, const void *request)
{
    (void)call, (void)request;
    return true;
}

static rg_status record(rg_call *call, const void *request)
{
    return rg_batch_norm_record(call, request, false);
}

const rg_strategy rg_batch_norm_rows = { "rows", accepts, record };
