/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* NCCL. Its functions are declared here, as of version 2.14, and found at run time, so that neither
 * a compiler nor a machine needs it. Communicators do not block: while they wait, lost ranks are
 * looked for. */
#include "group/nccl.h"
#include "group/group_parts.h"

#include "core/clock.h"
#include "core/memory.h"
#include "runtime/objects.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- as nccl.h declares it ---- */

enum { SUCCESS = 0, IN_PROGRESS = 7, SUM = 0, FLOAT32 = 7, FLOAT64 = 8 };
enum { OLDEST = 21400 };

typedef struct unique_id {
    char internal[128];
} unique_id;

/* The fields of version 2.14; a later library takes its own defaults for the others. */
typedef struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
} config;

/* The functions, once the library is open. */
static struct {
    bool is_open;
    int (*get_version)(int *version);
    int (*get_unique_id)(unique_id *id);
    int (*init_rank)(void **comm, int ranks, unique_id id, int rank, config *config);
    int (*async_error)(void *comm, int *error);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int op, void *comm,
                      void *stream);
    int (*abort)(void *comm);
    int (*destroy)(void *comm);
    const char *(*error_string)(int error);
} nccl;

static rg_status find_functions(void *library)
{
    static const struct {
        const char *name;
        void *to;
    } names[] = {
        { "ncclGetVersion", &nccl.get_version },
        { "ncclGetUniqueId", &nccl.get_unique_id },
        { "ncclCommInitRankConfig", &nccl.init_rank },
        { "ncclCommGetAsyncError", &nccl.async_error },
        { "ncclAllReduce", &nccl.all_reduce },
        { "ncclCommAbort", &nccl.abort },
        { "ncclCommDestroy", &nccl.destroy },
        { "ncclGetErrorString", &nccl.error_string },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *const found = dlsym(library, names[i].name);
        RG_CHECK(found != NULL, RG_UNSUPPORTED,
                 "the NCCL library has no %s; version 2.14 or later is needed", names[i].name);
        memcpy(names[i].to, &found, sizeof found);
    }
    return RG_OK;
}

static rg_status open_library(void)
{
    const char *named = getenv("RG_NCCL");
    int version = 0;
    if (nccl.is_open)
        return RG_OK;
    void *library =
        dlopen(named != NULL && named[0] != 0 ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        return rg_fail(RG_UNSUPPORTED,
                       "NCCL, which sums over GPUs, cannot be opened: %s; set RG_NCCL to its path",
                       why != NULL ? why : "");
    }
    RG_TRY(find_functions(library));
    RG_CHECK(nccl.get_version(&version) == SUCCESS && version >= OLDEST, RG_UNSUPPORTED,
             "version 2.14 or later of NCCL is needed, and this is %d", version);
    nccl.is_open = true;
    return RG_OK;
}

/* ---- a communicator ---- */

struct rg_nccl {
    rg_group *group;
    void *context; /* the backend's */
    const rg_backend_streams *streams;
    void *stream, *comm;
    bool is_joined;
};

static rg_status failed(const char *what, int error)
{
    return rg_fail(RG_IO, "NCCL failed: %s: %s", what, nccl.error_string(error));
}

static rg_status check_ranks(const rg_group *group)
{
    RG_CHECK(!group->is_lost, RG_IO, "%s", group->lost_text);
    sched_yield();
    return RG_OK;
}

/* Waits until a call is complete: not until what it has put into the stream has run. */
static rg_status settle(const rg_nccl *n, const char *what, int error)
{
    while (error == IN_PROGRESS) {
        RG_TRY(check_ranks(n->group));
        const int asked = nccl.async_error(n->comm, &error);
        if (asked != SUCCESS)
            return failed(what, asked);
    }
    return error == SUCCESS ? RG_OK : failed(what, error);
}

/* ---- joining ---- */

typedef char identity[RG_DEVICE_IDENTITY];

