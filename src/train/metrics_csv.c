/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Metrics as CSV: one row per epoch or group of steps, an empty field for what is not known. */
#include "core/number.h"
#include "files/whole_file.h"
#include "train/metrics.h"
#include "train/page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char header[] = "epoch,step,train_loss,train_accuracy,validation_loss,"
                             "validation_accuracy,learning_rate,images_per_second,seconds\r\n";

enum { NUMBER = 32 }; /* bytes of a number as text */

/* ---- files that grow ---- */

rg_status rg_metric_file_write(rg_metric_file *file, const void *data, size_t size)
{
    RG_CHECK(file->file >= 0, RG_INVALID_STATE,
             "a metrics file was written to after it was closed");
    const char *at = data;
    while (size > 0) {
        const ssize_t step = write(file->file, at, size);
        if (step < 0 && errno == EINTR)
            continue;
        RG_CHECK(step >= 0, RG_IO, "cannot write metrics: %s", strerror(errno));
        at += step;
        size -= (size_t)step;
    }
    return RG_OK;
}

rg_status rg_metric_file_close(rg_metric_file *file)
{
    const int old = file->file;
    file->file = -1;
    RG_CHECK(old < 0 || close(old) == 0, RG_IO, "cannot write metrics: %s", strerror(errno));
    return RG_OK;
}

/* ---- CSV ---- */

/* Removes an incomplete row at the end. */
static rg_status trim(int file, off_t size)
{
    char last;
    off_t end = size;
    while (end > 0 && pread(file, &last, 1, end - 1) == 1 && last != '\n')
        end--;
    RG_CHECK(end == size || ftruncate(file, end) == 0, RG_IO, "cannot be continued: %s",
             strerror(errno));
    return RG_OK;
}

static rg_status begin(rg_metric_file *csv)
{
    char first[sizeof header - 1];
    struct stat info;
    RG_CHECK(fstat(csv->file, &info) == 0, RG_IO, "cannot be opened: %s", strerror(errno));
    if (!S_ISREG(info.st_mode) || info.st_size == 0)
        return rg_metric_file_write(csv, header, sizeof header - 1);
    const ssize_t got = pread(csv->file, first, sizeof first, 0);
    RG_CHECK(got == (ssize_t)sizeof first && memcmp(first, header, sizeof first) == 0, RG_MALFORMED,
             "does not start like a metrics file; it is not changed");
    return trim(csv->file, info.st_size);
}

rg_status rg_csv_open(rg_metric_file *csv, const char *path)
{
    *csv = (rg_metric_file){ -1 };
    RG_CHECK_NOT_NULL(path);
    csv->file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    RG_CHECK(csv->file >= 0, RG_IO, "%s: cannot be opened for writing: %s", path, strerror(errno));
    const rg_status status = begin(csv);
    if (status != RG_OK) {
        close(csv->file);
        csv->file = -1;
        rg_error_prefix("%s: ", path);
    }
    return status;
}

rg_status rg_csv_start(rg_metric_file *csv, const char *path)
{
    struct stat info;
    RG_TRY(rg_csv_open(csv, path));
    const bool regular = fstat(csv->file, &info) == 0 && S_ISREG(info.st_mode);
    if (!regular || ftruncate(csv->file, sizeof header - 1) == 0)
        return RG_OK;
    const int error = errno;
    (void)rg_metric_file_close(csv);
    return rg_fail(RG_IO, "%s: cannot be written: %s", path, strerror(error));
}

bool rg_csv_is_used(const char *path)
{
    enum { START = 4096 }; /* more than two rows */
    char text[START];
    struct stat info;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return false;
    const bool regular = fstat(file, &info) == 0 && S_ISREG(info.st_mode);
    const ssize_t got = regular ? read(file, text, START) : 0;
    close(file);
    int lines = 0;
    for (ssize_t i = 0; i < got; i++)
        lines += i == 0 || (text[i - 1] == '\n' && text[i] != '\r');
    const ssize_t head = sizeof header - 1;
    const bool own = got >= head && memcmp(text, header, sizeof header - 1) == 0;
    return lines > (own ? 2 : 1);
}

rg_status rg_csv_add(rg_metric_file *csv, const rg_metric_row *row)
{
    rg_page page = { 0 };
    rg_page_put(&page, "%lld,%lld", (long long)row->epoch, (long long)row->step);
    for (int i = 0; i < RG_METRICS; i++) {
        char number[NUMBER] = ""; /* or "nan", "inf", "-inf", which readers of CSV know */
        if (row->given >> i & 1)
            rg_number_text(row->value[i], number, sizeof number);
        rg_page_put(&page, ",%s", number);
    }
    rg_page_put(&page, "\r\n");
    rg_status status = page.status;
    if (status == RG_OK)
        status = rg_metric_file_write(csv, page.text, page.length);
    rg_page_clear(&page);
    return status;
}

/* ---- tables that are continued ---- */

