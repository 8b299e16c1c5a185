/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* MPI for groups, compiled by the mpicc of a library that has no standard ABI: Open MPI 4 and 5,
 * MPICH before 5. */
#include "group/mpi_table.h"

#include <mpi.h>

#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(rg_mpi_request), "a request fits");

static int start(int *rank, int *size)
{
    int provided, started = 0;
    MPI_Initialized(&started); /* true also after its end */
    if (started)
        return RG_MPI_STARTED_BEFORE;
    const int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (error != MPI_SUCCESS)
        return error;
    if (provided < MPI_THREAD_FUNNELED)
        return RG_MPI_ONE_THREAD;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    return MPI_Comm_size(MPI_COMM_WORLD, size);
}

static int send(const void *data, int bytes, int to, int tag, rg_mpi_request *request)
{
    MPI_Request r;
    const int error = MPI_Isend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &r);
    memcpy(request, &r, sizeof r);
    return error;
}

static int receive(void *data, int bytes, int from, int tag, rg_mpi_request *request)
{
    MPI_Request r;
    const int error = MPI_Irecv(data, bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, &r);
    memcpy(request, &r, sizeof r);
    return error;
}

static int sum(void *elements, int count, int are_doubles, rg_mpi_request *request)
{
    MPI_Request r;
    const int error =
        MPI_Iallreduce(MPI_IN_PLACE, elements, count, are_doubles ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM,
                       MPI_COMM_WORLD, &r);
    memcpy(request, &r, sizeof r);
    return error;
}

static int test(rg_mpi_request *request, int *done, int *bytes)
{
    MPI_Request r;
    MPI_Status status;
    memcpy(&r, request, sizeof r);
    const int error = MPI_Test(&r, done, &status);
    memcpy(request, &r, sizeof r);
    return error == MPI_SUCCESS && *done && bytes != NULL ? MPI_Get_count(&status, MPI_BYTE, bytes)
                                                          : error;
}

static void describe(char text[256])
{
    char all[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    MPI_Get_library_version(all, &length);
    strncpy(text, all, 255);
    text[255] = 0;
}

static void error_text(int error, char text[256])
{
    char all[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(error, all, &length);
    strncpy(text, all, 255);
    text[255] = 0;
}

static int finish(void)
{
    return MPI_Finalize();
}

const rg_mpi_table *rg_mpi_shim(void);
__attribute__((visibility("default"))) const rg_mpi_table *rg_mpi_shim(void)
{
    static const rg_mpi_table table = { RG_MPI_TABLE, start,    send,       receive, sum,
                                        test,         describe, error_text, finish };
    return &table;
}
