/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Metrics as they are written: rows of CSV, and records of TensorBoard's event files read again. */
#include "tests/scratch_folder.h"
#include "train/metrics.h"

#include <dirent.h>
#include <math.h>

static const char header[] = "epoch,step,train_loss,train_accuracy,validation_loss,"
                             "validation_accuracy,learning_rate,images_per_second,seconds\r\n";

static bool holds(const char *name, const char *text)
{
    char got[4096];
    const size_t size = scratch_read(name, got, sizeof got - 1);
    got[size] = 0;
    if (strcmp(got, text) != 0)
        printf("%s\ninstead of\n%s\n", got, text);
    return strcmp(got, text) == 0;
}

/* ---- CSV ---- */

static void test_csv(void)
{
    rg_metric_file csv;
    rg_metric_row row = { .epoch = 1, .step = 100 };
    char wanted[1024];
    EXPECT_OK(rg_csv_open(&csv, scratch("metrics.csv")));
    rg_metric_set(&row, RG_METRIC_TRAIN_LOSS, 0.1);
    EXPECT_OK(rg_csv_add(&csv, &row));
    row = (rg_metric_row){ .epoch = 2, .step = INT64_MAX };
    rg_metric_set(&row, RG_METRIC_TRAIN_LOSS, NAN);
    rg_metric_set(&row, RG_METRIC_VALIDATION_LOSS, INFINITY);
    rg_metric_set(&row, RG_METRIC_VALIDATION_ACCURACY, -INFINITY);
    rg_metric_set(&row, RG_METRIC_LEARNING_RATE, 1e-5);
    rg_metric_set(&row, RG_METRIC_SECONDS, 1.0 / 3);
    EXPECT_OK(rg_csv_add(&csv, &row));
    EXPECT_OK(rg_metric_file_close(&csv));
    EXPECT_OK(rg_metric_file_close(&csv)); /* twice does no harm */
    EXPECT_FAILS(rg_csv_add(&csv, &row), RG_INVALID_STATE, "closed");
    snprintf(wanted, sizeof wanted, "%s%s", header,
             "1,100,0.1,,,,,,\r\n"
             "2,9223372036854775807,nan,,inf,-inf,1e-05,,0.3333333333333333\r\n");
    EXPECT(holds("metrics.csv", wanted));
    scratch_remove("metrics.csv");
}

/* A run that continues where it was stopped, perhaps within a row. */
static void test_csv_continues(void)
{
    rg_metric_file csv;
    const rg_metric_row row = { .epoch = 3, .step = 7 };
    char text[1024];
    snprintf(text, sizeof text, "%s1,5,0.5,,,,,,\r\n2,6,0.25,0.", header);
    scratch_write("metrics.csv", text, strlen(text));
    EXPECT_OK(rg_csv_open(&csv, scratch("metrics.csv")));
    EXPECT_OK(rg_csv_add(&csv, &row));
    EXPECT_OK(rg_metric_file_close(&csv));
    snprintf(text, sizeof text, "%s1,5,0.5,,,,,,\r\n3,7,,,,,,,\r\n", header);
    EXPECT(holds("metrics.csv", text));
    EXPECT_OK(rg_csv_start(&csv, scratch("metrics.csv"))); /* a new run */
    EXPECT_OK(rg_csv_add(&csv, &row));
    EXPECT_OK(rg_metric_file_close(&csv));
    snprintf(text, sizeof text, "%s3,7,,,,,,,\r\n", header);
    EXPECT(holds("metrics.csv", text));

    scratch_write("metrics.csv", "somebody's notes\n", 17);
    EXPECT_FAILS(rg_csv_start(&csv, scratch("metrics.csv")), RG_MALFORMED, "it is not changed");
    EXPECT_FAILS(rg_csv_open(&csv, scratch("metrics.csv")), RG_MALFORMED, "it is not changed");
    EXPECT(csv.file < 0 && holds("metrics.csv", "somebody's notes\n"));
    scratch_remove("metrics.csv");
    EXPECT_FAILS(rg_csv_open(&csv, "/nonexistent/metrics.csv"), RG_IO, "nonexistent");
    EXPECT_FAILS(rg_csv_open(&csv, scratch_folder), RG_IO, "cannot be opened");
    EXPECT_FAILS(rg_csv_open(&csv, "/dev/full"), RG_IO, "No space");
}

