/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Which library of MPI is opened, and where it is. The choices, in their order:
 *
 *      "abi"               the standard ABI
 *      a path              a library with it, or one of those below
 *      "openmpi", "mpich"  the library that was built for it, retrograde-<name>.so: in the folder
 *                          of libretrograde_train or of the program, or in a folder retrograde
 *                          beside it
 *
 *  Without a choice, Open MPI for its own launcher, then the standard ABI. MPICH and its relatives
 *  are started alike: a library with the standard ABI beside the launcher, then one in the path of
 *  the loader, then MPICH. */
#include "group/group_parts.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096 };

/* ---- opening ---- */

/* Libraries stay open: MPI leaves threads and handlers. Open MPI's parts look for the
 * symbols of the others, which must be visible to them. */
static void *open_library(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

/* One with the standard ABI, or one that was built from mpi_shim.c. */
static const rg_mpi_table *open_at(const char *path)
{
    void *library = open_library(path);
    rg_mpi_shim_function *function;
    if (library == NULL)
        return NULL;
    void *found = dlsym(library, RG_MPI_SHIM_NAME);
    if (found == NULL)
        return rg_mpi_abi_table(library);
    memcpy(&function, &found, sizeof function);
    const rg_mpi_table *table = function();
    return table->version == RG_MPI_TABLE ? table : NULL;
}

static const rg_mpi_table *open_shim_at(const char *folder, const char *below, const char *name)
{
    char path[2 * PATH];
    snprintf(path, sizeof path, "%s%s/retrograde-%s.so", folder, below, name);
    return open_at(path);
}

/* Cuts the last part of a path off. */
static void cut_name(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash != NULL)
        *slash = 0;
}

/* The folder that this code was loaded from. */
static void own_folder(char folder[PATH])
{
    Dl_info info;
    rg_status (*const self)(const char *, const rg_launcher *, const rg_mpi_table **) = rg_mpi_open;
    void *address;
    memcpy(&address, &self, sizeof address);
    folder[0] = 0;
    if (dladdr(address, &info) != 0 && info.dli_fname != NULL && strchr(info.dli_fname, '/'))
        snprintf(folder, PATH, "%s", info.dli_fname);
    cut_name(folder);
}

static void program_folder(char folder[PATH])
{
    const ssize_t length = readlink("/proc/self/exe", folder, PATH - 1);
    folder[length > 0 ? length : 0] = 0;
    cut_name(folder);
}

static const rg_mpi_table *open_shim(const char *name)
{
    static const char *const below[] = { "/retrograde", "", "/../lib/retrograde",
                                         "/../lib64/retrograde", "/../" RG_LIBDIR "/retrograde" };
    char folder[PATH];
    const rg_mpi_table *table = NULL;
    for (int which = 0; which < 2 && table == NULL; which++) {
        if (which == 0)
            own_folder(folder);
        else
            program_folder(folder);
        for (size_t i = 0; i < sizeof below / sizeof below[0] && table == NULL; i++)
            table = folder[0] != 0 ? open_shim_at(folder, below[i], name) : NULL;
    }
    return table;
}

/* ---- choosing ---- */

/* The ABI's library in the folder of the process that has started this one: mpiexec of a package
 * that is in no path of the loader. */
static const rg_mpi_table *open_beside_launcher(void)
{
    static const char *const libraries[] = { "/../lib/libmpi_abi.so.1", "/../lib/libmpi_abi.so.0",
                                             "/../lib64/libmpi_abi.so.1" };
    char link[64], path[2 * PATH], folder[PATH];
    snprintf(link, sizeof link, "/proc/%ld/exe", (long)getppid());
    const ssize_t length = readlink(link, folder, sizeof folder - 1);
    const rg_mpi_table *table = NULL;
    if (length <= 0)
        return NULL;
    folder[length] = 0;
    cut_name(folder);
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0] && table == NULL; i++) {
        snprintf(path, sizeof path, "%s%s", folder, libraries[i]);
        table = access(path, R_OK) == 0 ? open_at(path) : NULL;
    }
    return table;
}

static const rg_mpi_table *open_any_abi(void)
{
    const rg_mpi_table *table = open_beside_launcher();
    table = table != NULL ? table : open_at("libmpi_abi.so.1");
    table = table != NULL ? table : open_at("libmpi_abi.so.0");
    return table != NULL ? table : open_at("libmpi_abi.so");
}

static const rg_mpi_table *open_asked(const char *asked)
{
    if (strcmp(asked, "openmpi") == 0 || strcmp(asked, "mpich") == 0)
        return open_shim(asked);
    return strcmp(asked, "abi") == 0 ? open_any_abi() : open_at(asked);
}

static const rg_mpi_table *open_fitting(const rg_launcher *launcher)
{
    const bool open_mpi = strcmp(launcher->name, "Open MPI") == 0;
    const rg_mpi_table *table = open_mpi ? open_shim("openmpi") : NULL;
    table = table != NULL ? table : open_any_abi();
    if (open_mpi) /* MPICH's does not know its ranks */
        return table;
    table = table != NULL ? table : open_shim("mpich");
    return table != NULL ? table : open_shim("openmpi");
}

rg_status rg_mpi_open(const char *asked, const rg_launcher *launcher, const rg_mpi_table **table)
{
    const char *wanted = asked != NULL ? asked : getenv("RG_MPI");
    if (wanted != NULL && wanted[0] != 0) {
        *table = open_asked(wanted);
        const char *why = dlerror();
        RG_CHECK(*table != NULL, RG_UNSUPPORTED, "the MPI library '%s' cannot be opened: %s",
                 wanted,
                 why != NULL ? why : "it has neither the standard ABI nor what this version needs");
        return RG_OK;
    }
    *table = open_fitting(launcher);
    RG_CHECK(*table != NULL, RG_UNSUPPORTED,
             "%s has started %d processes, but no library for it is found: this build has none "
             "for Open MPI or MPICH, and there is no libmpi_abi.so; set RG_MPI to its path",
             launcher->name, launcher->size);
    return RG_OK;
}
