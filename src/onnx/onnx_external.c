/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* External data: elements in a file of their own, beside the model or in a folder below it. A path
 * that leaves the folder is refused, and so are links: every part of the path is opened below the
 * one before it, without following links. */
#include "onnx/onnx_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PART = 256 };

/* The next part of a path, up to a slash. */
static rg_status next_part(const char **path, char part[MOST_PART])
{
    const size_t length = strcspn(*path, "/");
    RG_CHECK(length > 0 && length < MOST_PART, RG_MALFORMED,
             "the path of its external data has a part of %zu characters", length);
    memcpy(part, *path, length);
    part[length] = 0;
    RG_CHECK(strcmp(part, "..") != 0 && strchr(part, '\\') == NULL, RG_MALFORMED,
             "the path of its external data leaves the model's folder");
    *path += length;
    if (**path == '/')
        ++*path;
    return RG_OK;
}

/* Opens the file; *file is -1 on failure. */
static rg_status open_below(const char *folder, const char *location, int *file)
{
    char part[MOST_PART];
    *file = -1;
    RG_CHECK(location != NULL && location[0] != 0, RG_MALFORMED,
             "its external data has no location");
    RG_CHECK(location[0] != '/', RG_MALFORMED,
             "the path of its external data is absolute; it must lie in the model's folder");
    RG_CHECK(folder != NULL, RG_UNSUPPORTED,
             "its elements lie in another file, which a model in "
             "memory does not have");
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (at >= 0) {
        const rg_status status = next_part(&location, part);
        if (status != RG_OK) {
            close(at);
            return status;
        }
        const int flags = *location == 0 ? O_RDONLY | O_NONBLOCK : O_RDONLY | O_DIRECTORY;
        const int next = openat(at, part, flags | O_NOFOLLOW | O_CLOEXEC);
        const int kept = errno;
        close(at);
        errno = kept;
        at = next;
        if (*location == 0 && at >= 0) {
            *file = at;
            return RG_OK;
        }
    }
    return rg_fail(RG_IO, "its external data cannot be opened: %s",
                   errno == ELOOP ? "links are not followed" : strerror(errno));
}

static rg_status check_range(const rg_proto_tensor *tensor, int file, size_t bytes)
{
    struct stat about;
    RG_CHECK(fstat(file, &about) == 0 && S_ISREG(about.st_mode), RG_IO,
             "its external data is not a regular file");
    RG_CHECK(about.st_nlink == 1, RG_IO, "its external data has several names (hard links)");
    RG_CHECK(tensor->length < 0 || (uint64_t)tensor->length == bytes, RG_MALFORMED,
             "its external data has %lld bytes, but its type and dimensions need %zu",
             (long long)tensor->length, bytes);
    RG_CHECK(tensor->offset <= about.st_size &&
                 (uint64_t)about.st_size - (uint64_t)tensor->offset >= bytes,
             RG_MALFORMED, "its external data ends before byte %llu",
             (unsigned long long)tensor->offset + bytes);
    return RG_OK;
}

static rg_status read_range(int file, const rg_proto_tensor *tensor, char *data, size_t bytes)
{
    uint64_t at = (uint64_t)tensor->offset;
    while (bytes > 0) {
        const ssize_t got = pread(file, data, bytes, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        RG_CHECK(got > 0, RG_IO, "its external data cannot be read: %s",
                 got < 0 ? strerror(errno) : "the file has become shorter");
        data += got;
        at += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return RG_OK;
}

/* Opens and checks the file, and reads it unless `data` is NULL. */
static rg_status use(const rg_onnx *model, const rg_proto_tensor *tensor, void *data, size_t bytes)
{
    int file;
    RG_TRY(open_below(model->folder, tensor->location, &file));
    rg_status status = check_range(tensor, file, bytes);
    if (status == RG_OK && data != NULL)
        status = read_range(file, tensor, data, bytes);
    close(file);
    return status;
}

rg_status rg_proto_external_check(const rg_onnx *model, const rg_proto_tensor *tensor, size_t bytes)
{
    return use(model, tensor, NULL, bytes);
}

rg_status rg_proto_external_read(const rg_onnx *model, const rg_proto_tensor *tensor, void *data,
                                 size_t bytes)
{
    return use(model, tensor, data, bytes);
}