/* Reads a line without its end; false where it is no row. */
static bool read_row(const char *line, size_t length, rg_metric_row *row)
{
    char text[(RG_METRICS + 2) * NUMBER], *at = text;
    if (length >= sizeof text)
        return false;
    memcpy(text, line, length);
    text[length] = 0;
    text[strcspn(text, "\r")] = 0;
    *row = (rg_metric_row){ .epoch = strtoll(at, &at, 10) };
    if (at == text || *at != ',')
        return false;
    const char *second = at + 1;
    row->step = strtoll(second, &at, 10);
    for (int i = 0; i < RG_METRICS; i++) {
        if (*at != ',')
            return false;
        char number[NUMBER], *field = at + 1;
        const size_t size = strcspn(field, ",");
        at = field + size;
        if (size >= NUMBER)
            return false;
        memcpy(number, field, size);
        number[size] = 0;
        if (!rg_number_parse_any(size > 0 ? number : "nan", &row->value[i]))
            return false;
        row->given |= (uint32_t)(size > 0) << i;
    }
    return *at == 0 && row->epoch >= 1;
}

static rg_status keep_row(rg_metric_rows *rows, const rg_metric_row *row)
{
    RG_TRY(rg_grow(&rg_default_allocator, (void **)&rows->list, &rows->capacity, rows->count,
                   sizeof *rows->list));
    rows->list[rows->count++] = *row;
    return RG_OK;
}

void rg_metric_rows_release(rg_metric_rows *rows)
{
    rg_release(&rg_default_allocator, rows->list, rows->capacity * sizeof *rows->list);
    *rows = (rg_metric_rows){ 0 };
}

/* What stays of a table; a last line without an end does not. */
static rg_status keep_lines(const rg_bytes *table, int64_t last, rg_page *page,
                            rg_metric_rows *rows)
{
    const char *at = table->data, *const end = at + table->size;
    for (const char *next; at < end; at = next) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        rg_metric_row row;
        if (stop == NULL)
            break;
        next = stop + 1;
        const bool is_row = read_row(at, (size_t)(stop - at), &row);
        if (is_row && row.epoch > last) {
            rows->dropped++;
            continue;
        }
        if (is_row)
            RG_TRY(keep_row(rows, &row));
        rg_page_add(page, at, (size_t)(next - at));
    }
    return page->status;
}

static rg_status read_table(const char *path, rg_bytes *table)
{
    enum { LIMIT = 1 << 28 };
    const size_t head = sizeof header - 1;
    RG_TRY(rg_file_read(&rg_default_allocator, path, LIMIT, table));
    if (table->size >= head && memcmp(table->data, header, head) == 0)
        return RG_OK;
    rg_bytes_release(&rg_default_allocator, table);
    return rg_fail(RG_MALFORMED, "%s: does not start like a metrics file; it is not changed", path);
}

/* Checks the table at `path` before it is replaced: it has no rows, or begins with the new ones. */
static rg_status check_replaced(const char *path, const rg_page *by, rg_metric_rows *rows)
{
    rg_bytes table;
    rg_page page = { 0 };
    rg_metric_rows old = { 0 };
    RG_TRY(read_table(path, &table));
    rg_status status = keep_lines(&table, INT64_MAX, &page, &old);
    const bool same = status == RG_OK && rows->count > 0 && page.length >= by->length &&
                      memcmp(page.text, by->text, by->length) == 0;
    rows->dropped = same ? old.count - rows->count : 0;
    if (status == RG_OK && old.count > 0 && !same)
        status = rg_fail(RG_INVALID_STATE,
                         "%s: contains rows of another run and is not changed; use another folder "
                         "or remove the file",
                         path);
    rg_page_clear(&page);
    rg_metric_rows_release(&old);
    rg_bytes_release(&rg_default_allocator, &table);
    return status;
}

/* Whether the path is a file with content; a pipe would block. */
static bool has_table(const char *path, struct stat *info)
{
    return stat(path, info) == 0 && S_ISREG(info->st_mode) && info->st_size > 0;
}

static rg_status copy_table(const char *path, const char *from, int64_t last, rg_metric_rows *rows)
{
    struct stat here;
    rg_bytes table;
    rg_page page = { 0 };
    RG_TRY(read_table(from, &table));
    rg_status status = keep_lines(&table, last, &page, rows);
    const bool changed = rows->moved || page.length != table.size;
    rg_bytes_release(&rg_default_allocator, &table);
    if (status == RG_OK && rows->moved) {
        rows->dropped = 0; /* they stay where they are */
        if (has_table(path, &here))
            status = check_replaced(path, &page, rows);
    }
    if (status == RG_OK && changed)
        return rg_page_save(&page, path);
    rg_page_clear(&page);
    return status;
}

rg_status rg_csv_continue(rg_metric_file *csv, const char *path, const char *from, int64_t last,
                          rg_metric_rows *rows)
{
    struct stat here, there;
    *csv = (rg_metric_file){ -1 };
    *rows = (rg_metric_rows){ 0 };
    const bool old = has_table(path, &here), other = has_table(from, &there);
    rows->moved = other && !(old && here.st_dev == there.st_dev && here.st_ino == there.st_ino);
    rg_status status = RG_OK;
    if (old || other)
        status = copy_table(path, rows->moved ? from : path, last, rows);
    if (status == RG_OK)
        status = rg_csv_open(csv, path);
    if (status != RG_OK)
        rg_metric_rows_release(rows);
    return status;
}
