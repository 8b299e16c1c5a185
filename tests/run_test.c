/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Runs by their public headers alone: the folder of results, validation, options in checkpoints,
 * and reports. */
#include "tests/data_files.h"
#include "tests/markup.h"

#include <retrograde/checkpoint.h>
#include <retrograde/run.h>

#include <sys/wait.h>

static rg_device *device;
static rg_dataset *train_set, *test_set;

static rg_trainer *trainer_of(int64_t epochs)
{
    rg_trainer_desc desc = rg_trainer_desc_default();
    rg_model *model = NULL;
    rg_trainer *trainer = NULL;
    desc.epochs = epochs;
    desc.batch = 50;
    EXPECT_OK(rg_model_open("mlp", &model));
    EXPECT_OK(rg_trainer_create(device, model, train_set, &desc, &trainer));
    rg_model_destroy(model);
    return trainer;
}

static void train_one(rg_run *run, rg_trainer *trainer)
{
    rg_trainer_result result;
    EXPECT_OK(rg_trainer_train(trainer, 1, NULL, NULL));
    EXPECT_OK(rg_trainer_validate(trainer, test_set, &result));
    EXPECT_OK(rg_run_add_epoch(run));
    EXPECT_OK(rg_trainer_save(trainer, rg_run_path(run, RG_RUN_CHECKPOINT)));
}

/* Rows of a table, its head not counted. */
static int rows_of(const char *path)
{
    static char text[1 << 16];
    const size_t size = scratch_read(path, text, sizeof text - 1);
    text[size] = 0;
    return markup_count(text, "\n") - 1;
}

/* ---- a run, and one that continues it ---- */

static void check_report(const char *name, int epochs)
{
    size_t size;
    char *page = markup_take(name, &size);
    EXPECT(markup_check(page, NULL));
    EXPECT(strstr(page, "mlp on drawn images") != NULL && strstr(page, "by hand") != NULL);
    const char *table = strstr(page, "<table class=\"epochs\">");
    EXPECT(table != NULL);
    char *end = table != NULL ? strstr(table, "</table>") : NULL;
    if (end != NULL) {
        *end = 0;
        EXPECT(markup_count(table, "<tr") == epochs + 1);
    }
    free(page);
}

/* The report measures steps, and leaves the network as it was. */
static void test_report(rg_trainer *trainer, const char *name, int epochs)
{
    static char before[1 << 23], after[1 << 23];
    rg_report_desc desc = rg_report_desc_default();
    rg_trainer_result result = { 0 }, again = { 0 };
    desc.data = "drawn images";
    desc.command = "by hand";
    EXPECT_OK(rg_trainer_save(trainer, scratch("before")));
    EXPECT_OK(rg_trainer_report(trainer, test_set, &desc, scratch(name), &result));
    EXPECT_OK(rg_trainer_evaluate(trainer, test_set, &again));
    EXPECT(result.images == 100 && result.right == again.right && result.loss == again.loss);
    EXPECT_OK(rg_trainer_save(trainer, scratch("after")));
    const size_t size = scratch_read("before", before, sizeof before);
    EXPECT(size > 0 && size < sizeof before && scratch_read("after", after, size + 1) == size);
    EXPECT(memcmp(before, after, size) == 0);
    scratch_remove("before");
    scratch_remove("after");
    check_report(name, epochs);
    EXPECT_OK(rg_trainer_report(trainer, test_set, NULL, scratch(name), NULL));
    scratch_remove(name);
}

