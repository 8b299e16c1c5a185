/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Metrics as an event file of TensorBoard: records that each hold one protobuf message.
 *
 *      record   length u64, masked CRC of it u32, message, masked CRC of it u32; little-endian
 *      Event    1 wall_time double, 2 step int64, 3 file_version string, 5 summary Summary,
 *               7 session_log SessionLog
 *      Summary  1 value Value, repeated
 *      Value    1 tag string, 2 simple_value float
 *      SessionLog  1 status: 1 is the start of a run, which drops steps that were told before */
#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const tags[RG_METRICS] = {
    [RG_METRIC_TRAIN_LOSS] = "loss/train",
    [RG_METRIC_TRAIN_ACCURACY] = "accuracy/train",
    [RG_METRIC_VALIDATION_LOSS] = "loss/validation",
    [RG_METRIC_VALIDATION_ACCURACY] = "accuracy/validation",
    [RG_METRIC_LEARNING_RATE] = "learning_rate",
    [RG_METRIC_IMAGES_PER_SECOND] = "images_per_second",
    [RG_METRIC_SECONDS] = "seconds",
};

/* ---- check sums ---- */

uint32_t rg_crc32c(const void *data, size_t size)
{
    const uint8_t *at = data;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

/* A checksum over data that contains its own checksum is masked by a rotation and an offset. */
static uint32_t masked_crc(const void *data, size_t size)
{
    const uint32_t crc = rg_crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* ---- messages ---- */

/* Tags are known and short, so that every message fits. */
typedef struct message {
    uint8_t data[512];
    size_t size;
} message;

static void put(message *m, const void *data, size_t size)
{
    memcpy(m->data + m->size, data, size);
    m->size += size;
}

static void put_little(message *m, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        m->data[m->size++] = (uint8_t)(value >> 8 * i);
}

static void put_varint(message *m, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        m->data[m->size++] = (uint8_t)(value | 0x80);
    m->data[m->size++] = (uint8_t)value;
}

/* Wire types of protobuf. */
enum { VARINT = 0, EIGHT_BYTES = 1, LENGTH = 2, FOUR_BYTES = 5 };

static void put_key(message *m, int field, int type)
{
    put_varint(m, (uint64_t)(field << 3 | type));
}

static void put_bytes(message *m, int field, const void *data, size_t size)
{
    put_key(m, field, LENGTH);
    put_varint(m, size);
    put(m, data, size);
}

static void put_time(message *m, double time)
{
    uint64_t bits;
    memcpy(&bits, &time, sizeof bits);
    put_key(m, 1, EIGHT_BYTES);
    put_little(m, bits, 8);
}

static void put_step(message *m, int64_t step)
{
    put_key(m, 2, VARINT);
    put_varint(m, (uint64_t)step);
}

static void put_scalar(message *summary, const char *tag, float value)
{
    message one = { .size = 0 };
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_bytes(&one, 1, tag, strlen(tag));
    put_key(&one, 2, FOUR_BYTES);
    put_little(&one, bits, 4);
    put_bytes(summary, 1, one.data, one.size);
}

/* ---- records ---- */

static rg_status write_record(rg_metric_file *events, const message *event)
{
    message head = { .size = 0 };
    uint8_t record[sizeof event->data + 16];
    put_little(&head, event->size, 8);
    put_little(&head, masked_crc(head.data, 8), 4);
    memcpy(record, head.data, 12);
    memcpy(record + 12, event->data, event->size);
    head.size = 0;
    put_little(&head, masked_crc(event->data, event->size), 4);
    memcpy(record + 12 + event->size, head.data, 4);
    return rg_metric_file_write(events, record, event->size + 16);
}

static rg_status write_version(rg_metric_file *events, double time)
{
    static const char version[] = "brain.Event:2";
    message event = { .size = 0 };
    put_time(&event, time);
    put_bytes(&event, 3, version, sizeof version - 1);
    return write_record(events, &event);
}

static rg_status write_start(rg_metric_file *events, double time, int64_t step)
{
    message event = { .size = 0 }, log = { .size = 0 };
    put_key(&log, 1, VARINT);
    put_varint(&log, 1);
    put_time(&event, time);
    put_step(&event, step);
    put_bytes(&event, 7, log.data, log.size);
    return write_record(events, &event);
}

rg_status rg_events_add(rg_metric_file *events, const rg_metric_row *row, double time)
{
    message event = { .size = 0 }, summary = { .size = 0 };
    for (int i = 0; i < RG_METRICS; i++) {
        if (row->given >> i & 1)
            put_scalar(&summary, tags[i], (float)row->value[i]);
    }
    put_time(&event, time);
    put_step(&event, row->step);
    put_bytes(&event, 5, summary.data, summary.size);
    return write_record(events, &event);
}

/* ---- the file ---- */

/* The name of this machine, of plain characters. */
static void host_name(char *name, size_t capacity)
{
    if (gethostname(name, capacity - 1) != 0)
        name[0] = 0;
    name[capacity - 1] = 0;
    for (char *at = name; *at != 0; at++) {
        const bool plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                           (*at >= '0' && *at <= '9') || *at == '-' || *at == '.';
        *at = plain ? *at : '-';
    }
    if (name[0] == 0)
        snprintf(name, capacity, "host");
}

rg_status rg_events_open(rg_metric_file *events, const char *folder, double time, int64_t step)
{
    *events = (rg_metric_file){ -1 };
    RG_CHECK_NOT_NULL(folder);
    RG_CHECK(time >= 0 && time < 1e15, RG_INVALID_ARGUMENT,
             "invalid start time of an event file: %g seconds", time);
    char host[128], path[PATH_MAX];
    host_name(host, sizeof host);
    errno = EEXIST;
    for (int i = 0; i < 1000 && events->file < 0 && errno == EEXIST; i++) {
        const int length = snprintf(path, sizeof path, "%s/events.out.tfevents.%010lld.%s.%ld.%d",
                                    folder, (long long)time, host, (long)getpid(), i);
        RG_CHECK(length > 0 && (size_t)length < sizeof path, RG_IO, "%s: the name is too long",
                 folder);
        events->file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    }
    RG_CHECK(events->file >= 0, RG_IO, "%s: cannot create an event file: %s", folder,
             strerror(errno));
    rg_status status = write_version(events, time);
    if (status == RG_OK)
        status = write_start(events, time, step);
    if (status != RG_OK) {
        close(events->file);
        events->file = -1;
        unlink(path);
    }
    return status;
}