/* A run that continues after an epoch removes rows of later epochs, and nothing else. */
static void test_csv_goes_on(void)
{
    rg_metric_file csv;
    rg_metric_rows rows;
    const rg_metric_row row = { .epoch = 3, .step = 7 };
    char text[1024], path[512];
    snprintf(path, sizeof path, "%s", scratch("metrics.csv"));
    snprintf(text, sizeof text, "%s1,5,0.5,,nan,-inf,1e-05,,2\r\na note\n2,6,0.25,,,,,,\r\n%s",
             header, "3,9,1,,,,,,\r\n3,9,2,,,,,,\r\n12,40,3,,,,,,\r\n4,1");
    scratch_write("metrics.csv", text, strlen(text));
    EXPECT_OK(rg_csv_continue(&csv, path, path, 2, &rows));
    EXPECT(rows.count == 2 && rows.list[0].epoch == 1 && rows.list[1].epoch == 2);
    EXPECT(rows.dropped == 3 && !rows.moved);
    EXPECT(rows.list[0].step == 5 && rows.list[0].given == 0x5d && rows.list[0].value[0] == 0.5);
    EXPECT(isnan(rows.list[0].value[1]) && isnan(rows.list[0].value[2]));
    EXPECT(rows.list[0].value[3] == -INFINITY);
    EXPECT(rows.list[0].value[4] == 1e-5 && rows.list[0].value[6] == 2);
    rg_metric_rows_release(&rows);
    EXPECT_OK(rg_csv_add(&csv, &row));
    EXPECT_OK(rg_metric_file_close(&csv));
    snprintf(text, sizeof text, "%s%s", header,
             "1,5,0.5,,nan,-inf,1e-05,,2\r\na note\n2,6,0.25,,,,,,\r\n3,7,,,,,,,\r\n");
    EXPECT(holds("metrics.csv", text));

    EXPECT_OK(rg_csv_continue(&csv, scratch("other.csv"), path, 1, &rows)); /* in another folder */
    EXPECT(rows.count == 1 && rows.dropped == 0 && rows.moved);
    rg_metric_rows_release(&rows);
    EXPECT_OK(rg_metric_file_close(&csv));
    EXPECT(holds("metrics.csv", text));
    snprintf(text, sizeof text, "%s1,5,0.5,,nan,-inf,1e-05,,2\r\na note\n", header);
    EXPECT(holds("other.csv", text));
    scratch_remove("other.csv");
    EXPECT_OK(rg_csv_continue(&csv, scratch("other.csv"), "/none.csv", 1, &rows));
    EXPECT(rows.count == 0 && holds("other.csv", header));
    EXPECT_OK(rg_metric_file_close(&csv));
    scratch_remove("other.csv");
    scratch_write("metrics.csv", "somebody's notes\n", 17);
    EXPECT_FAILS(rg_csv_continue(&csv, path, path, 1, &rows), RG_MALFORMED, "it is not changed");
    EXPECT(csv.file < 0 && rows.list == NULL && holds("metrics.csv", "somebody's notes\n"));
    scratch_remove("metrics.csv");
}

/* Opens a table behind epoch `last` that is to begin as another does; what it then holds. */
static void continues(const char *here, const char *there, int64_t last, size_t dropped,
                      const char *wanted)
{
    rg_metric_file csv;
    rg_metric_rows rows;
    char path[512], from[512];
    snprintf(path, sizeof path, "%s", scratch(here));
    snprintf(from, sizeof from, "%s", scratch(there));
    EXPECT_OK(rg_csv_continue(&csv, path, from, last, &rows));
    EXPECT(rows.dropped == dropped);
    EXPECT_OK(rg_metric_file_close(&csv));
    rg_metric_rows_release(&rows);
    EXPECT(holds(here, wanted));
}

static void refuses(const char *here, const char *there, const char *says)
{
    rg_metric_file csv;
    rg_metric_rows rows;
    char path[512], from[512], before[1024] = { 0 };
    scratch_read(here, before, sizeof before - 1);
    snprintf(path, sizeof path, "%s", scratch(here));
    snprintf(from, sizeof from, "%s", scratch(there));
    EXPECT_FAILS(rg_csv_continue(&csv, path, from, 2, &rows), RG_INVALID_STATE, says);
    EXPECT(csv.file < 0 && rows.list == NULL && holds(here, before));
}

static void write_table(const char *name, const char *rows)
{
    char text[1024];
    snprintf(text, sizeof text, "%s%s", header, rows);
    scratch_write(name, text, strlen(text));
}

