/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Files: open, read to the end, replace by renaming. */
#include "files/whole_file.h"

#include "core/private_api.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first piece of a file whose size is not known, and the most for one system call. */
enum { FIRST_PIECE = 4096, LARGEST_PIECE = 1 << 30 };

enum { LINKS = 40 }; /* that are followed, as the system does */

/* ---- reading ---- */

RG_PRIVATE_API void rg_bytes_release(const rg_allocator *allocator, rg_bytes *bytes)
{
    rg_release(allocator, bytes->data, bytes->capacity);
    *bytes = (rg_bytes){ 0 };
}

RG_PRIVATE_API rg_status rg_input_open(rg_input *input, const char *path)
{
    *input = (rg_input){ .file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY) };
    RG_CHECK(input->file >= 0, RG_IO, "cannot be opened: %s", strerror(errno));
    struct stat info;
    const char *problem = NULL;
    if (fstat(input->file, &info) != 0)
        problem = strerror(errno);
    else if (S_ISDIR(info.st_mode))
        problem = "this is a directory";
    if (problem != NULL) {
        rg_input_close(input);
        return rg_fail(RG_IO, "cannot be read: %s", problem);
    }
    input->sized = S_ISREG(info.st_mode) && info.st_size > 0; /* 0: perhaps made as it is read */
    input->left = input->sized ? (size_t)info.st_size : 0;
    return RG_OK;
}

RG_PRIVATE_API void rg_input_close(rg_input *input)
{
    if (input->file >= 0)
        close(input->file);
    input->file = -1;
}

/* From `offset` on, or with -1 from where the file is read next. */
static rg_status read_bytes(int file, void *to, size_t size, off_t offset, size_t *got)
{
    *got = 0;
    while (*got < size) {
        const size_t piece = size - *got < LARGEST_PIECE ? size - *got : (size_t)LARGEST_PIECE;
        char *const at = (char *)to + *got;
        const ssize_t step =
            offset < 0 ? read(file, at, piece) : pread(file, at, piece, offset + (off_t)*got);
        if (step < 0 && errno == EINTR)
            continue;
        RG_CHECK(step >= 0, RG_IO, "cannot be read: %s", strerror(errno));
        if (step == 0)
            break;
        *got += (size_t)step;
    }
    return RG_OK;
}

RG_PRIVATE_API rg_status rg_input_read(rg_input *input, void *to, size_t size, size_t *got)
{
    RG_TRY(read_bytes(input->file, to, size, -1, got));
    if (input->sized)
        input->left -= *got < input->left ? *got : input->left;
    return RG_OK;
}

rg_status rg_input_read_at(const rg_input *input, void *to, size_t size, uint64_t offset,
                           size_t *got)
{
    RG_CHECK(offset <= INT64_MAX, RG_IO, "cannot be read: the offset is too large");
    return read_bytes(input->file, to, size, (off_t)offset, got);
}

static rg_status enlarge(const rg_allocator *allocator, rg_bytes *bytes, size_t capacity)
{
    void *larger;
    RG_TRY(rg_allocate(allocator, capacity, &larger));
    const size_t size = bytes->size;
    if (size > 0)
        memcpy(larger, bytes->data, size);
    rg_bytes_release(allocator, bytes);
    *bytes = (rg_bytes){ larger, size, capacity };
    return RG_OK;
}

rg_status rg_input_rest(rg_input *input, const rg_allocator *allocator, size_t most,
                        rg_bytes *bytes)
{
    *bytes = (rg_bytes){ 0 };
    size_t wanted = input->sized ? input->left + 1 : FIRST_PIECE; /* 1 more, to see the end */
    for (;;) {
        size_t got = 0;
        wanted = wanted < most ? wanted : most;
        rg_status status = enlarge(allocator, bytes, wanted);
        if (status == RG_OK)
            status = rg_input_read(input, bytes->data + bytes->size, wanted - bytes->size, &got);
        if (status != RG_OK) {
            rg_bytes_release(allocator, bytes);
            return status;
        }
        bytes->size += got;
        if (bytes->size < wanted || wanted == most)
            return RG_OK;
        wanted = wanted > SIZE_MAX / 2 ? SIZE_MAX : wanted * 2;
    }
}

RG_PRIVATE_API rg_status rg_file_read(const rg_allocator *allocator, const char *path, size_t limit,
                                      rg_bytes *bytes)
{
    *bytes = (rg_bytes){ 0 };
    rg_input input;
    rg_status status = rg_input_open(&input, path);
    if (status == RG_OK && input.left <= limit)
        status = rg_input_rest(&input, allocator, limit + 1, bytes);
    if (status == RG_OK && (input.left > limit || bytes->size > limit)) {
        rg_bytes_release(allocator, bytes);
        status = rg_fail(RG_IO, "is too large: at most %zu bytes are supported", limit);
    }
    rg_input_close(&input);
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    return status;
}

/* ---- writing ---- */

/* Makes a new file beside `path`. Its name does not depend on that of `path`, which may already be
 * as long as names can be. */
