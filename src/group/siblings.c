/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The other ranks on this machine before there are heartbeats: processes that the launcher has
 * started beside this one, as the system sees them. */
#include "group/group_parts.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

rg_siblings rg_siblings_find(void)
{
    rg_siblings found = { 0, 0 };
    const struct dirent *entry;
    DIR *folder = opendir("/proc");
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char state;
        long parent;
        if (!isdigit((unsigned char)entry->d_name[0]) ||
            !read_state(entry->d_name, &state, &parent) || parent != (long)getppid())
            continue;
        found.stopped += state == 'T' || state == 't';
        found.running += strchr("RSD", state) != NULL;
    }
    if (folder != NULL)
        (void)closedir(folder);
    return found;
}
