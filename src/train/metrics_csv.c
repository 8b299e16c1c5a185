/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Metrics as CSV: one row per epoch or group of steps, an empty field for what is not known. */
#include "train/metrics.h"
#include "train/page.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char header[] = "epoch,step,train_loss,train_accuracy,validation_loss,"
                             "validation_accuracy,learning_rate,images_per_second,seconds\r\n";

/* ---- files that grow ---- */

rg_status rg_metric_file_write(rg_metric_file *file, const void *data, size_t size)
{
    RG_CHECK(file->file >= 0, RG_INVALID_STATE, "a file of metrics is written after it was closed");
    const char *at = data;
    while (size > 0) {
        const ssize_t step = write(file->file, at, size);
        if (step < 0 && errno == EINTR)
            continue;
        RG_CHECK(step >= 0, RG_IO, "metrics cannot be written: %s", strerror(errno));
        at += step;
        size -= (size_t)step;
    }
    return RG_OK;
}

rg_status rg_metric_file_close(rg_metric_file *file)
{
    const int old = file->file;
    file->file = -1;
    RG_CHECK(old < 0 || close(old) == 0, RG_IO, "metrics cannot be written: %s", strerror(errno));
    return RG_OK;
}

/* ---- CSV ---- */

/* Removes what stands behind the last whole row: half a row. */
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
             "does not begin as a file of metrics does, and is left alone");
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

/* "nan", "inf" and "-inf" are what readers of CSV know. */
static void add_number(rg_page *page, double value)
{
    if (isnan(value))
        rg_page_put(page, ",nan");
    else if (isinf(value))
        rg_page_put(page, value > 0 ? ",inf" : ",-inf");
    else
        rg_page_put(page, ",%s", rg_shortest(value).text);
}

rg_status rg_csv_add(rg_metric_file *csv, const rg_metric_row *row)
{
    rg_page page = { 0 };
    rg_page_put(&page, "%lld,%lld", (long long)row->epoch, (long long)row->step);
    for (int i = 0; i < RG_METRICS; i++) {
        if (row->given >> i & 1)
            add_number(&page, row->value[i]);
        else
            rg_page_put(&page, ",");
    }
    rg_page_put(&page, "\r\n");
    rg_status status = page.status;
    if (status == RG_OK)
        status = rg_metric_file_write(csv, page.text, page.length);
    rg_page_clear(&page);
    return status;
}