static void test_run(void)
{
    char folder[512], checkpoint[600];
    rg_run *run = NULL;
    rg_trainer *trainer = trainer_of(3), *resumed = NULL;
    rg_trainer_progress progress;
    int64_t removed = -1;
    snprintf(folder, sizeof folder, "%s", scratch("run"));
    EXPECT_OK(rg_run_open(folder, &run));
    EXPECT(rg_run_path(run, RG_RUN_REPORT)[0] == 0 && access(folder, F_OK) != 0);
    EXPECT_FAILS(rg_run_add_epoch(run), RG_INVALID_STATE, "no epoch");
    EXPECT_OK(rg_run_begin(run, trainer, NULL, &removed));
    EXPECT(removed == 0);
    EXPECT_FAILS(rg_run_begin(run, trainer, NULL, NULL), RG_INVALID_STATE, "begun already");
    EXPECT_FAILS(rg_run_add_epoch(run), RG_INVALID_STATE, "no epoch");
    train_one(run, trainer);
    train_one(run, trainer);
    snprintf(checkpoint, sizeof checkpoint, "%s", rg_run_path(run, RG_RUN_CHECKPOINT));
    EXPECT_OK(rg_trainer_get_progress(trainer, &progress));
    EXPECT(progress.finished == 2 && progress.best_epoch > 0 && progress.best_accuracy > 0);
    EXPECT_OK(rg_trainer_train(trainer, 1, NULL, NULL)); /* beyond the checkpoint */
    EXPECT_OK(rg_run_add_epoch(run));
    EXPECT(rows_of("run/metrics.csv") == 3);
    test_report(trainer, "report", 3);
    rg_run_close(run);
    rg_trainer_destroy(trainer);

    EXPECT_OK(rg_run_open(folder, &run));
    EXPECT_OK(rg_trainer_resume(device, checkpoint, train_set, NULL, &resumed));
    EXPECT_OK(rg_run_begin(run, resumed, checkpoint, &removed));
    EXPECT(removed == 1 && rows_of("run/metrics.csv") == 2);
    EXPECT_OK(rg_trainer_get_progress(resumed, &progress));
    EXPECT(progress.finished == 2 && progress.epoch == 3 && progress.best_epoch > 0);
    train_one(run, resumed);
    EXPECT(rows_of("run/metrics.csv") == 3);
    test_report(resumed, "report", 3);
    rg_run_close(run);
    rg_trainer_destroy(resumed);

    /* a new run does not replace it */
    EXPECT(rg_run_exists(folder) && !rg_run_exists(scratch("none")) && !rg_run_exists(NULL));
    trainer = trainer_of(1);
    EXPECT_OK(rg_run_open(folder, &run));
    EXPECT_FAILS(rg_run_begin(run, trainer, NULL, NULL), RG_INVALID_STATE, "another run");
    EXPECT(rows_of("run/metrics.csv") == 3);
    rg_run_close(run);
    rg_trainer_destroy(trainer);
    clear_files();
}

/* A folder within folders that do not exist; the best network goes with a run to another one. */
static void test_deep_folder(void)
{
    char best[600], checkpoint[600];
    rg_run *run = NULL;
    rg_trainer *trainer = trainer_of(2), *resumed = NULL;
    EXPECT_OK(rg_run_open(scratch("a/b//c"), &run));
    EXPECT_OK(rg_run_begin(run, trainer, NULL, NULL));
    train_one(run, trainer);
    snprintf(checkpoint, sizeof checkpoint, "%s", rg_run_path(run, RG_RUN_CHECKPOINT));
    EXPECT_OK(rg_trainer_save(trainer, rg_run_path(run, RG_RUN_BEST)));
    rg_run_close(run);
    rg_trainer_destroy(trainer);
    EXPECT_OK(rg_trainer_resume(device, checkpoint, train_set, NULL, &resumed));
    EXPECT_OK(rg_run_open(scratch("other"), &run));
    EXPECT_OK(rg_run_begin(run, resumed, checkpoint, NULL));
    snprintf(best, sizeof best, "%s", rg_run_path(run, RG_RUN_BEST));
    EXPECT(access(best, R_OK) == 0);
    rg_run_close(run);
    rg_trainer_destroy(resumed);
    clear_files();
}

