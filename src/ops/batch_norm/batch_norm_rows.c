/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization of any number of channels: row by row. */
#include "ops/batch_norm/batch_norm_record.h"
#include "ops/transpose/channels_last.h"

static bool accepts(const rg_call *call, const void *request)
{
    (void)call, (void)request;
    return true;
}

static rg_status forward(rg_call *call)
{
    return rg_batch_norm_record(call,
                                &(rg_batch_norm_request){ .gradient = false, .chained = false });
}

static rg_status gradient(rg_call *call)
{
    return rg_batch_norm_record(call,
                                &(rg_batch_norm_request){ .gradient = true, .chained = false });
}

static rg_status record(rg_call *call, const void *request)
{
    return ((const rg_batch_norm_request *)request)->gradient
               ? rg_channels_last_gradient(call, gradient)
               : rg_channels_last_forward(call, forward);
}

const rg_strategy rg_batch_norm_rows = { "rows", accepts, record };