static rg_status open_temporary(rg_output *output, const char *path)
{
    const char *slash = strrchr(path, '/');
    const int folder = slash != NULL ? (int)(slash - path) + 1 : 0;
    output->file = -1;
    errno = EEXIST;
    for (int i = 0; i < 1000 && output->file < 0 && errno == EEXIST; i++) {
        snprintf(output->temporary, sizeof output->temporary, "%.*s.retrograde-%ld-%d", folder,
                 path, (long)getpid(), i);
        output->file = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    RG_CHECK(output->file >= 0, RG_IO, "cannot be created: %s", strerror(errno));
    return RG_OK;
}

/* Replaces a path that is a link by the path that it leads to, which need not exist: links stay. */
static bool follow_links(char path[RG_PATH_SIZE])
{
    char link[RG_PATH_SIZE];
    for (int i = 0; i < LINKS; i++) {
        const ssize_t length = readlink(path, link, sizeof link);
        if (length < 0)
            return errno == EINVAL || errno == ENOENT; /* not a link, or nothing yet */
        char *const slash = link[0] != '/' ? strrchr(path, '/') : NULL;
        char *const to = slash != NULL ? slash + 1 : path;
        if ((size_t)(to - path) + (size_t)length >= RG_PATH_SIZE) {
            errno = ENAMETOOLONG;
            return false;
        }
        memcpy(to, link, (size_t)length);
        to[length] = 0;
    }
    errno = ELOOP;
    return false;
}

/* `old` describes the file that is there now, or is NULL. */
static rg_status open_beside(rg_output *output, const char *path, const struct stat *old)
{
    const int length = snprintf(output->target, sizeof output->target, "%s", path);
    RG_CHECK((size_t)length < sizeof output->target, RG_IO, "cannot be created: %s",
             strerror(ENAMETOOLONG));
    RG_CHECK(length > 0, RG_IO, "cannot be created: %s", strerror(ENOENT));
    RG_CHECK(follow_links(output->target), RG_IO, "cannot be created: %s", strerror(errno));
    RG_CHECK(old == NULL || access(output->target, W_OK) == 0, RG_IO,
             "cannot be opened for writing: %s", strerror(errno));
    RG_TRY(open_temporary(output, output->target));
    if (old != NULL && fchmod(output->file, old->st_mode & 0777) != 0)
        return rg_output_close(output, rg_fail(RG_IO, "cannot be created: %s", strerror(errno)));
    return RG_OK;
}

static rg_status open_in_place(rg_output *output, const char *path)
{
    output->temporary[0] = 0;
    output->file = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);
    RG_CHECK(output->file >= 0, RG_IO, "cannot be opened for writing: %s", strerror(errno));
    return RG_OK;
}

/* Whether the path names a descriptor of this process: others hold it too, and would go on writing
 * to a file that was replaced. */
static bool is_descriptor(const char *path)
{
    return strcmp(path, "/dev/stdout") == 0 || strcmp(path, "/dev/stderr") == 0 ||
           strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/proc/self/fd/", 14) == 0;
}

RG_PRIVATE_API rg_status rg_output_open(rg_output *output, const char *path)
{
    struct stat info;
    const bool exists = stat(path, &info) == 0;
    if (exists && (!S_ISREG(info.st_mode) || is_descriptor(path)))
        return open_in_place(output, path);
    return open_beside(output, path, exists ? &info : NULL);
}

RG_PRIVATE_API rg_status rg_output_add(rg_output *output, const void *data, size_t size)
{
    for (const char *at = data; size > 0;) {
        const ssize_t step =
            write(output->file, at, size < LARGEST_PIECE ? size : (size_t)LARGEST_PIECE);
        if (step < 0 && errno == EINTR)
            continue;
        RG_CHECK(step >= 0, RG_IO, "cannot be written: %s", strerror(errno));
        at += step;
        size -= (size_t)step;
    }
    return RG_OK;
}

/* Brings the new name to the disk. The file is whole already, so what a file system does not offer,
 * or a folder that may not be read, is no failure. */
static void sync_folder(char *path)
{
    char *const slash = strrchr(path, '/');
    if (slash != NULL)
        slash[slash == path] = 0;
    const int folder = open(slash != NULL ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        (void)fsync(folder);
        close(folder);
    }
}

RG_PRIVATE_API rg_status rg_output_close(rg_output *output, rg_status status)
{
    const bool replaces = output->temporary[0] != 0;
    bool done = status == RG_OK && (!replaces || fsync(output->file) == 0);
    int problem = errno;
    if (close(output->file) != 0 && done) {
        done = false;
        problem = errno;
    }
    if (done && replaces && rename(output->temporary, output->target) != 0) {
        done = false;
        problem = errno;
    }
    if (status == RG_OK && !done)
        status = rg_fail(RG_IO, "cannot be written: %s", strerror(problem));
    if (replaces && done)
        sync_folder(output->target);
    else if (replaces)
        unlink(output->temporary);
    output->file = -1;
    return status;
}

RG_PRIVATE_API rg_status rg_file_write(const char *path, const void *data, size_t size)
{
    rg_output output;
    rg_status status = rg_output_open(&output, path);
    if (status == RG_OK)
        status = rg_output_close(&output, rg_output_add(&output, data, size));
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    return status;
}