/* A run that continues in another folder, which may have a table already. */
static void test_csv_in_another_folder(void)
{
    char two[1024];
    snprintf(two, sizeof two, "%s1,5,,,,,,,\r\n2,6,,,,,,,\r\n", header);
    write_table("from.csv", "1,5,,,,,,,\r\n2,6,,,,,,,\r\n3,7,,,,,,,\r\n");
    write_table("to.csv", "");
    continues("to.csv", "from.csv", 2, 0, two);
    write_table("to.csv", "1,5,,,,,,,\r\n2,6,,,,,,,\r\n3,8,,,,,,,\r\n4,9,,,,,,,\r\n");
    continues("to.csv", "from.csv", 2, 2, two); /* it has gone on there before */
    write_table("to.csv", "1,5,,,,,,,\r\n2,7,,,,,,,\r\n");
    refuses("to.csv", "from.csv", "to.csv: contains rows of another run");
    write_table("to.csv", "1,5,,,,,,,\r\n");
    refuses("to.csv", "from.csv", "rows of another run");
    write_table("from.csv", ""); /* nothing tells whose rows they are */
    refuses("to.csv", "from.csv", "rows of another run");

    write_table("to.csv", "1,5,,,,,,,\r\n2,6,,,,,,,\r\n3,8,,,,,,,\r\n");
    scratch_write("from.csv", "", 0); /* as if it were missing */
    continues("to.csv", "from.csv", 2, 1, two);
    scratch_remove("from.csv");
    continues("to.csv", "from.csv", 2, 0, two);
    scratch_remove("to.csv");
}

/* Epochs count from 1: what is called 0 is a note. */
static void test_csv_epoch_0(void)
{
    char text[1024];
    snprintf(text, sizeof text, "%s0,0,,,,,,,\r\n1,5,,,,,,,\r\n0,0,,,,,,,\r\n", header);
    scratch_write("metrics.csv", text, strlen(text));
    rg_metric_file csv;
    rg_metric_rows rows;
    char path[512];
    snprintf(path, sizeof path, "%s", scratch("metrics.csv"));
    EXPECT_OK(rg_csv_continue(&csv, path, path, 1, &rows));
    EXPECT(rows.count == 1 && rows.list[0].epoch == 1 && rows.dropped == 0);
    EXPECT_OK(rg_metric_file_close(&csv));
    rg_metric_rows_release(&rows);
    EXPECT(holds("metrics.csv", text));
    scratch_remove("metrics.csv");
}

/* ---- events ---- */

static uint64_t little(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* The masked check sum, worked out bit by bit. */
static uint32_t masked(const uint8_t *data, size_t size)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < 8 * size; i++)
        crc = (crc >> 1) ^ (((crc ^ (uint32_t)(data[i / 8] >> i % 8)) & 1) * 0x82f63b78u);
    crc = ~crc;
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/* A field of a protobuf message: number, value or bytes. */
typedef struct field {
    int number, type;
    uint64_t value; /* or the length of the bytes */
    const uint8_t *bytes;
} field;

static uint64_t read_varint(const uint8_t **at)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        const uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
}

static field read_field(const uint8_t **at)
{
    const uint64_t key = read_varint(at);
    field f = { .number = (int)(key >> 3), .type = (int)(key & 7) };
    if (f.type == 0 || f.type == 2)
        f.value = read_varint(at);
    else
        f.value = little(*at, f.type == 1 ? 8 : 4);
    f.bytes = *at;
    *at += f.type == 2 ? f.value : f.type == 1 ? 8 : f.type == 5 ? 4 : 0;
    return f;
}

static bool is_text(field f, const char *text)
{
    return f.type == 2 && f.value == strlen(text) && memcmp(f.bytes, text, f.value) == 0;
}

/* The message of the record at *at, whose check sums must be right; its length, or 0. */
static size_t read_record(const uint8_t *data, size_t size, size_t *at, const uint8_t **message)
{
    if (*at + 16 > size)
        return 0;
    const uint8_t *record = data + *at;
    const size_t length = little(record, 8);
    if (length > size - *at - 16 || little(record + 8, 4) != masked(record, 8) ||
        little(record + 12 + length, 4) != masked(record + 12, length))
        return 0;
    *message = record + 12;
    *at += 16 + length;
    return length;
}

/* The value of a tag in an event; NaN where it is not there. */
static double scalar(const uint8_t *message, size_t length, const char *tag)
{
    for (const uint8_t *at = message; at < message + length;) {
        const field f = read_field(&at);
        if (f.number != 5)
            continue;
        for (const uint8_t *in = f.bytes; in < f.bytes + f.value;) {
            const field value = read_field(&in);
            const uint8_t *inner = value.bytes;
            const field name = read_field(&inner), number = read_field(&inner);
            float got;
            const uint32_t bits = (uint32_t)number.value;
            memcpy(&got, &bits, sizeof got);
            if (name.number == 1 && is_text(name, tag) && number.number == 2 && number.type == 5)
                return got;
        }
    }
    return NAN;
}

