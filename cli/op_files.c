/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tensors of `retrograde op` from files and into files: slices, conversion, all results or none. */
#include "cli/arguments.h"
#include "cli/op_run.h"
#include "core/shape.h"

#include <retrograde/files.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096 };

static rg_tensor **slot_of(rg_op_run *run, rg_role role, int32_t index)
{
    rg_tensor **const roles[] = {
        [RG_ROLE_X] = run->x, [RG_ROLE_Y] = run->y, [RG_ROLE_DY] = run->dy, [RG_ROLE_DX] = run->dx
    };
    return &roles[role][index];
}

/* ---- slices: "[0:2,1:,::2,-1]", one part per dimension ---- */

typedef struct part {
    bool is_single, has_start, has_stop;
    int64_t start, stop, step;
} part;

typedef struct slice {
    int32_t count;
    part parts[RG_MAX_RANK];
} slice;

static bool take_number(const char **at, bool *given, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(*at, &end, 10);
    *given = end != *at;
    *at = end;
    return errno == 0;
}

static bool take_part(const char **at, part *p)
{
    *p = (part){ .step = 1 };
    if (!take_number(at, &p->has_start, &p->start))
        return false;
    if (**at != ':') {
        p->is_single = p->has_start;
        return p->is_single;
    }
    (*at)++;
    if (!take_number(at, &p->has_stop, &p->stop))
        return false;
    if (**at != ':')
        return true;
    (*at)++;
    bool has_step;
    int64_t step;
    if (!take_number(at, &has_step, &step))
        return false;
    p->step = has_step ? step : 1;
    return p->step >= 1;
}

static bool parse_slice(const char *text, slice *s)
{
    const char *at = text + 1; /* after the bracket */
    for (s->count = 0; s->count < RG_MAX_RANK; at++) {
        if (!take_part(&at, &s->parts[s->count++]))
            return false;
        if (*at == ']')
            return at[1] == 0;
        if (*at != ',')
            return false;
    }
    return false;
}

static int64_t clamp(int64_t value, int64_t dim)
{
    value = value < 0 ? value + dim : value;
    return value < 0 ? 0 : value > dim ? dim : value;
}

static rg_status cut(rg_tensor **tensor, const char *path, const slice *s)
{
    rg_tensor_desc desc;
    RG_TRY(rg_tensor_get_desc(*tensor, &desc));
    RG_CHECK(s->count <= desc.rank, RG_INVALID_ARGUMENT,
             "%s: the slice has %d dimensions, but the tensor has rank %d", path, s->count,
             desc.rank);
    int64_t start[RG_MAX_RANK] = { 0 }, length[RG_MAX_RANK], step[RG_MAX_RANK];
    for (int32_t d = 0; d < desc.rank; d++) {
        const part whole = { .step = 1 }, p = d < s->count ? s->parts[d] : whole;
        const int64_t dim = desc.dims[d];
        RG_CHECK(!p.is_single || (p.start >= -dim && p.start < dim), RG_INVALID_ARGUMENT,
                 "%s: slice index %lld is out of range for dimension %d of length %lld", path,
                 (long long)p.start, d, (long long)dim);
        const int64_t first = clamp(p.start, dim);
        const int64_t end = p.is_single ? first + 1 : p.has_stop ? clamp(p.stop, dim) : dim;
        length[d] = end > first ? (end - first - 1) / p.step + 1 : 0;
        start[d] = length[d] > 0 ? first : 0;
        step[d] = length[d] > 1 ? p.step : 1;
    }
    rg_tensor *view;
    RG_TRY(rg_tensor_slice(*tensor, start, length, step, &view));
    rg_tensor_destroy(*tensor);
    *tensor = view;
    return RG_OK;
}

/* ---- loading ---- */

int rg_op_load(rg_device *device, const char *text, rg_tensor **tensor)
{
    char path[PATH];
    slice s = { 0 };
    const int length = snprintf(path, sizeof path, "%s", text);
    if (length >= PATH)
        return rg_wrong("'%.40s…': the file name is too long", text);
    char *bracket = strrchr(path, '[');
    if (bracket != NULL && bracket > path && path[length - 1] == ']' && access(path, F_OK) != 0) {
        if (!parse_slice(bracket, &s))
            return rg_wrong("'%s' is not a slice: each dimension needs an index or START:STOP:STEP "
                            "with a step of at least 1",
                            bracket);
        *bracket = 0;
    }
    if (rg_tensor_load_npy(device, path, tensor) != RG_OK)
        return rg_failed();
    return s.count == 0 || cut(tensor, path, &s) == RG_OK ? 0 : rg_failed();
}

int rg_op_run_load(rg_op_run *run, const rg_operand *operand)
{
    rg_tensor **tensor = slot_of(run, operand->role, operand->index);
    if (*tensor != NULL)
        return rg_wrong("%s: '%s' is given twice", run->called, operand->name);
    return rg_op_load(run->device, operand->path, tensor);
}

/* ---- conversion ---- */

