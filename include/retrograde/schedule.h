/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Schedules: the learning rate of a step, as plain functions of how many steps were taken before.
 *
 *  A schedule is written to the tensor `rate` of an optimizer before each step, or each epoch:
 *
 *      const float rate = (float)rg_rate_warmup(rg_rate_cosine(0.1, 0, 9000, done), 500, done);
 *
 *  `done` is 0 for the first step; less than 0 counts as 0. */
#ifndef RETROGRADE_SCHEDULE_H
#define RETROGRADE_SCHEDULE_H

#include <retrograde/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** rate, at any time. */
RG_API double rg_rate_constant(double rate, int64_t done);

/** rate · factor^⌊done / every⌋: torch's StepLR. `every` less than 1: never a step down. */
RG_API double rg_rate_step(double rate, double factor, int64_t every, int64_t done);

/** From rate down to least along half a cosine, which takes `steps`, and least from then on:
 *  least + (rate − least) · (1 + cos(π · done / steps)) / 2. `steps` less than 1: least. */
RG_API double rg_rate_cosine(double rate, double least, int64_t steps, int64_t done);

/** rate · (done + 1) / steps for the first `steps`, then rate: a factor applied to any schedule.
 */
RG_API double rg_rate_warmup(double rate, int64_t steps, int64_t done);

#ifdef __cplusplus
}
#endif

#endif
