/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What people and machines see while a network is trained: a bar that moves on a terminal, a line
 * an epoch elsewhere, JSON where asked for. */
#ifndef RG_CLI_TRAIN_SHOW_H
#define RG_CLI_TRAIN_SHOW_H

#include <retrograde/trainer.h>

#include <math.h>

typedef struct rg_train_show {
    bool json, terminal;
    bool is_plain;          /* the terminal shows ASCII alone */
    bool silent;            /* another rank tells */
    int64_t epochs, images; /* of the whole run; of an epoch */
    double began;           /* this run */
    double drawn;           /* the bar, last */
    int64_t done_before;    /* images of epochs and parts that earlier runs have seen */
    const char *metric;     /* what scores are called */
} rg_train_show;

/* What the score of a network is called: "accuracy", or for values "absolute error". */
const char *rg_score_name(rg_target_kind target);

/* The scores of a test, "accuracy 99.30 %, loss 0.0505", without a line end. */
void rg_show_result(rg_target_kind target, int32_t classes, const rg_trainer_result *result);

/* A number for printf, which would tell the sign of NaN: it means nothing. */
static inline double rg_shown(double value)
{
    return isnan(value) ? (double)NAN : value;
}

/* Seconds since some moment of the past. */
double rg_show_clock(void);

void rg_show_begin(rg_train_show *show, bool json, int64_t epochs, int64_t images);
/* A sentence about the run: on stderr with --json. */
__attribute__((format(printf, 2, 3))) void rg_show_say(const rg_train_show *show,
                                                       const char *format, ...);
/* Takes the bar away, before something else is written. */
void rg_show_clear(const rg_train_show *show);
/* Images that are read before training; a line from the first second on. */
void rg_show_reading(rg_train_show *show, int64_t done, int64_t of);
void rg_show_progress(rg_train_show *show, const rg_trainer_progress *progress);
/* `validation` is NULL where there is none. */
void rg_show_epoch(rg_train_show *show, const rg_trainer_progress *progress,
                   const rg_trainer_result *validation);
void rg_show_end(const rg_train_show *show, const rg_network_desc *network,
                 const rg_trainer_result *test, double seconds, const char *report,
                 const char *path);

#endif
