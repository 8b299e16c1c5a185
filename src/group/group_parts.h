/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a group is made of, for the files of this folder.
 *
 *  All calls of MPI come from one thread (group_thread.c), which also calls MPI_Init_thread: that
 *  is the least that MPI asks for (MPI_THREAD_FUNNELED), and sums can run while the caller
 *  computes. Messages never block in MPI: the thread tests them and looks whether a rank is lost.
 */
#ifndef RG_GROUP_GROUP_PARTS_H
#define RG_GROUP_GROUP_PARTS_H

#include "group/mpi_table.h"
#include "core/status.h"
#include "core/thread.h"

#include <retrograde/group.h>

#include <stdatomic.h>

enum { RG_GROUP_TEXT = 480, RG_GROUP_HOST = 72 }; /* Linux: names of 64 */
enum { RG_TAG = 26, RG_TAG_OF_LAST };             /* of messages */

/* ---- launchers ---- */

/* Who has started this process. */
typedef struct rg_launcher {
    const char *name;      /* "" for none */
    const char *rank_name; /* of the variable with the rank */
    int32_t rank, size;    /* -1 and 0: unknown */
    bool is_local;         /* all are on this machine */
    bool is_slurm_only;    /* srun has started several, and none can find the others */
} rg_launcher;
rg_launcher rg_launcher_find(void);

/* ---- libraries of MPI ---- */

/* Opens the library that is asked for, or the one that fits the launcher. */
rg_status rg_mpi_open(const char *asked, const rg_launcher *launcher, const rg_mpi_table **table);
/* NULL: this library lacks a function. */
const rg_mpi_table *rg_mpi_abi_table(void *library);

/* ---- the group ---- */

/* Work for the thread. */
typedef struct rg_group_job {
    rg_status (*run)(rg_group *group, struct rg_group_job *job);
    void *data, *result;
    size_t bytes; /* of data */
    int64_t count;
    rg_dtype dtype;
    int32_t root;
    struct rg_group_job *next;
    bool is_kept; /* by the group: it was started and is waited for later */
    bool is_last; /* of a rank that leaves */
    bool is_done;
    rg_status status;
    char text[RG_GROUP_TEXT];
} rg_group_job;

typedef struct rg_heartbeat rg_heartbeat;

struct rg_group {
    rg_group_desc desc;
    rg_launcher launcher;
    int32_t rank, size, local_rank, local_size;
    char engine[256];
    char host[RG_GROUP_HOST];
    char (*hosts)[RG_GROUP_HOST];  /* (size) */
    const rg_mpi_table *mpi;       /* NULL: alone */
    bool is_started;               /* MPI is */
    bool is_stuck;                 /* it has not come back from its start */
    _Atomic double deadline;       /* of all that happens while the group begins; 0: none */
    int tag;                       /* of the messages of the job that is running */
    int64_t begun;                 /* jobs so far, which all ranks run in the same order */
    rg_group_job joining, leaving; /* its first and last job, which may never end */
    void *scratch;                 /* of sums */
    size_t scratch_bytes;
    rg_heartbeat *heartbeat; /* NULL: none */
    _Atomic int64_t bytes;   /* sent */
    double seconds;          /* waited */

    pthread_t thread;
    bool has_thread, has_lock;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    rg_group_job *first, *last; /* of the jobs that are to run or running */
    rg_group_job *started;      /* kept jobs that are not waited for yet, the newest first */
    bool stop;

    _Atomic bool is_lost;
    char lost_text[RG_GROUP_TEXT]; /* written once, before is_lost */
    pthread_mutex_t lost_lock;

    /* Of the ranks that have begun to leave, the one that has run the fewest jobs. */
    _Atomic int64_t left_after; /* how many; the greatest number: none has begun to leave */
    _Atomic int32_t left_rank;
};

/* A rank is lost: the first sentence counts. */
void rg_group_lose(rg_group *group, const char *sentence);
/* A rank has begun to leave after this many jobs. */
void rg_group_note_leaving(rg_group *group, int32_t rank, int64_t jobs);

/* ---- group_thread.c ---- */

rg_status rg_group_thread_start(rg_group *group);
void rg_group_thread_end(rg_group *group);
/* Runs a job on the thread and waits for it. */
rg_status rg_group_run(rg_group *group, rg_group_job *job);
/* Has a job run, and waits for it until a time of rg_seconds(); false: it is not over. */
void rg_group_begin(rg_group *group, rg_group_job *job);
bool rg_group_is_over(rg_group *group, const rg_group_job *job, double until);
/* Starts a job, which is copied. */
rg_status rg_group_post(rg_group *group, const rg_group_job *job);

/* ---- group_limit.c ---- */

/* A job that may take a long time, or for ever. */
typedef struct rg_limited {
    rg_group_job *job;
    double seconds;  /* it has; on a crowded machine more, and then how many it has had */
    int32_t needed;  /* ranks that are seen to run while it has more; 0: it never has more */
    int32_t stopped; /* a rank that was seen to be stopped; -1: none */
} rg_limited;
/* Runs the job for so many seconds; for longer only while ranks run and none is stopped. False: it
 * is not over, and perhaps never will be. */
bool rg_limited_run(rg_group *group, rg_limited *limited);
/* What is known of the rank that the others wait for. */
void rg_limited_describe(const rg_limited *limited, const char *otherwise, char text[64]);

/* ---- messages.c; on the thread ---- */

rg_status rg_job_broadcast(rg_group *group, rg_group_job *job);
rg_status rg_job_gather(rg_group *group, rg_group_job *job);
rg_status rg_job_sum(rg_group *group, rg_group_job *job);
rg_status rg_job_sum_fast(rg_group *group, rg_group_job *job);
/* Waits until all ranks leave, too. */
rg_status rg_job_leave(rg_group *group, rg_group_job *job);

/* ---- heartbeat.c ---- */

/* Connects all ranks with rank 0 and starts the thread; on the group's thread. */
rg_status rg_heartbeat_start(rg_group *group);
/* Says goodbye, unless a rank is lost, and ends the thread. */
void rg_heartbeat_end(rg_group *group);
/* Tells all ranks why this one ends. */
void rg_heartbeat_fail(rg_group *group, const char *why);
/* Tells all ranks that this one leaves after this many jobs. */
void rg_heartbeat_leave(rg_group *group, int64_t jobs);

#endif