/* The parameters of an earlier epoch, for use alone. */
static void test_restore(void)
{
    rg_trainer *trainer = trainer_of(2), *other = NULL;
    rg_trainer_result first = { 0 }, second = { 0 }, again = { 0 };
    rg_report_desc desc = rg_report_desc_default();
    rg_trainer_desc options = rg_trainer_desc_default();
    rg_model *model = NULL;
    EXPECT_OK(rg_trainer_train(trainer, 1, NULL, NULL));
    EXPECT_OK(rg_trainer_validate(trainer, test_set, &first));
    EXPECT_OK(rg_trainer_save(trainer, scratch("best")));
    EXPECT_OK(rg_trainer_train(trainer, 1, NULL, NULL));
    EXPECT_OK(rg_trainer_evaluate(trainer, test_set, &second));
    EXPECT(first.loss != second.loss);
    EXPECT_OK(rg_trainer_restore(trainer, scratch("best")));
    EXPECT_OK(rg_trainer_evaluate(trainer, test_set, &again));
    EXPECT(first.loss == again.loss && first.right == again.right);
    EXPECT_FAILS(rg_trainer_save(trainer, scratch("x")), RG_INVALID_STATE, "another checkpoint");
    EXPECT_FAILS(rg_trainer_train(trainer, 1, NULL, NULL), RG_INVALID_STATE, "another checkpoint");
    desc.part = "validation";
    EXPECT_OK(rg_trainer_report(trainer, test_set, &desc, scratch("report"), &again));
    size_t size;
    char *page = markup_take("report", &size);
    EXPECT(markup_check(page, NULL) && strstr(page, "validation images, epoch 1") != NULL);
    free(page);
    again = (rg_trainer_result){ .images = 7 };
    EXPECT_OK(rg_trainer_report(trainer, NULL, NULL, scratch("report"), &again));
    EXPECT(again.images == 7);
    EXPECT_OK(rg_model_open("small", &model));
    EXPECT_OK(rg_trainer_create(device, model, train_set, &options, &other));
    EXPECT_FAILS(rg_trainer_restore(other, scratch("best")), RG_INVALID_ARGUMENT,
                 "another network");
    EXPECT_FAILS(rg_trainer_restore(other, scratch("none")), RG_IO, "none");
    EXPECT_FAILS(rg_trainer_restore(NULL, "x"), RG_INVALID_ARGUMENT, "trainer is NULL");
    rg_model_destroy(model);
    rg_trainer_destroy(other);
    rg_trainer_destroy(trainer);
    clear_files();
}

/* Another process has the folder. */
static void test_lock(void)
{
    rg_run *run = NULL, *other = NULL;
    make_folder("run");
    EXPECT_OK(rg_run_open(scratch("run"), &run));
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0)
        _exit(rg_run_open(scratch("run"), &other) == RG_INVALID_STATE ? 0 : 1);
    int status = 1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    rg_run_close(run);
    EXPECT_OK(rg_run_open(scratch("run"), &other));
    rg_run_close(other);
    clear_files();
}

/* ---- options of the caller ---- */

static void test_options(void)
{
    const char *path = scratch("x.safetensors"), *options = "data=drawn\nepochs=3\nbatch=50\n";
    rg_trainer *trainer = trainer_of(3);
    rg_checkpoint *checkpoint = NULL;
    rg_trainer_desc desc;
    EXPECT_OK(rg_trainer_save_with(trainer, path, options));
    EXPECT_OK(rg_checkpoint_open(path, &checkpoint));
    EXPECT(strcmp(rg_checkpoint_options(checkpoint), options) == 0);
    EXPECT_OK(rg_checkpoint_trainer_desc(checkpoint, &desc));
    EXPECT(desc.epochs == 3 && desc.batch == 50);
    rg_checkpoint_close(checkpoint);
    EXPECT(rg_checkpoint_options(NULL)[0] == 0);
    rg_graph *graph = NULL;
    EXPECT_OK(rg_checkpoint_inspect(path, &checkpoint));
    EXPECT(strcmp(rg_checkpoint_options(checkpoint), options) == 0);
    EXPECT(rg_checkpoint_model(checkpoint) == NULL);
    EXPECT_FAILS(rg_checkpoint_graph(checkpoint, &graph), RG_INVALID_STATE, "inspection alone");
    rg_checkpoint_close(checkpoint);
    EXPECT_FAILS(rg_trainer_save_with(trainer, path, "epochs=3\nbatch=51\n"), RG_INVALID_ARGUMENT,
                 "differ");
    EXPECT_FAILS(rg_trainer_save_with(trainer, path, "epochs=x\n"), RG_INVALID_ARGUMENT, "epochs");
    EXPECT_FAILS(rg_trainer_save_with(trainer, path, NULL), RG_INVALID_ARGUMENT, "options is NULL");
    EXPECT_FAILS(rg_trainer_save_with(trainer, NULL, ""), RG_INVALID_ARGUMENT, "path is NULL");
    EXPECT_FAILS(rg_trainer_save_with(NULL, path, ""), RG_INVALID_ARGUMENT, "trainer is NULL");
    rg_trainer_destroy(trainer);
    clear_files();
}

