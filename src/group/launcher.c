/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Launchers: mpirun of Open MPI, mpiexec of MPICH and its relatives, srun, by the environment that
 * they give to processes. */
#include "group/group_parts.h"

#include <stdlib.h>

/* A number of the environment; -1: there is none. */
static int32_t number_of(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (text == NULL || text[0] == 0)
        return -1;
    const long value = strtol(text, &end, 10);
    return *end == 0 && value >= 0 && value < 1 << 24 ? (int32_t)value : -1;
}

rg_launcher rg_launcher_find(void)
{
    static const struct {
        const char *name, *rank, *size, *local_size;
    } launchers[] = {
        { "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
          "OMPI_COMM_WORLD_LOCAL_SIZE" },
        { "PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS" },
        { "PMIx", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_TASKS_PER_NODE" },
        { "MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE" },
    };
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        const int32_t rank = number_of(launchers[i].rank), size = number_of(launchers[i].size);
        if (rank >= 0)
            return (rg_launcher){ .name = launchers[i].name,
                                  .rank_name = launchers[i].rank,
                                  .rank = rank,
                                  .size = size > 0 ? size : 0,
                                  .is_local =
                                      size > 0 && number_of(launchers[i].local_size) == size };
    }
    /* srun counts its tasks; without PMI or PMIx they have no way to find each other */
    const int32_t rank = number_of("SLURM_PROCID"), size = number_of("SLURM_STEP_NUM_TASKS");
    if (rank >= 0 && size >= 1 && getenv("SLURM_STEP_ID") != NULL)
        return (rg_launcher){ .name = "Slurm",
                              .rank_name = "SLURM_PROCID",
                              .rank = rank,
                              .size = size,
                              .is_slurm_only = size > 1 };
    return (rg_launcher){ .name = "", .rank_name = "", .rank = -1 };
}
