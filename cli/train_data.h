/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The parts of a data set that `train` uses, and `eval` finds again. */
#ifndef RG_CLI_TRAIN_DATA_H
#define RG_CLI_TRAIN_DATA_H

#include "cli/train_options.h"

typedef struct rg_train_data {
    rg_dataset *train;
    rg_dataset *validation; /* a part of its own, or held back from the training
                               data; NULL: none */
    rg_dataset *test;
    bool has_validation_part; /* which is used in place of a share of the training data */
    bool has_test_part; /* false: the test images were held back from the training data, too */
} rg_train_data;

/* Opens the data of a request and splits it: the same options give the same images. The parts are
 * released with rg_train_data_close(), also after a failure. */
rg_status rg_train_data_open(const rg_train_request *request, rg_train_data *data);

/* Splits a set without parts as rg_train_data_open() does; it stays the caller's. */
rg_status rg_train_data_divide(const rg_train_request *request, const rg_dataset *whole,
                               rg_train_data *data);

/* How a set is opened: its size is that of the request, and sentences go to stderr. */
rg_status rg_train_data_options(const rg_train_request *request, rg_dataset_options *options);
void rg_train_data_close(rg_train_data *data);

/* The share of images that is held back where a data set has no test part. */
#define RG_TRAIN_TEST_FRACTION 0.1

#endif