/* ---- invalid calls ---- */

static void test_wrong(void)
{
    const rg_status wrong = RG_INVALID_ARGUMENT;
    rg_trainer *trainer = trainer_of(1), *loaded = NULL;
    rg_report_desc desc = rg_report_desc_default();
    rg_run *run = NULL;
    EXPECT_FAILS(rg_run_open(NULL, &run), wrong, "folder is NULL");
    EXPECT_FAILS(rg_run_open("x", NULL), wrong, "run is NULL");
    scratch_write("file", "x", 1);
    EXPECT_FAILS(rg_run_open(scratch("file"), &run), RG_IO, "not a results folder");
    EXPECT(run == NULL && rg_run_path(NULL, RG_RUN_REPORT)[0] == 0);
    EXPECT_FAILS(rg_run_begin(NULL, trainer, NULL, NULL), wrong, "run is NULL");
    EXPECT_FAILS(rg_run_add_epoch(NULL), wrong, "run is NULL");
    EXPECT_OK(rg_run_open(scratch("none/run"), &run));
    EXPECT_FAILS(rg_run_begin(run, NULL, NULL, NULL), wrong, "trainer is NULL");
    scratch_write("none", "x", 1);
    EXPECT_FAILS(rg_run_begin(run, trainer, NULL, NULL), RG_IO, "cannot be created");
    EXPECT(rg_run_path(run, (rg_run_file)9)[0] == 0);
    EXPECT_FAILS(rg_trainer_report(NULL, test_set, NULL, "x", NULL), wrong, "trainer is NULL");
    EXPECT_FAILS(rg_trainer_report(trainer, test_set, NULL, NULL, NULL), wrong, "path is NULL");
    desc.size = 0;
    EXPECT_FAILS(rg_trainer_report(trainer, test_set, &desc, "x", NULL), wrong, "size is 0");
    EXPECT_FAILS(rg_trainer_report(trainer, test_set, NULL, scratch("none/x"), NULL), RG_IO,
                 "none/x");
    EXPECT_OK(rg_trainer_save(trainer, scratch("x.safetensors")));
    EXPECT_OK(rg_trainer_load(device, scratch("x.safetensors"), &loaded));
    EXPECT_FAILS(rg_trainer_report(loaded, test_set, NULL, "x", NULL), RG_INVALID_STATE, "loaded");
    EXPECT_FAILS(rg_run_begin(run, loaded, NULL, NULL), RG_INVALID_STATE, "loaded");
    rg_run_close(run);
    rg_run_close(NULL);
    rg_trainer_destroy(loaded);
    rg_trainer_destroy(trainer);
    clear_files();
}

int main(void)
{
    scratch_begin();
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    EXPECT_OK(rg_dataset_glyphs(1, 600, &train_set));
    EXPECT_OK(rg_dataset_glyphs(2, 100, &test_set));
    test_run();
    test_deep_folder();
    test_restore();
    test_lock();
    test_options();
    test_wrong();
    rg_dataset_destroy(train_set);
    rg_dataset_destroy(test_set);
    rg_device_destroy(device);
    scratch_end();
    return rg_test_report();
}
