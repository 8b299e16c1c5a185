/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* ONNX models with external data: the length of the model, the model, the file "w.bin" beside it,
 * which is in the folder "d" too. All weights are read, and the model becomes a checkpoint. */
#include "fuzz.h"

#include <retrograde/checkpoint.h>
#include <retrograde/onnx.h>

#include <sys/stat.h>

enum { MOST_ELEMENTS = 1 << 14 };

static void read_weights(const rg_onnx_network *network)
{
    for (int32_t i = 0; i < rg_onnx_network_tensors(network); i++) {
        rg_onnx_tensor_info info;
        rg_tensor *tensor;
        FUZZ_CHECK(rg_onnx_network_tensor(network, i, &info) == RG_OK);
        if (info.role != RG_ONNX_PARAMETER || rg_shape_count(&info.desc) > MOST_ELEMENTS)
            continue;
        if (FUZZ_TRY(rg_onnx_network_constant(network, info.name, fuzz_reader_device(), &tensor)))
            rg_tensor_destroy(tensor);
    }
}

/* A checkpoint of the model, as it is or as text. */
static void convert(const char *path, bool as_text)
{
    rg_model *model = NULL;
    if (FUZZ_TRY(rg_model_open(path, &model)))
        (void)FUZZ_TRY(rg_checkpoint_import(fuzz_reader_device(), model, as_text,
                                            fuzz_path("made.safetensors")));
    rg_model_destroy(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    size_t taken;
    uint8_t *file = fuzz_take(&input, fuzz_word(&input), &taken);
    rg_onnx *model = NULL;
    rg_onnx_network *network = NULL;
    char path[512];
    fuzz_clear();
    snprintf(path, sizeof path, "%s", fuzz_file("model.onnx", file, taken));
    free(file);
    FUZZ_CHECK(mkdir(fuzz_path("d"), 0777) == 0);
    fuzz_file("w.bin", input.data, input.size);
    fuzz_file("d/w.bin", input.data, input.size);
    if (FUZZ_TRY(rg_onnx_open(path, &model)) &&
        FUZZ_TRY(rg_onnx_network_create(model, NULL, &network)))
        read_weights(network);
    rg_onnx_network_destroy(network);
    rg_onnx_close(model);
    convert(path, size % 2 != 0);
    fuzz_clear();
    return 0;
}
