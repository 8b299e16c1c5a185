/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Schedules of learning rates. */
#include <retrograde/schedule.h>

#include <math.h>

double rg_rate_constant(double rate, int64_t done)
{
    (void)done;
    return rate;
}

double rg_rate_step(double rate, double factor, int64_t every, int64_t done)
{
    if (every < 1 || done < every)
        return rate;
    return rate * pow(factor, (double)(done / every));
}

double rg_rate_cosine(double rate, double least, int64_t steps, int64_t done)
{
    const double pi = 3.14159265358979323846;
    if (steps < 1 || done >= steps)
        return least;
    if (done <= 0)
        return rate;
    return least + (rate - least) * (1 + cos(pi * ((double)done / (double)steps))) / 2;
}

double rg_rate_warmup(double rate, int64_t steps, int64_t done)
{
    done = done > 0 ? done : 0;
    return done >= steps ? rate : rate * ((double)done + 1) / (double)steps;
}
