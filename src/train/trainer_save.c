/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Saving a trainer, and its getters. */
#include "train/trainer.h"

#include "core/memory.h"

#include <stdlib.h>

/* ---- saving ---- */

/* Options of the caller must say what the trainer does. */
static rg_status check_options(const rg_trainer *t, const char *options)
{
    rg_trainer_desc told, is = t->desc;
    char *texts[2] = { NULL };
    rg_status status = rg_trainer_desc_read(options, &told);
    if (status == RG_MALFORMED)
        status = rg_fail(RG_INVALID_ARGUMENT, "rg_trainer_save_with: %s", rg_error_text());
    RG_TRY(status);
    is.rate = rg_trainer_desc_base_rate(&is);
    told.rate = rg_trainer_desc_base_rate(&told);
    status = rg_trainer_desc_text(&is, &texts[0]);
    if (status == RG_OK)
        status = rg_trainer_desc_text(&told, &texts[1]);
    if (status == RG_OK && strcmp(texts[0], texts[1]) != 0)
        status = rg_fail(RG_INVALID_ARGUMENT,
                         "rg_trainer_save_with: the options differ from the trainer's descriptor");
    free(texts[0]);
    free(texts[1]);
    return status;
}

/* Writes a checkpoint with this text of options, which the trainer then owns. */
static rg_status save(rg_trainer *t, const char *path, char *options)
{
    rg_run_state *s = &t->state;
    free(s->options);
    s->options = options;
    s->steps = rg_stepper_steps(t->stepper);
    s->batches = rg_stepper_batches(t->stepper);
    return rg_run_state_write(path, s, t->stepper);
}

static rg_status check_savable(const char *who, const rg_trainer *t)
{
    RG_CHECK(t->loader != NULL, RG_INVALID_STATE, "%s: the trainer was loaded for use alone", who);
    RG_CHECK(!t->nonfinite, RG_INVALID_STATE,
             "%s: training has diverged: there is nothing worth keeping", who);
    RG_CHECK(!t->restored, RG_INVALID_STATE,
             "%s: the trainer has the parameters of another checkpoint", who);
    return rg_run_state_check(t->stepper);
}

rg_status rg_trainer_save(rg_trainer *trainer, const char *path)
{
    char *options;
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(path);
    RG_TRY(check_savable(__func__, trainer));
    RG_TRY(rg_trainer_desc_text(&trainer->desc, &options));
    return save(trainer, path, options);
}

rg_status rg_trainer_save_with(rg_trainer *trainer, const char *path, const char *options)
{
    char *copy;
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(path);
    RG_CHECK_NOT_NULL(options);
    RG_TRY(check_savable(__func__, trainer));
    RG_TRY(check_options(trainer, options));
    RG_TRY(rg_copy_text(options, &copy));
    return save(trainer, path, copy);
}

/* ---- restoring ---- */

static rg_status restore(rg_trainer *t, const char *path, const rg_safetensors *file,
                         const rg_run_state *saved)
{
    const rg_network_desc *is = &t->state.network, *was = &saved->network;
    RG_CHECK(strcmp(saved->model, t->state.model) == 0 && is->dtype == was->dtype &&
                 is->height == was->height && is->width == was->width &&
                 is->channels == was->channels && is->classes == was->classes,
             RG_INVALID_ARGUMENT, "%s: this is a checkpoint of another network", path);
    t->restored = true;
    return rg_run_state_read_stepper(path, file, t->stepper);
}

rg_status rg_trainer_restore(rg_trainer *trainer, const char *path)
{
    rg_run_state saved;
    rg_safetensors *file;
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(path);
    RG_TRY(rg_run_state_open(path, &saved, &file));
    const rg_status status = restore(trainer, path, file, &saved);
    rg_safetensors_close(file);
    rg_run_state_release(&saved);
    return status;
}

/* ---- getters ---- */

rg_status rg_trainer_get_desc(const rg_trainer *trainer, rg_trainer_desc *desc)
{
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(desc);
    RG_CHECK(trainer->loader != NULL, RG_INVALID_STATE,
             "rg_trainer_get_desc: the trainer was loaded for use alone");
    *desc = trainer->desc;
    return RG_OK;
}

const rg_model *rg_trainer_model(const rg_trainer *trainer)
{
    return trainer != NULL ? trainer->model : NULL;
}

rg_status rg_trainer_get_network(const rg_trainer *trainer, rg_network_desc *network)
{
    RG_CHECK_NOT_NULL(trainer);
    RG_CHECK_NOT_NULL(network);
    *network = trainer->state.network;
    network->size = sizeof *network;
    return RG_OK;
}

const char *rg_trainer_class_name(const rg_trainer *trainer, int32_t label)
{
    if (trainer == NULL || label < 0 || label >= trainer->state.network.classes)
        return "";
    return trainer->state.class_names[label];
}

int64_t rg_trainer_parameters(const rg_trainer *trainer)
{
    int64_t count = 0;
    if (trainer == NULL)
        return 0;
    const rg_network *network = rg_stepper_network(trainer->stepper);
    for (size_t i = 0; i < network->layers_count; i++)
        count += network->layers[i].parameters;
    return count;
}