/* NCCL refuses two ranks on one GPU; it says so less plainly. */
static rg_status check_devices(rg_group *group, const identity mine)
{
    const size_t count = (size_t)group->size;
    identity *all;
    RG_TRY(rg_allocate_array(count, sizeof *all, &all));
    rg_status status = rg_group_gather(group, mine, sizeof *all, all);
    for (size_t i = 0; i < count && status == RG_OK; i++) {
        for (size_t k = i + 1; k < count && status == RG_OK; k++) {
            if (memcmp(all[i], all[k], sizeof *all) == 0)
                status = rg_fail(RG_INVALID_ARGUMENT,
                                 "ranks %zu and %zu share one GPU, and NCCL needs a GPU for each "
                                 "rank; without fast sums gradients go through memory of the host",
                                 i, k);
        }
    }
    rg_release(allocator, all, count * sizeof *all);
    return status;
}

static rg_status join(rg_nccl *n)
{
    rg_group *group = n->group;
    config c = { .size = sizeof c, .magic = 0xcafebeef, .version = OLDEST, .blocking = 0 };
    unique_id id = { { 0 } };
    int error = SUCCESS;
    if (group->rank == 0)
        error = nccl.get_unique_id(&id);
    if (error != SUCCESS)
        return failed("an id", error);
    RG_TRY(rg_group_broadcast(group, &id, sizeof id, 0));
    RG_TRY(settle(n, "joining", nccl.init_rank(&n->comm, group->size, id, group->rank, &c)));
    n->is_joined = true;
    return RG_OK;
}

static rg_status begin(rg_nccl *n)
{
    identity mine = { 0 };
    RG_TRY(open_library());
    RG_TRY(n->streams->identify(n->context, mine));
    RG_TRY(check_devices(n->group, mine));
    RG_TRY(n->streams->open(n->context, &n->stream));
    const int before = n->streams->enter(n->context);
    const rg_status status = join(n);
    n->streams->leave(n->context, before);
    return status;
}

rg_status rg_nccl_create(rg_group *group, rg_device *device, rg_nccl **made)
{
    void *memory;
    *made = NULL;
    RG_CHECK(rg_device_streams(device) != NULL, RG_UNSUPPORTED,
             "NCCL sums on GPUs alone, not on %s", device->name);
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_nccl), &memory));
    rg_nccl *n = memory;
    *n = (rg_nccl){ .group = group,
                    .context = device->context,
                    .streams = rg_device_streams(device) };
    const rg_status status = begin(n);
    if (status != RG_OK) {
        rg_nccl_destroy(n);
        return status;
    }
    *made = n;
    return RG_OK;
}

void rg_nccl_destroy(rg_nccl *n)
{
    if (n == NULL)
        return;
    const int before = n->streams->enter(n->context);
    if (n->comm != NULL) /* ranks that are lost are not waited for */
        (void)(n->is_joined && !n->group->is_lost ? nccl.destroy : nccl.abort)(n->comm);
    n->streams->leave(n->context, before);
    if (n->stream != NULL)
        n->streams->close(n->context, n->stream);
    rg_release(allocator, n, sizeof *n);
}

/* ---- sums ---- */

static rg_status sum(rg_nccl *n, void *elements, rg_dtype dtype, int64_t count)
{
    bool done = false;
    RG_TRY(settle(n, "a sum",
                  nccl.all_reduce(elements, elements, (size_t)count,
                                  dtype == RG_F64 ? FLOAT64 : FLOAT32, SUM, n->comm, n->stream)));
    while (!done) {
        RG_TRY(n->streams->test(n->context, n->stream, &done));
        if (!done)
            RG_TRY(check_ranks(n->group));
    }
    return RG_OK;
}

rg_status rg_nccl_sum(rg_nccl *n, void *elements, rg_dtype dtype, int64_t count)
{
    const double began = rg_seconds();
    const int before = n->streams->enter(n->context);
    rg_status status = sum(n, elements, dtype, count);
    if (status != RG_OK && n->comm != NULL) { /* its kernels may wait for ever */
        (void)nccl.abort(n->comm);
        n->comm = NULL;
    }
    n->streams->leave(n->context, before);
    n->group->seconds += rg_seconds() - began;
    n->group->bytes +=
        count * (int64_t)rg_dtype_size(dtype) * 2 * (n->group->size - 1) / n->group->size;
    return status;
}
