/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* One random trial: everything that decides it, as a struct and as a line of text. */
#ifndef RG_CLI_RANDOM_CASE_H
#define RG_CLI_RANDOM_CASE_H

#include "cli/check.h"

enum { RG_RANDOM_TEXT = 4096 };

/* What a trial is for. */
typedef enum rg_random_kind {
    RG_RANDOM_COMPUTE, /* results against the definition */
    RG_RANDOM_REFUSE,  /* calls that must be refused, or that overlap */
    RG_RANDOM_KINDS
} rg_random_kind;

typedef struct rg_random_case {
    const rg_op_test *test;
    rg_random_kind kind;
    rg_dtype dtype;
    char fields[1024], shapes[512]; /* as in an rg_case */
    rg_fill x_fill[RG_MAX_INPUTS], dy_fill;
    uint32_t flags; /* RG_CASE_ */
    bool faults;
    uint64_t seed; /* of values, and of what forms choose */
    rg_views views;
    char isa[16];      /* "": as the device is */
    char strategy[40]; /* forced; "": none */
    int32_t threads;
    uint32_t forms; /* RG_FORM_ */
} rg_random_case;

/* "dtype=f16; fields=kind=max; x=2,3,4; seed=7; ..." and back. The op is not part of it. */
void rg_random_text(const rg_random_case *c, char text[RG_RANDOM_TEXT]);
rg_status rg_random_parse(const rg_op_test *test, const char *text, rg_random_case *c);

/* The fields of a descriptor that are not as by default. */
void rg_random_fields(const rg_op *op, const void *desc, char *text, size_t capacity);
/* "2,3,4 i32:4" of shapes; what a dtype is not said of has that of the trial. */
void rg_random_shapes(const rg_tensor_desc x[], int32_t inputs, rg_dtype dtype, char *text,
                      size_t capacity);

/* Which trials are drawn. */
typedef struct rg_random_limits {
    const char *dtype, *isa, *strategy; /* or NULL */
    int32_t threads;                    /* or 0 */
    bool is_cpu;
} rg_random_limits;

/* Trial `number` of `seed`, for one op. False: nothing was found that the op takes. */
bool rg_random_draw(const rg_op_test *test, uint64_t seed, int64_t number,
                    const rg_random_limits *limits, rg_random_case *c);

/* Detects results that are too ill-conditioned to be compared. */
void rg_random_judge(rg_values *values);

/* ---- running ---- */

typedef struct rg_random_counts {
    int64_t comparisons, refused, failures, unsure, results;
} rg_random_counts;

/* Devices are opened when first needed, and kept. */
typedef struct rg_random_devices rg_random_devices;
rg_random_devices *rg_random_devices_open(const char *device);
void rg_random_devices_close(rg_random_devices *devices);

/* Runs a trial and adds to the counts; `said` receives the first failure, or "". Returns a status
 * other than RG_OK where the trial cannot be made: a case that the op does not take. */
rg_status rg_random_run(rg_random_devices *devices, const rg_random_case *c,
                        rg_random_counts *counts, char said[RG_SAID]);

/* A dense tensor with values[i + roll], or not filled where there are none. */
rg_status rg_random_tensor(rg_device *device, const rg_tensor_desc *desc, const double *values,
                           int64_t roll, rg_tensor **tensor);

/* Other forms of the calls: batches, results made by the call, temporaries, kernels from JSON. They
 * must have the bits of a plain call. */
void rg_random_forms(rg_checker *checker, const rg_values *values, uint32_t forms, uint64_t seed);

/* Calls that must be refused, and leave all tensors as they were. */
void rg_random_refuse(rg_checker *checker, const rg_values *values, uint64_t seed,
                      int64_t *refused);

#endif
