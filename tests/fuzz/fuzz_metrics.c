/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tables of metrics that a run goes on from: a byte of choices, the last epoch, the length of the
 * table in the run's folder, that table, and the table beside the checkpoint. */
#include "fuzz.h"

#include "train/metrics.h"

/* Continues the table once more: nothing is dropped, and the rows are the same. */
static void check_again(const char *path, int64_t last, const rg_metric_rows *rows)
{
    rg_metric_rows again;
    rg_metric_file csv;
    FUZZ_CHECK(rg_csv_continue(&csv, path, path, last, &again) == RG_OK);
    FUZZ_CHECK(again.count == rows->count && again.dropped == 0);
    for (size_t i = 0; i < rows->count; i++) {
        const rg_metric_row *a = &rows->list[i], *b = &again.list[i];
        FUZZ_CHECK(a->epoch == b->epoch && a->epoch >= 1 && a->epoch <= last);
        FUZZ_CHECK(a->step == b->step && a->given == b->given);
        FUZZ_CHECK(memcmp(a->value, b->value, sizeof a->value) == 0);
    }
    rg_metric_row row = { .epoch = last + 1, .step = 7 };
    rg_metric_set(&row, RG_METRIC_TRAIN_LOSS, 0.5);
    FUZZ_CHECK(rg_csv_add(&csv, &row) == RG_OK);
    FUZZ_CHECK(rg_metric_file_close(&csv) == RG_OK);
    rg_metric_rows_release(&again);
    FUZZ_CHECK(rg_csv_continue(&csv, path, path, last + 1, &again) == RG_OK);
    FUZZ_CHECK(again.count == rows->count + 1);
    FUZZ_CHECK(rg_metric_file_close(&csv) == RG_OK);
    rg_metric_rows_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    const uint8_t choice = fuzz_byte(&input);
    const int64_t last = fuzz_byte(&input);
    size_t first;
    uint8_t *table = fuzz_take(&input, fuzz_word(&input), &first);
    char path[512], beside[512];
    fuzz_clear();
    snprintf(path, sizeof path, "%s", fuzz_path("metrics.csv"));
    snprintf(beside, sizeof beside, "%s", fuzz_path("beside.csv"));
    if ((choice & 1) != 0)
        fuzz_file("metrics.csv", table, first);
    if ((choice & 2) != 0)
        fuzz_file("beside.csv", input.data, input.size);
    rg_metric_rows rows;
    rg_metric_file csv;
    if (FUZZ_TRY(rg_csv_continue(&csv, path, beside, last, &rows))) {
        FUZZ_CHECK(rg_metric_file_close(&csv) == RG_OK);
        check_again(path, last, &rows);
    }
    rg_metric_rows_release(&rows);
    if (FUZZ_TRY(rg_csv_start(&csv, path)))
        FUZZ_CHECK(rg_metric_file_close(&csv) == RG_OK);
    free(table);
    fuzz_clear();
    return 0;
}
