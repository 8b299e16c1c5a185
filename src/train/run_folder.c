/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Locks and leftovers of runs. */
#include "train/run_folder.h"
#include "train/metrics.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ---- the lock ---- */

/* The process that holds the lock, if the system tells it; 0: not known. A line of /proc/locks:
 * "5: FLOCK  ADVISORY  WRITE 1234 fe:01:4711 0 EOF". */
static long holder_of(int folder)
{
    struct stat info;
    char line[256];
    long found = 0;
    FILE *locks = fopen("/proc/locks", "re");
    if (locks == NULL)
        return 0;
    while (fstat(folder, &info) == 0 && found == 0 && fgets(line, sizeof line, locks) != NULL) {
        long pid;
        unsigned major, minor;
        unsigned long inode;
        if (sscanf(line, "%*d: FLOCK %*s %*s %ld %x:%x:%lu", &pid, &major, &minor, &inode) == 4 &&
            inode == info.st_ino && major == major(info.st_dev) && minor == minor(info.st_dev))
            found = pid;
    }
    fclose(locks);
    return found > 0 ? found : 0;
}

static rg_status taken(const char *folder, int lock)
{
    char who[48] = "another process";
    const long pid = holder_of(lock);
    if (pid > 0)
        snprintf(who, sizeof who, "process %ld", pid);
    return rg_fail(RG_INVALID_STATE,
                   "%s: %s is writing to this results folder; wait for it or choose another --out",
                   folder, who);
}

rg_status rg_folder_lock(const char *folder, int *lock)
{
    *lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0 && errno == ENOENT)
        return RG_OK;
    RG_CHECK(*lock >= 0 || errno != ENOTDIR, RG_IO, "%s: this is a file, not a results folder",
             folder);
    RG_CHECK(*lock >= 0, RG_IO, "%s: cannot be opened: %s", folder, strerror(errno));
    int result;
    do
        result = flock(*lock, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    if (result == 0 ||
        errno != EWOULDBLOCK) /* a file system without locks has no second run, too */
        return RG_OK;
    const rg_status status = taken(folder, *lock);
    rg_folder_unlock(lock);
    return status;
}

void rg_folder_unlock(int *lock)
{
    if (*lock >= 0)
        close(*lock);
    *lock = -1;
}

/* ---- a new folder ---- */

rg_status rg_folder_make(const char *folder)
{
    char *const path = strdup(folder);
    RG_CHECK(path != NULL, RG_OUT_OF_MEMORY, "out of memory for a path");
    bool made = true;
    for (char *at = path + 1; made && path[0] != 0 && *at != 0; at++) {
        if (*at != '/' || at[-1] == '/')
            continue;
        *at = 0;
        made = mkdir(path, 0777) == 0 || errno == EEXIST;
        *at = '/';
    }
    made = made && (mkdir(path, 0777) == 0 || errno == EEXIST);
    free(path);
    RG_CHECK(made, RG_IO, "%s: cannot be created: %s", folder, strerror(errno));
    return RG_OK;
}

bool rg_folder_is_used(const char *folder)
{
    static const char *const names[] = { "checkpoint.safetensors", "best.safetensors",
                                         "report.html" };
    enum { NAMES = sizeof names / sizeof names[0], PATH = 4096 };
    char path[PATH]; /* no memory is needed, so that a lack of it is not taken for results */
    struct stat info;
    for (int i = 0; i < NAMES; i++) {
        const int length = snprintf(path, PATH, "%s/%s", folder, names[i]);
        if (length < PATH && stat(path, &info) == 0 && S_ISREG(info.st_mode))
            return true;
    }
    return snprintf(path, PATH, "%s/metrics.csv", folder) < PATH && rg_csv_is_used(path);
}

/* ---- leftovers ---- */

/* Whether a name is ".retrograde-<process>-<number>" of a process that is gone. */
static bool is_leftover(const char *name)
{
    static const char start[] = ".retrograde-";
    char *end;
    if (strncmp(name, start, sizeof start - 1) != 0)
        return false;
    const char *number = name + sizeof start - 1;
    const long pid = strtol(number, &end, 10);
    if (end == number || *end != '-' || pid <= 0)
        return false;
    const char *second = end + 1;
    (void)strtol(second, &end, 10);
    return end != second && *end == 0 &&
           (pid == (long)getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH));
}

void rg_folder_clean(const char *folder)
{
    DIR *names = opendir(folder);
    if (names == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(names)) != NULL;) {
        struct stat info;
        if (is_leftover(entry->d_name) &&
            fstatat(dirfd(names), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode))
            (void)unlinkat(dirfd(names), entry->d_name, 0); /* it does no harm if it stays */
    }
    closedir(names);
}

/* ---- output checks ---- */

rg_status rg_folder_check_file(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return RG_OK;
    RG_CHECK(!S_ISDIR(info.st_mode) && !S_ISFIFO(info.st_mode) && !S_ISSOCK(info.st_mode), RG_IO,
             "%s: cannot be replaced: this is a %s", path,
             S_ISDIR(info.st_mode)    ? "folder"
             : S_ISFIFO(info.st_mode) ? "pipe"
                                      : "socket");
    RG_CHECK(access(path, W_OK) == 0, RG_IO, "%s: cannot be replaced: %s", path, strerror(errno));
    return RG_OK;
}
