/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a group needs of MPI, in types of plain C. Libraries of MPI before its standard ABI differ
 * in the size of handles, so that this table is filled in by a file that is compiled for each
 * (mpi_shim.c), or by one for the standard ABI (mpi_abi.c). */
#ifndef RG_GROUP_MPI_TABLE_H
#define RG_GROUP_MPI_TABLE_H

enum { RG_MPI_TABLE = 4 }; /* its version */

/* Errors of `start`, beside those of the library. */
enum {
    RG_MPI_STARTED_BEFORE = -1, /* by somebody else, or it has ended */
    RG_MPI_ONE_THREAD = -2      /* it allows no thread but the main one */
};

/* A message under way: a handle of the library, whatever its size. */
typedef struct rg_mpi_request {
    void *words[2];
} rg_mpi_request;

/* Functions return 0, or an error of the library. */
typedef struct rg_mpi_table {
    int version;
    int (*start)(int *rank, int *size); /* all calls come from the thread of this one */
    int (*send)(const void *data, int bytes, int to, int tag, rg_mpi_request *request);
    int (*receive)(void *data, int bytes, int from, int tag, rg_mpi_request *request);
    /* Sums over all ranks, in place, in the order of the library. */
    int (*sum)(void *elements, int count, int are_doubles, rg_mpi_request *request);
    /* *bytes: what has come, once a message is received; NULL for other requests. */
    int (*test)(rg_mpi_request *request, int *done, int *bytes);
    void (*describe)(char text[256]);
    void (*error_text)(int error, char text[256]);
    int (*finish)(void);
} rg_mpi_table;

/* The function that a library built from mpi_shim.c exports. */
typedef const rg_mpi_table *rg_mpi_shim_function(void);
#define RG_MPI_SHIM_NAME "rg_mpi_shim"

#endif
