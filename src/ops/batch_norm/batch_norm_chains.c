/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization of few channels: several rows at a time, so that loops are long. */
#include "ops/batch_norm/batch_norm_record.h"
#include "ops/transpose/channels_last.h"

static bool accepts(const rg_call *call, const void *request)
{
    (void)request;
    return rg_channels_are_short(rg_batch_norm_channels_of(call->x[0]));
}

static rg_status forward(rg_call *call)
{
    return rg_batch_norm_record(call,
                                &(rg_batch_norm_request){ .gradient = false, .chained = true });
}

static rg_status gradient(rg_call *call)
{
    return rg_batch_norm_record(call,
                                &(rg_batch_norm_request){ .gradient = true, .chained = true });
}

static rg_status record(rg_call *call, const void *request)
{
    return ((const rg_batch_norm_request *)request)->gradient
               ? rg_channels_last_gradient(call, gradient)
               : rg_channels_last_forward(call, forward);
}

const rg_strategy rg_batch_norm_chains = { "chains", accepts, record };
