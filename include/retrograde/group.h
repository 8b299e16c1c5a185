/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Groups: processes that train one network together, each with a part of every batch.
 *
 *      rg_group_create(NULL, &group);                  under mpirun or srun; otherwise alone
 *      desc.group = group;                             of rg_trainer_desc
 *      desc.micro_batches = 8;
 *      rg_trainer_create(device, model, set, &desc, &trainer);
 *      rg_trainer_train(trainer, epochs, NULL, NULL);  all ranks, together
 *      if (rg_group_rank(group) == 0)
 *          rg_trainer_save(trainer, "checkpoint.safetensors");
 *
 *  The processes of a group are its ranks, from 0 on; their number is a power of two. MPI starts
 *  them and carries what they tell each other. It is opened at run time: through the standard ABI
 *  of MPI 5 (libmpi_abi.so), or through a small library that was built for Open MPI or MPICH and is
 *  installed beside libretrograde_train, which itself is linked with no MPI.
 *
 *  **The same bits.** rg_group_sum() adds in a fixed binary tree: neighbours first, 0 + 1 and
 *  2 + 3, then their sums, as one process would with all of the data.
 *
 *  **Faults.** Each rank has a thread that exchanges heartbeats with rank 0 over TCP, also while
 *  the others compute. If a rank ends, is killed, or its heartbeats stay away for `timeout`, every
 *  other rank learns it: `lost` is called, and all collective functions return RG_IO with a
 *  sentence that names it. Such a group cannot be used any more. The same holds where a collective
 *  function fails on one rank, for lack of memory for example: the others lose that rank, with its
 *  sentence.
 *
 *  Collective functions are called by all ranks in the same order and with the same sizes, by one
 *  thread at a time. Sizes that differ are found (RG_INVALID_ARGUMENT on one rank, RG_IO on the
 *  others) but in rg_group_sum_fast_start(), where they are MPI's matter.
 *  Programs that use this header are linked with libretrograde_train. */
#ifndef RETROGRADE_GROUP_H
#define RETROGRADE_GROUP_H

#include <retrograde/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rg_group rg_group;

typedef enum rg_group_engine {
    RG_GROUP_AUTO,  /**< MPI under a launcher that has started several processes, otherwise alone */
    RG_GROUP_ALONE, /**< one process, whoever has started it */
    RG_GROUP_MPI    /**< MPI, also for one process */
} rg_group_engine;

/** How to find the other ranks. Initialize with rg_group_desc_default(). */
typedef struct rg_group_desc {
    uint32_t size;          /**< of this struct; set by rg_group_desc_default() */
    rg_group_engine engine; /**< default RG_GROUP_AUTO */
    /** "openmpi", "mpich", "abi", or the path of a library with the standard ABI. NULL (default):
     *  the environment variable RG_MPI, otherwise the one of the launcher. */
    const char *library;
    /** Seconds without a heartbeat after which a rank counts as lost; 1 to 1000 (default 5). */
    double timeout;
    /** Called once, on a thread of the group, when a rank is lost; `sentence` is valid during the
     *  call. It may end the process. NULL (default): nothing is called. */
    void (*lost)(void *context, const char *sentence);
    void *context; /**< passed to `lost` */
    /** Seconds to wait for the other ranks in rg_group_create(), 1 to 100000: a program whose ranks
     *  come to it at different times sets it. 0 (default): 60 where ranks are on several machines;
     *  on one machine 7, or more where ranks and other processes that run are more than 4 for each
     *  processor, as long as all ranks are seen to run and none is stopped. */
    double start_timeout;
} rg_group_desc;
RG_API rg_group_desc rg_group_desc_default(void);

/** Joins the group. Collective. `desc` may be NULL. A process joins at most one group by MPI in
 *  its life, and does not start MPI itself: RG_INVALID_STATE otherwise, and where a launcher has
 *  started several processes that cannot find each other, such as srun without PMI.
 *  RG_INVALID_ARGUMENT where a rank has another version of this library, or the number of ranks is
 *  not a power of two; RG_UNSUPPORTED if no library for MPI is found. On failure *group is NULL. */
RG_API rg_status rg_group_create(const rg_group_desc *desc, rg_group **group);

/** Leaves the group, after waiting until all ranks leave, unless one is lost. Where another rank
 *  hangs while MPI ends, `lost` is called after 7 seconds, or more as above. A rank that waits in
 *  a collective function for one that has begun to leave loses it, with a sentence. NULL is
 *  allowed. */
RG_API void rg_group_destroy(rg_group *group);

/** The rank of this process, from 0, and the number of ranks; 0 and 1 for NULL. */
RG_API int32_t rg_group_rank(const rg_group *group);
RG_API int32_t rg_group_size(const rg_group *group);

/** What is known of a group. Texts live as long as it does. */
typedef struct rg_group_info {
    int32_t rank, size;
    int32_t local_rank, local_size; /**< among the ranks on the same machine */
    bool launched;                  /**< a launcher has started this process, perhaps only one */
    const char *engine;             /**< "alone", or the version of the MPI library */
    int64_t bytes;                  /**< that this rank has sent so far; of fast sums the fewest
                                         that it can have been */
    double seconds; /**< that threads of the caller have waited for other ranks so far */
} rg_group_info;
RG_API rg_status rg_group_get_info(const rg_group *group, rg_group_info *info);

/** Waits until all ranks are here. */
RG_API rg_status rg_group_barrier(rg_group *group);

/** Copies `bytes` bytes of rank `root` to all ranks. */
RG_API rg_status rg_group_broadcast(rg_group *group, void *data, size_t bytes, int32_t root);

/** Gathers `bytes` bytes of every rank: all[rank * bytes] on each. `mine` may be there already. */
RG_API rg_status rg_group_gather(rg_group *group, const void *mine, size_t bytes, void *all);

/** Sums `count` elements of f32 or f64 over all ranks, in place, in a fixed binary tree. Afterwards
 *  all ranks have the same bits. */
RG_API rg_status rg_group_sum(rg_group *group, void *elements, rg_dtype dtype, int64_t count);

/** Starts rg_group_sum() and returns; `elements` must not be used until rg_group_wait(). Sums run
 *  in the order of their start. */
RG_API rg_status rg_group_sum_start(rg_group *group, void *elements, rg_dtype dtype, int64_t count);
/** The same in the order that the MPI library chooses (MPI_Iallreduce), which may be faster; the
 *  bits depend on the library and on the number of ranks. */
RG_API rg_status rg_group_sum_fast_start(rg_group *group, void *elements, rg_dtype dtype,
                                         int64_t count);
/** Waits for all sums that were started. */
RG_API rg_status rg_group_wait(rg_group *group);

/** Refuses ranks that differ from rank 0: RG_INVALID_ARGUMENT, on all ranks, with a sentence that
 *  says which rank has another `what`. */
RG_API rg_status rg_group_agree(rg_group *group, const char *what, const void *data, size_t bytes);

/** Tells all ranks that this one cannot go on; they lose it, with this sentence, if it is not NULL.
 *  The group may be NULL. */
RG_API void rg_group_fail(rg_group *group, const char *why);

#ifdef __cplusplus
}
#endif

#endif
