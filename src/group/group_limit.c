/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* How long ranks wait for each other where there are no heartbeats, and what the system knows of
 * other ranks on this machine then: processes that the launcher has started beside this one. */
#include "group/group_parts.h"

#include "core/clock.h"
#include "core/memory.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- other ranks ---- */

/* Processes that have the parent of this one, and itself: ranks, where the launcher has started
 * them without a program between. */
typedef struct siblings {
    int32_t running, stopped;
    int32_t stopped_rank; /* of one of them; -1: not known */
} siblings;

/* The state of a process, as one letter, and its parent; false: it has ended. */
static bool read_state(const char *process, char *state, long *parent)
{
    char path[300], line[512];
    snprintf(path, sizeof path, "/proc/%s/stat", process);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    const size_t length = fread(line, 1, sizeof line - 1, file);
    (void)fclose(file);
    line[length] = 0;
    const char *after = strrchr(line, ')'); /* its name may have brackets, too */
    return after != NULL && sscanf(after + 1, " %c %ld", state, parent) == 2;
}

/* The number of a variable in the environment of a process; -1: there is none, or it is not read.
 */
static int32_t read_number(const char *process, const char *name)
{
    enum { MOST = 1 << 17 };
    char path[300];
    int32_t number = -1;
    void *memory;
    const size_t length = strlen(name);
    snprintf(path, sizeof path, "/proc/%s/environ", process);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return -1;
    if (rg_allocate(&rg_default_allocator, MOST, &memory) == RG_OK) {
        char *const text = memory;
        const size_t bytes = fread(text, 1, MOST - 1, file);
        text[bytes] = 0;
        for (const char *at = text; at < text + bytes && number < 0; at += strlen(at) + 1) {
            if (strncmp(at, name, length) == 0 && at[length] == '=')
                number = atoi(at + length + 1);
        }
        rg_release(&rg_default_allocator, memory, MOST);
    }
    (void)fclose(file);
    return number;
}

static siblings find_siblings(const rg_launcher *launcher)
{
    siblings found = { .stopped_rank = -1 };
    const struct dirent *entry;
    DIR *folder = opendir("/proc");
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char state;
        long parent;
        if (!isdigit((unsigned char)entry->d_name[0]) ||
            !read_state(entry->d_name, &state, &parent) || parent != (long)getppid())
            continue;
        const bool stopped = state == 'T' || state == 't';
        found.stopped += stopped;
        if (stopped && found.stopped_rank < 0)
            found.stopped_rank = read_number(entry->d_name, launcher->rank_name);
        found.running += strchr("RSD", state) != NULL;
    }
    if (folder != NULL)
        (void)closedir(folder);
    return found;
}

/* ---- waiting ---- */

enum { PROCESSES_PER_PROCESSOR = 4 };

/* How many times longer ranks may take because they and others crowd the processors of this
 * machine; at least 1. */
static double crowd(const rg_group *group)
{
    const double processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
    double load;
    if (getloadavg(&load, 1) != 1)
        load = 0;
    const double times = (group->launcher.size + load) / (PROCESSES_PER_PROCESSOR * processors);
    return times > 1 ? times : 1;
}

/* The thread that runs the job has no deadline before it is known that there is no more time: it
 * would give up while this one, on a crowded machine, still looks at the other ranks. Seconds in
 * which this thread itself got no processor do not count. */
bool rg_limited_run(rg_group *group, rg_limited *l)
{
    const double least = l->seconds;
    double began = rg_seconds();
    group->deadline = INFINITY;
    rg_group_begin(group, l->job);
    for (;;) {
        const double look = began + l->seconds - 0.5;
        if (rg_group_is_over(group, l->job, look))
            break;
        began += rg_seconds() - look;
        const siblings found = find_siblings(&group->launcher);
        const double most = least * (l->needed > 0 ? crowd(group) : 1);
        l->stopped = found.stopped_rank;
        if (l->seconds >= most || found.stopped > 0 || found.running < l->needed) {
            /* if a rank is known to be stopped say so, else the thread may know more */
            const double end = began + l->seconds;
            group->deadline = end;
            if (!rg_group_is_over(group, l->job, end + (l->stopped >= 0 ? -0.1 : 0.25)))
                return false;
            break;
        }
        l->seconds = l->seconds + 1 < most ? l->seconds + 1 : most;
    }
    group->deadline = 0;
    return true;
}

void rg_limited_describe(const rg_limited *l, const char *otherwise, char text[64])
{
    if (l->stopped >= 0)
        snprintf(text, 64, "rank %d is stopped", l->stopped);
    else
        snprintf(text, 64, "%s", otherwise);
}
