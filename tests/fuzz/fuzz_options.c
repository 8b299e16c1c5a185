/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Options of `retrograde train`: "name=value" lines as a checkpoint keeps them, or words of a
 * command line, one a line. Options that are right are written and read again. */
#include "fuzz.h"

#include "cli/train_options.h"
#include "train/trainer.h"

enum { MOST_WORDS = 64 };

/* As FUZZ_TRY, for calls of the program. */
static bool explained(rg_status status)
{
    FUZZ_CHECK(status == RG_OK || rg_failure()[0] != 0);
    return status == RG_OK;
}

static void check_round_trip(rg_train_request *request)
{
    rg_train_request again = rg_train_defaults();
    char *first = rg_train_options_text(request);
    FUZZ_CHECK(first != NULL);
    char *copy = strdup(first);
    FUZZ_CHECK(copy != NULL && rg_train_options_read(&again, copy) == RG_OK);
    char *second = rg_train_options_text(&again);
    FUZZ_CHECK(second != NULL && strcmp(first, second) == 0);
    rg_trainer_desc desc, read;
    FUZZ_CHECK(rg_train_desc(&again, &desc) == RG_OK);
    FUZZ_CHECK(rg_trainer_desc_read(first, &read) == RG_OK); /* as the library goes on with it */
    char *of_desc, *of_read;
    FUZZ_CHECK(rg_trainer_desc_text(&desc, &of_desc) == RG_OK);
    FUZZ_CHECK(rg_trainer_desc_text(&read, &of_read) == RG_OK);
    FUZZ_CHECK(strcmp(of_desc, of_read) == 0);
    free(of_desc);
    free(of_read);
    for (int64_t step = 0; step < 5; step++)
        (void)rg_trainer_desc_rate(&desc, step << 10 * step, INT64_C(1) << 40);
    free(first);
    free(copy);
    free(second);
}

static void check_words(fuzz_input *input)
{
    char *words[MOST_WORDS + 1];
    rg_option table[RG_TRAIN_OPTIONS];
    rg_train_request request = rg_train_defaults();
    int count = 0;
    while (input->size > 0 && count < MOST_WORDS)
        words[count++] = fuzz_line(input);
    words[count] = NULL;
    char *taken[MOST_WORDS + 1];
    memcpy(taken, words, sizeof words);
    rg_train_options(&request, table);
    const int left = rg_options_take(table, count, taken, NULL, NULL);
    FUZZ_CHECK(left <= count);
    if (left >= 0 && explained(rg_train_options_check(&request)))
        check_round_trip(&request);
    for (int i = 0; i < count; i++)
        free(words[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    if ((fuzz_byte(&input) & 1) != 0) {
        check_words(&input);
        return 0;
    }
    rg_train_request request = rg_train_defaults();
    char *text = fuzz_text(&input);
    rg_trainer_desc desc;
    (void)FUZZ_TRY(rg_trainer_desc_read(text, &desc));
    if (explained(rg_train_options_read(&request, text)) &&
        explained(rg_train_options_check(&request)))
        check_round_trip(&request);
    free(text);
    return 0;
}
