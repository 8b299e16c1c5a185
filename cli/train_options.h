/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What `retrograde train` is asked to do. */
#ifndef RG_CLI_TRAIN_OPTIONS_H
#define RG_CLI_TRAIN_OPTIONS_H

#include "cli/arguments.h"

#include <retrograde/trainer.h>

typedef struct rg_train_request {
    /* of this run alone */
    const char *device, *out, *resume, *mpi;
    int64_t threads, workers, memory, stop;
    bool json, help;
    bool quiet;       /* another rank says what there is to say of the data */
    int64_t channels; /* of images in files; 0: by the images */
    bool (*watch)(void *context, int64_t done, int64_t of); /* while images are read; NULL: none */
    void *watched;
    const struct rg_train_show *show; /* whose line of progress makes room for sentences, or NULL */
    bool splits_always;               /* as older versions did, which used no validation part */
    /* kept in checkpoints */
    const char *data, *size, *model, *dtype, *optimizer, *schedule, *loss;
    const char *weights, *head, *freeze, *rates, *normalize;
    int64_t epochs, batch, accumulate, micro_batches, seed, shift, crop, patience, warmup,
        drop_every;
    double rate, momentum, decay, validation, drop;
    bool mirror, fast, sync_batch_norm;
} rg_train_request;

enum { RG_TRAIN_OPTIONS = 48, RG_TRAIN_NOT_GIVEN = -1 /* of rate, stop and micro_batches */ };

rg_train_request rg_train_defaults(void);
/* The data set where none is asked for: it may be missing. */
extern const char rg_train_default_data[];

/* rg_model_open(); a file that cannot be opened may be a built-in model that is misspelt. */
rg_status rg_open_model(const char *name, rg_model **model);

/* The table of all options, whose values go into `request`. */
void rg_train_options(rg_train_request *request, rg_option table[RG_TRAIN_OPTIONS]);

/* Those that a checkpoint keeps, as "name=value" lines; to be freed. */
char *rg_train_options_text(rg_train_request *request);
/* Sets them from such a text, which is changed and must outlive the request. */
rg_status rg_train_options_read(rg_train_request *request, char *text);

/* The height and width that --size asks for; 0 and 0: none. RG_INVALID_ARGUMENT with a sentence. */
rg_status rg_train_size(const char *text, int64_t *height, int64_t *width);

/* Takes the size of an ONNX model's images where none is asked for; `text` receives it. */
enum { RG_TRAIN_SIZE_TEXT = 48 };
rg_status rg_train_take_size(const rg_model *model, rg_train_request *request,
                             char text[RG_TRAIN_SIZE_TEXT]);

/* Checks what the table cannot. */
rg_status rg_train_options_check(const rg_train_request *request);

/* How a trainer shall train, of options that were checked. */
rg_status rg_train_desc(const rg_train_request *request, rg_trainer_desc *desc);
/* The rate that was given, or the one that fits the optimizer. */
double rg_train_base_rate(const rg_train_request *request);

#endif
