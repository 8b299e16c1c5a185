/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* MPI for groups by the standard ABI of MPI 5: handles are pointers, constants have fixed values,
 * and any library that has it can be opened at run time. */
#include "group/group_parts.h"

#include <dlfcn.h>
#include <string.h>

enum { FUNNELED = 1024 };

static void *const comm_world = (void *)0x101, *const byte = (void *)0x247,
                   *const errors_return = (void *)0x143, *const real = (void *)0x210,
                   *const real64 = (void *)0x214, *const op_sum = (void *)0x21,
                   *const in_place = (void *)1;

/* The functions, once a library is open: a process has one MPI. */
static struct {
    int (*abi_version)(int *major, int *minor);
    int (*initialized)(int *flag);
    int (*init_thread)(int *argc, char ***argv, int required, int *provided);
    int (*set_errhandler)(void *comm, void *handler);
    int (*comm_rank)(void *comm, int *rank);
    int (*comm_size)(void *comm, int *size);
    int (*isend)(const void *data, int count, void *type, int to, int tag, void *comm,
                 void **request);
    int (*irecv)(void *data, int count, void *type, int from, int tag, void *comm, void **request);
    int (*iallreduce)(const void *from, void *to, int count, void *type, void *op, void *comm,
                      void **request);
    int (*test)(void **request, int *done, void *status);
    int (*get_count)(const void *status, void *type, int *count);
    int (*library_version)(char *text, int *length);
    int (*error_string)(int error, char *text, int *length);
    int (*finalize)(void);
} mpi;

static int start(int *rank, int *size)
{
    int provided, started = 0;
    mpi.initialized(&started); /* true also after its end */
    if (started)
        return RG_MPI_STARTED_BEFORE;
    const int error = mpi.init_thread(NULL, NULL, FUNNELED, &provided);
    if (error != 0)
        return error;
    if (provided < FUNNELED)
        return RG_MPI_ONE_THREAD;
    mpi.set_errhandler(comm_world, errors_return);
    mpi.comm_rank(comm_world, rank);
    return mpi.comm_size(comm_world, size);
}

static int send(const void *data, int bytes, int to, int tag, rg_mpi_request *request)
{
    return mpi.isend(data, bytes, byte, to, tag, comm_world, &request->words[0]);
}

static int receive(void *data, int bytes, int from, int tag, rg_mpi_request *request)
{
    return mpi.irecv(data, bytes, byte, from, tag, comm_world, &request->words[0]);
}

static int sum(void *elements, int count, int are_doubles, rg_mpi_request *request)
{
    return mpi.iallreduce(in_place, elements, count, are_doubles ? real64 : real, op_sum,
                          comm_world, &request->words[0]);
}

static int test(rg_mpi_request *request, int *done, int *bytes)
{
    int status[8]; /* MPI_Status */
    const int error = mpi.test(&request->words[0], done, status);
    return error == 0 && *done && bytes != NULL ? mpi.get_count(status, byte, bytes) : error;
}

static void describe(char text[256])
{
    char all[8192] = "";
    int length;
    mpi.library_version(all, &length);
    strncpy(text, all, 255);
    text[255] = 0;
}

static void error_text(int error, char text[256])
{
    char all[512] = "";
    int length;
    mpi.error_string(error, all, &length);
    strncpy(text, all, 255);
    text[255] = 0;
}

static int finish(void)
{
    return mpi.finalize();
}

const rg_mpi_table *rg_mpi_abi_table(void *library)
{
    static const rg_mpi_table table = { RG_MPI_TABLE, start,    send,       receive, sum,
                                        test,         describe, error_text, finish };
    static const struct {
        const char *name;
        void *to;
    } names[] = {
        { "MPI_Abi_get_version", &mpi.abi_version },
        { "MPI_Initialized", &mpi.initialized },
        { "MPI_Init_thread", &mpi.init_thread },
        { "MPI_Comm_set_errhandler", &mpi.set_errhandler },
        { "MPI_Comm_rank", &mpi.comm_rank },
        { "MPI_Comm_size", &mpi.comm_size },
        { "MPI_Isend", &mpi.isend },
        { "MPI_Irecv", &mpi.irecv },
        { "MPI_Iallreduce", &mpi.iallreduce },
        { "MPI_Test", &mpi.test },
        { "MPI_Get_count", &mpi.get_count },
        { "MPI_Get_library_version", &mpi.library_version },
        { "MPI_Error_string", &mpi.error_string },
        { "MPI_Finalize", &mpi.finalize },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *const found = dlsym(library, names[i].name);
        if (found == NULL)
            return NULL;
        memcpy(names[i].to, &found, sizeof found);
    }
    int major = -1, minor = -1; /* as a library with other constants says */
    return mpi.abi_version(&major, &minor) == 0 && major == 1 ? &table : NULL;
}
