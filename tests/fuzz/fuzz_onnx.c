/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* ONNX models: four bytes for options and sizes, then the file. A model that is read becomes a
 * graph, which is written as JSON and as ONNX, both read again, and run where it is small. */
#include "fuzz.h"

#include "onnx/export.h"

#include <retrograde/onnx.h>

enum { MOST_ELEMENTS = 1 << 14, MOST_NODES = 64 };

static void read_constants(const rg_onnx_network *network)
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

/* Inputs of the shapes that the file says, with small numbers where it says none. */
static void fill_shapes(const rg_onnx *model, rg_tensor_desc shapes[], int32_t count, uint8_t size)
{
    for (int32_t i = 0; i < count; i++) {
        rg_onnx_port_info info;
        FUZZ_CHECK(rg_onnx_input(model, i, &info) == RG_OK);
        shapes[i] = (rg_tensor_desc){ .rank = info.rank < 0 ? 2 : info.rank };
        for (int32_t d = 0; d < shapes[i].rank; d++)
            shapes[i].dims[d] = info.rank >= 0 && info.dims[d] >= 0 ? info.dims[d] : 1 + size % 7;
    }
}

/* What is written can be read. */
static void read_again(rg_writer *writer, bool written)
{
    rg_onnx *model = NULL;
    rg_onnx_network *network = NULL;
    if (written)
        FUZZ_CHECK(rg_onnx_parse("again.onnx", writer->data, writer->size, &model) == RG_OK);
    if (written)
        (void)FUZZ_TRY(rg_onnx_network_create(model, NULL, &network));
    rg_onnx_network_destroy(network);
    rg_onnx_close(model);
    rg_writer_release(writer);
}

static bool is_small(const rg_onnx_network *network)
{
    int64_t elements = 0;
    for (int32_t i = 0; i < rg_onnx_network_tensors(network); i++) {
        rg_onnx_tensor_info info;
        FUZZ_CHECK(rg_onnx_network_tensor(network, i, &info) == RG_OK);
        elements += info.role == RG_ONNX_PARAMETER ? rg_shape_count(&info.desc) : 0;
    }
    return elements <= MOST_ELEMENTS;
}

static void write_again(const rg_onnx_network *network, uint32_t word)
{
    static const int32_t opsets[] = { 13, 17, 21, 24 };
    rg_onnx_write_desc desc = rg_onnx_write_desc_default();
    rg_writer writer = { 0 };
    read_again(&writer, FUZZ_TRY(rg_onnx_rewrite(network, NULL, NULL, &writer)));
    if (!is_small(network))
        return;
    desc.opset = opsets[word & 3];
    desc.fold_batch_norm = (word & 4) != 0;
    desc.has_dtype = (word & 8) != 0;
    desc.dtype = (rg_dtype)(word >> 4 & 3);
    const rg_export_source source = { NULL, network };
    read_again(&writer, FUZZ_TRY(rg_graph_export(network->graph, source, &desc, &writer)));
}

/* The model without its weights can be read, and becomes a network for images of the size that the
 * file says, as the model itself does; neither need succeed. */
static void make_for_images(const rg_onnx *model, uint8_t choice, uint8_t size, uint32_t word)
{
    rg_onnx_images images = { .height = 1 + size % 9,
                              .width = 1 + size / 9 % 9,
                              .channels = (size & 128) != 0 ? 3 : 1,
                              .without_softmax = (word & 1) != 0,
                              .without_sigmoid = (word & 2) != 0 };
    rg_onnx_options options = rg_onnx_options_default();
    rg_onnx *stripped = NULL;
    rg_writer writer = { 0 };
    rg_onnx_port_info info;
    options.training = (choice & 2) != 0;
    options.has_dtype = (choice & 4) != 0;
    options.dtype = (rg_dtype)(choice >> 3 & 3);
    if (rg_onnx_inputs(model) == 1 && rg_onnx_input(model, 0, &info) == RG_OK && info.rank == 4) {
        images.channels = info.dims[1] > 0 ? info.dims[1] : images.channels;
        images.height = info.dims[2] > 0 ? info.dims[2] : images.height;
        images.width = info.dims[3] > 0 ? info.dims[3] : images.width;
    }
    if (FUZZ_TRY(rg_onnx_strip(model, word >> 2 & 3, &writer)))
        FUZZ_CHECK(rg_onnx_parse_stripped("stripped.onnx", writer.data, writer.size, &stripped) ==
                   RG_OK);
    for (int i = 0; i < 2; i++) {
        const rg_onnx *one = i == 0 ? model : stripped;
        rg_onnx_network *network = NULL;
        if (one != NULL)
            (void)FUZZ_TRY(rg_onnx_network_for_images(one, &options, &images, &network));
        rg_onnx_network_destroy(network);
    }
    rg_onnx_close(stripped);
    rg_writer_release(&writer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    const uint8_t choice = fuzz_byte(&input), length = fuzz_byte(&input);
    const uint32_t word = (uint32_t)fuzz_word(&input);
    rg_onnx *model;
    rg_onnx_network *network = NULL;
    if (!FUZZ_TRY(rg_onnx_parse("model.onnx", input.data, input.size, &model))) {
        FUZZ_CHECK(model == NULL);
        return 0;
    }
    const int32_t count = rg_onnx_inputs(model);
    rg_tensor_desc *shapes = calloc((size_t)count + 1, sizeof *shapes);
    rg_onnx_options options = rg_onnx_options_default();
    FUZZ_CHECK(shapes != NULL);
    make_for_images(model, choice, length, word);
    fill_shapes(model, shapes, count, length);
    options.inputs = (choice & 1) != 0 ? shapes : NULL;
    options.training = (choice & 2) != 0;
    options.has_dtype = (choice & 4) != 0;
    options.dtype = (rg_dtype)(choice >> 3 & 3);
    if (FUZZ_TRY(rg_onnx_network_create(model, &options, &network))) {
        read_constants(network);
        if (rg_graph_nodes(rg_onnx_network_graph(network)) <= MOST_NODES) {
            write_again(network, word);
            fuzz_graph_round_trip(rg_onnx_network_graph(network));
            fuzz_run_graph(rg_onnx_network_graph(network), &input);
        }
    }
    rg_onnx_network_destroy(network);
    free(shapes);
    rg_onnx_close(model);
    return 0;
}