rg_status rg_op_convert(rg_tensor **tensor, rg_dtype dtype)
{
    rg_tensor_desc desc;
    RG_TRY(rg_tensor_get_desc(*tensor, &desc));
    if (desc.dtype == dtype)
        return RG_OK;
    const size_t count = (size_t)rg_shape_count(&desc);
    const size_t from_bytes = count * rg_dtype_size(desc.dtype);
    const size_t to_bytes = count * rg_dtype_size(dtype);
    const rg_tensor_desc wanted = rg_tensor_desc_dense(dtype, desc.rank, desc.dims);
    rg_tensor *made = NULL;
    void *from = malloc(from_bytes + 1), *to = malloc(to_bytes + 1);
    rg_status status = RG_OK;
    if (from == NULL || to == NULL)
        status =
            rg_fail(RG_OUT_OF_MEMORY, "out of memory for the conversion of %zu elements", count);
    if (status == RG_OK)
        status = rg_tensor_create(rg_tensor_device(*tensor), &wanted, &made);
    if (status == RG_OK)
        status = rg_tensor_read(*tensor, from, from_bytes, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_convert(to, dtype, from, desc.dtype, count);
    if (status == RG_OK)
        status = rg_tensor_write(made, to, to_bytes, RG_LAYOUT_SAME);
    free(from);
    free(to);
    if (status != RG_OK) {
        rg_tensor_destroy(made);
        return status;
    }
    rg_tensor_destroy(*tensor);
    *tensor = made;
    return RG_OK;
}

static bool is_data(const rg_tensor *tensor)
{
    rg_tensor_desc desc;
    return rg_tensor_get_desc(tensor, &desc) == RG_OK && rg_dtype_is_data(desc.dtype);
}

/* Whether the op accepts the inputs unconverted. */
static bool fit(const rg_op_run *run)
{
    rg_tensor_desc x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS];
    for (int32_t i = 0; i < run->inputs; i++) {
        if (run->x[i] == NULL || rg_tensor_get_desc(run->x[i], &x[i]) != RG_OK)
            return false;
    }
    return rg_kernel_shapes(run->kernel, x, y) == RG_OK;
}

int rg_op_run_convert(rg_op_run *run, rg_dtype dtype)
{
    for (int32_t i = 0; i < run->inputs; i++) {
        if (run->x[i] != NULL && is_data(run->x[i]) && rg_op_convert(&run->x[i], dtype) != RG_OK)
            return rg_failed();
    }
    const bool convert_integers = !fit(run);
    for (int32_t i = 0; i < run->inputs; i++) {
        if (run->x[i] != NULL && convert_integers && rg_op_convert(&run->x[i], dtype) != RG_OK)
            return rg_failed();
    }
    for (int32_t i = 0; i < run->outputs; i++) {
        if ((run->y[i] != NULL && rg_op_convert(&run->y[i], dtype) != RG_OK) ||
            (run->dy[i] != NULL && rg_op_convert(&run->dy[i], dtype) != RG_OK))
            return rg_failed();
    }
    return 0;
}

/* ---- saving ---- */

/* Whether a result is written to a temporary file until all are complete. What exists and is no
 * plain file (a device, a pipe, a link), or must not be written, is opened directly. */
static bool is_staged(const char *path, char staged[PATH])
{
    struct stat status;
    const bool exists = lstat(path, &status) == 0;
    const int length = snprintf(staged, PATH, "%s.part%ld", path, (long)getpid());
    return length < PATH && (!exists || (S_ISREG(status.st_mode) && access(path, W_OK) == 0));
}

static void unstage(const char *const paths[], int count)
{
    char staged[PATH];
    for (int i = 0; i < count; i++) {
        if (is_staged(paths[i], staged))
            unlink(staged);
    }
}

/* Replaces the temporary name in the sentence by that of the file. */
static rg_status save_beside(const rg_tensor *tensor, const char *path, const char *staged)
{
    const rg_status status = rg_tensor_save_npy(tensor, staged);
    char text[1024];
    snprintf(text, sizeof text, "%s", rg_error_text());
    const size_t length = strlen(staged);
    if (status != RG_OK && strncmp(text, staged, length) == 0)
        return rg_fail(status, "%s%s", path, text + length);
    return status;
}

static rg_status save_staged(rg_tensor *const tensors[], const char *const paths[], int count)
{
    char staged[PATH];
    rg_status status = RG_OK;
    int done = 0;
    for (; done < count && status == RG_OK; done++) {
        if (is_staged(paths[done], staged))
            status = save_beside(tensors[done], paths[done], staged);
    }
    for (int i = 0; i < count && status == RG_OK; i++) {
        if (!is_staged(paths[i], staged))
            status = rg_tensor_save_npy(tensors[i], paths[i]);
    }
    for (int i = 0; i < count && status == RG_OK; i++) {
        if (is_staged(paths[i], staged) && rename(staged, paths[i]) != 0)
            status = rg_fail(RG_IO, "%s: %s", paths[i], strerror(errno));
    }
    if (status != RG_OK)
        unstage(paths, done);
    return status;
}

int rg_op_save(rg_tensor *const tensors[], const char *const paths[], int count)
{
    const rg_status status =
        count == 1 ? rg_tensor_save_npy(tensors[0], paths[0]) : save_staged(tensors, paths, count);
    return status == RG_OK ? 0 : rg_failed();
}

int rg_op_run_save(rg_op_run *run)
{
    rg_tensor *tensors[RG_MOST_RESULTS];
    const char *paths[RG_MOST_RESULTS];
    for (int i = 0; i < run->result_count; i++) {
        const rg_operand *result = &run->results[i];
        paths[i] = result->path;
        if (result->role != RG_ROLE_STATE) {
            tensors[i] = *slot_of(run, result->role, result->index);
            continue;
        }
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(result->name, "="), result->name);
        if (rg_state_tensor(run->state, name, &tensors[i]) != RG_OK)
            return rg_wrong("%s", rg_error_text());
    }
    return rg_op_save(tensors, paths, run->result_count);
}