/* The name of an event file in the scratch folder; false where there is none. */
static bool find_events(char name[200])
{
    bool found = false;
    DIR *folder = opendir(scratch_folder);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL && !found;) {
        found = strncmp(entry->d_name, "events.out.tfevents.1700000000.", 31) == 0;
        snprintf(name, 200, "%.199s", found ? entry->d_name : "");
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

static void check_events(const uint8_t *data, size_t size)
{
    const uint8_t *message;
    size_t at = 0, length = read_record(data, size, &at, &message);
    EXPECT(length > 0);
    const uint8_t *in = message;
    const field time = read_field(&in), version = read_field(&in);
    double seconds;
    memcpy(&seconds, &time.value, sizeof seconds);
    EXPECT(time.number == 1 && time.type == 1 && seconds == 1700000000.5);
    EXPECT(version.number == 3 && is_text(version, "brain.Event:2"));

    length = read_record(data, size, &at, &message); /* steps from 7 on are told anew */
    EXPECT(length > 0);
    in = message;
    read_field(&in);
    const field from = read_field(&in), log = read_field(&in);
    EXPECT(from.number == 2 && from.value == 7 && log.number == 7 && is_text(log, "\x08\x01"));
    length = read_record(data, size, &at, &message);
    EXPECT(length > 0 && scalar(message, length, "loss/train") == 0.25);
    EXPECT(isnan(scalar(message, length, "loss/validation")));
    length = read_record(data, size, &at, &message);
    in = message;
    read_field(&in);
    const field step = read_field(&in);
    EXPECT(step.number == 2 && step.type == 0 && step.value == 300);
    static const char *const tags[] = { "loss/train",      "accuracy/train",
                                        "loss/validation", "accuracy/validation",
                                        "learning_rate",   "images_per_second",
                                        "seconds" };
    for (int i = 0; i < RG_METRICS; i++)
        EXPECT(scalar(message, length, tags[i]) == 1.5 + i);
    EXPECT(at == size);
}

static void test_events(void)
{
    char name[200];
    int files = 0;
    uint8_t data[4096];
    rg_metric_file events, other;
    rg_metric_row row = { .epoch = 1, .step = 10 };
    EXPECT(rg_crc32c("123456789", 9) == 0xe3069283u && rg_crc32c("", 0) == 0);
    EXPECT_OK(rg_events_open(&events, scratch_folder, 1700000000.5, 7));
    EXPECT_OK(rg_events_open(&other, scratch_folder, 1700000000.5, 7)); /* beside the first */
    EXPECT_OK(rg_metric_file_close(&other));
    rg_metric_set(&row, RG_METRIC_TRAIN_LOSS, 0.25);
    EXPECT_OK(rg_events_add(&events, &row, 1700000001));
    row.step = 300;
    for (int i = 0; i < RG_METRICS; i++)
        rg_metric_set(&row, (rg_metric)i, 1.5 + i);
    EXPECT_OK(rg_events_add(&events, &row, 1700000002));
    EXPECT_OK(rg_metric_file_close(&events));

    for (; find_events(name); files++) {
        const size_t size = scratch_read(name, data, sizeof data);
        if (size > 100)
            check_events(data, size);
        scratch_remove(name);
    }
    EXPECT(files == 2);
    EXPECT_FAILS(rg_events_open(&events, "/nonexistent", 1, 0), RG_IO,
                 "/nonexistent: cannot create an event file");
    EXPECT_FAILS(rg_events_open(&events, scratch_folder, NAN, 0), RG_INVALID_ARGUMENT, "second");
    EXPECT(events.file < 0);
}

/* For other readers: a run of some epochs, as CSV and events, in a folder. */
static void write_run(const char *folder)
{
    char path[512];
    rg_metric_file csv, events;
    snprintf(path, sizeof path, "%s/metrics.csv", folder);
    EXPECT_OK(rg_csv_open(&csv, path));
    EXPECT_OK(rg_events_open(&events, folder, 1700000000, 0));
    for (int i = 1; i <= 20; i++) {
        rg_metric_row row = { .epoch = i, .step = 100 * i };
        for (int k = 0; k < RG_METRICS; k++)
            rg_metric_set(&row, (rg_metric)k, k + 1.0 / i);
        if (i == 13)
            rg_metric_set(&row, RG_METRIC_TRAIN_LOSS, NAN);
        EXPECT_OK(rg_csv_add(&csv, &row));
        EXPECT_OK(rg_events_add(&events, &row, 1700000000 + i));
    }
    EXPECT_OK(rg_metric_file_close(&csv));
    EXPECT_OK(rg_metric_file_close(&events));
}

int main(int count, char **arguments)
{
    if (count > 1) {
        write_run(arguments[1]);
        return rg_test_report();
    }
    scratch_begin();
    test_csv();
    test_csv_continues();
    test_csv_goes_on();
    test_csv_in_another_folder();
    test_csv_epoch_0();
    test_events();
    scratch_end();
    return rg_test_report();
}
