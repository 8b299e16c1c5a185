/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Writes graphs for the fuzz corpus: `seed_graphs FOLDER MODEL…` makes FOLDER/<n>.json, the network
 * of a model file with its backward pass, and FOLDER/<n>.safetensors, its plan with parameters. */
#include "fuzz.h"

#include "train/model.h"

#include <retrograde/files.h>

static rg_status write_graph(const char *folder, int number, rg_network *network)
{
    char path[512];
    rg_plan *plan;
    RG_TRY(rg_value_stop_gradient(network->images));
    RG_TRY(rg_graph_gradients(network->graph, &network->loss, NULL, 1, NULL, NULL));
    snprintf(path, sizeof path, "%s/%d.json", folder, number);
    RG_TRY(rg_graph_save(network->graph, path));
    RG_TRY(rg_plan_create(fuzz_reader_device(), network->graph, NULL, &plan));
    rg_status status = rg_network_start(network, plan, 1);
    snprintf(path, sizeof path, "%s/%d.safetensors", folder, number);
    if (status == RG_OK)
        status = rg_plan_save(plan, path);
    rg_plan_destroy(plan);
    return status;
}

static rg_status write_model(const char *folder, int number, const char *name)
{
    const rg_network_desc options = {
        .height = 4, .width = 4, .channels = 2, .classes = 3, .dtype = RG_F32, .training = true
    };
    rg_model *model;
    rg_network network;
    RG_TRY(rg_model_open(name, &model));
    rg_status status = rg_network_create(model, &options, &network);
    if (status == RG_OK) {
        status = write_graph(folder, number, &network);
        rg_network_destroy(&network);
    }
    rg_model_destroy(model);
    return status;
}

int main(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        if (write_model(argv[1], i - 2, argv[i]) != RG_OK) {
            fprintf(stderr, "%s: %s\n", argv[i], rg_error_text());
            return 1;
        }
    }
    return 0;
}
