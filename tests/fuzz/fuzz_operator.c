/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Operators of ONNX and MPS: a line of JSON, then four bytes for each input, its dtype and rank,
 * its dimensions, and how it is filled. What is read is written and read again, and run. */
#include "fuzz.h"

#include "core/dtype.h"
#include "operators/operator.h"

#include <retrograde/files.h>
#include <retrograde/operator.h>

enum { MOST_ELEMENTS = 4096, MOST_INPUTS = 8 };

/* The text of an operator is read as an operator with this text. */
static void round_trip(const rg_operator *op)
{
    rg_operator *again = NULL;
    const size_t length = rg_operator_to_json(op, NULL, 0);
    char *text = malloc(length + 1), *second = malloc(length + 1);
    FUZZ_CHECK(text != NULL && second != NULL);
    FUZZ_CHECK(rg_operator_to_json(op, text, length + 1) == length);
    FUZZ_CHECK(rg_operator_from_json(fuzz_reader_device(), text, length, &again) == RG_OK);
    FUZZ_CHECK(rg_operator_to_json(again, second, length + 1) == length);
    FUZZ_CHECK(strcmp(text, second) == 0);
    rg_operator_destroy(again);
    free(second);
    free(text);
}

/* Small whole numbers, or all bytes of the input as they are. */
static void fill(rg_tensor *tensor, const rg_tensor_desc *desc, fuzz_input *input, uint8_t how)
{
    const int64_t count = rg_shape_count(desc);
    char *data = rg_tensor_data(tensor);
    for (int64_t i = 0; i < count; i++) {
        const double value = (how & 1) != 0 ? (double)(int8_t)fuzz_byte(input) : (double)(i % 5);
        rg_element_set(data, desc->dtype, i, value);
    }
    for (size_t i = 0; (how & 2) != 0 && i < (size_t)count * rg_dtype_size(desc->dtype); i++)
        data[i] = (char)fuzz_byte(input);
}

/* NULL: absent. */
static rg_tensor *make_input(fuzz_input *input)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16, RG_I64, RG_I32, RG_U8 };
    const uint8_t kind = fuzz_byte(input), sizes = fuzz_byte(input), more = fuzz_byte(input);
    const uint8_t how = fuzz_byte(input);
    const int64_t dims[] = { sizes & 3,      sizes >> 2 & 7, more & 7,
                             sizes >> 5 & 7, more >> 3 & 3,  more >> 5 };
    if (kind % 8 == 7)
        return NULL;
    rg_tensor_desc desc = rg_tensor_desc_dense(dtypes[kind % 8], kind / 8 % 7, dims);
    rg_tensor *tensor = NULL;
    if (rg_shape_count(&desc) > MOST_ELEMENTS ||
        rg_tensor_create(fuzz_reader_device(), &desc, &tensor) != RG_OK)
        return NULL;
    fill(tensor, &desc, input, how);
    return tensor;
}

static void run(rg_operator *op, fuzz_input *input)
{
    rg_tensor *x[MOST_INPUTS] = { NULL }, *y[RG_OPERATOR_TENSORS] = { NULL };
    rg_queue *queue;
    rg_commands *commands;
    const uint8_t wanted = fuzz_byte(input);
    for (int i = 0; i < MOST_INPUTS && input->size > 0; i++)
        x[i] = make_input(input);
    FUZZ_CHECK(rg_queue_create(fuzz_reader_device(), &queue) == RG_OK);
    FUZZ_CHECK(rg_commands_create(queue, &commands) == RG_OK);
    if (FUZZ_TRY(rg_operator_run(op, commands, x, MOST_INPUTS, wanted, y)) &&
        FUZZ_TRY(rg_commands_commit(commands)))
        (void)FUZZ_TRY(rg_commands_wait(commands)); /* labels that are no class are a fault */
    for (int i = 0; i < RG_OPERATOR_TENSORS; i++)
        rg_tensor_destroy(y[i]);
    for (int i = 0; i < MOST_INPUTS; i++)
        rg_tensor_destroy(x[i]);
    rg_commands_destroy(commands);
    rg_queue_destroy(queue);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    char *line = fuzz_line(&input);
    rg_operator *op = NULL;
    if (FUZZ_TRY(rg_operator_from_json(fuzz_reader_device(), line, strlen(line), &op))) {
        round_trip(op);
        run(op, &input);
    } else {
        FUZZ_CHECK(op == NULL);
    }
    rg_operator_destroy(op);
    free(line);
    return 0;
}
