/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Groups by their public header: alone, or as one rank of several where a launcher has started it
 * (group_test.py). Sums have the bits of a binary tree over all ranks; ranks that differ are
 * refused. */
#include "tests/test.h"

#include <retrograde/trainer.h>

#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 10007, LARGEST = 64 };

static rg_group *group;
static int32_t rank, size;

/* Numbers whose sum depends on the order. */
static double number(int32_t of, int64_t i)
{
    const uint64_t bits = ((uint64_t)of * 1000003 + (uint64_t)i) * UINT64_C(6364136223846793005);
    return ((double)(bits >> 40) - 0x1p23) * (bits % 7 == 0 ? 1e6 : 1e-3);
}

static float tree_f32(int32_t first, int32_t count, int64_t i)
{
    if (count == 1)
        return (float)number(first, i);
    return tree_f32(first, count / 2, i) + tree_f32(first + count / 2, count / 2, i);
}

static double tree_f64(int32_t first, int32_t count, int64_t i)
{
    if (count == 1)
        return number(first, i);
    return tree_f64(first, count / 2, i) + tree_f64(first + count / 2, count / 2, i);
}

static void test_sum(void)
{
    static const int64_t counts[] = { 0, 1, 2, 3, 5, 64, COUNT };
    static float x[COUNT];
    static double y[COUNT];
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        bool same = true;
        for (int64_t i = 0; i < counts[k]; i++) {
            x[i] = (float)number(rank, i);
            y[i] = number(rank, i);
        }
        EXPECT_OK(rg_group_sum(group, x, RG_F32, counts[k]));
        EXPECT_OK(rg_group_sum_start(group, y, RG_F64, counts[k] / 2));
        EXPECT_OK(rg_group_sum_start(group, y + counts[k] / 2, RG_F64, counts[k] - counts[k] / 2));
        EXPECT_OK(rg_group_wait(group));
        for (int64_t i = 0; i < counts[k]; i++) {
            const float want = tree_f32(0, size, i);
            const double wide = tree_f64(0, size, i);
            same = same && memcmp(&x[i], &want, sizeof want) == 0 &&
                   memcmp(&y[i], &wide, sizeof wide) == 0;
        }
        EXPECT(same);
    }
    EXPECT_OK(rg_group_wait(group)); /* for nothing */
    EXPECT_FAILS(rg_group_sum(group, x, RG_F16, 1), RG_UNSUPPORTED, "f32 or f64, not of f16");
    EXPECT_FAILS(rg_group_sum(group, NULL, RG_F32, 1), RG_INVALID_ARGUMENT, "elements is NULL");
    EXPECT_FAILS(rg_group_sum(group, x, RG_F32, -1), RG_INVALID_ARGUMENT, "count is -1");
    EXPECT_FAILS(rg_group_sum(NULL, x, RG_F32, 1), RG_INVALID_ARGUMENT, "group is NULL");
}

/* In the order of the library: about the same, and all ranks have the same bits. */
static void test_fast(void)
{
    static float x[COUNT];
    static double y[COUNT], first[COUNT];
    bool near = true;
    for (int64_t i = 0; i < COUNT; i++) {
        x[i] = (float)(number(rank, i) / 0x1p43);
        y[i] = number(rank, i);
    }
    EXPECT_OK(rg_group_sum_fast_start(group, x, RG_F32, COUNT));
    EXPECT_OK(rg_group_sum_fast_start(group, y, RG_F64, COUNT));
    EXPECT_OK(rg_group_wait(group));
    for (int64_t i = 0; i < COUNT; i++) {
        near = near && fabs(x[i] - tree_f64(0, size, i) / 0x1p43) < 1e-5 &&
               fabs(y[i] - tree_f64(0, size, i)) < 1;
        first[i] = y[i];
    }
    EXPECT(near);
    EXPECT_OK(rg_group_broadcast(group, first, sizeof first, 0));
    EXPECT(memcmp(first, y, sizeof first) == 0);
    EXPECT_FAILS(rg_group_sum_fast_start(group, x, RG_I32, 1), RG_UNSUPPORTED, "f32 or f64");
}

static void test_messages(void)
{
    int32_t all[LARGEST] = { 0 }, word[3];
    EXPECT_OK(rg_group_gather(group, &rank, sizeof rank, all));
    for (int32_t i = 0; i < size; i++)
        EXPECT(all[i] == i);
    memset(all, 0, sizeof all);
    all[rank] = 7 * rank;
    EXPECT_OK(rg_group_gather(group, &all[rank], sizeof rank, all)); /* in place */
    for (int32_t i = 0; i < size; i++)
        EXPECT(all[i] == 7 * i);
    for (int32_t root = 0; root < size; root++) {
        for (int i = 0; i < 3; i++)
            word[i] = rank * 10 + i;
        EXPECT_OK(rg_group_broadcast(group, word, sizeof word, root));
        EXPECT(word[0] == root * 10 && word[1] == root * 10 + 1 && word[2] == root * 10 + 2);
    }
    EXPECT_FAILS(rg_group_broadcast(group, word, sizeof word, size), RG_INVALID_ARGUMENT, "root");
    EXPECT_OK(rg_group_barrier(group));
}

static void test_agreement(void)
{
    char text[] = "the same text";
    EXPECT_OK(rg_group_agree(group, "a model", text, sizeof text));
    if (size == 1)
        return;
    text[4] = (char)(rank == size - 1 ? 'X' : 's');
    EXPECT_FAILS(rg_group_agree(group, "a model", text, sizeof text), RG_INVALID_ARGUMENT,
                 "has a model that differs from that of rank 0");
}

static void test_info(void)
{
    rg_group_info info;
    EXPECT_OK(rg_group_get_info(group, &info));
    EXPECT(info.rank == rank && info.size == size && info.local_size == size &&
           info.local_rank == rank);
    EXPECT(strcmp(info.engine, "alone") == 0 ? size == 1 && info.bytes == 0 : info.launched);
    EXPECT(size == 1 || (info.bytes > 0 && info.seconds > 0));
    EXPECT(strpbrk(info.engine, "\t\n") == NULL && strstr(info.engine, "  ") == NULL);
    if (rank == 0)
        printf("%d ranks, %s\n", size, info.engine);
}

static bool stop_at_once(void *context, const rg_trainer_progress *progress)
{
    (void)context;
    (void)progress;
    return false;
}

/* Training that was stopped on all ranks goes on with the next call. A set that one rank lacks is
 * refused on all. */
static void test_stop(void)
{
    rg_trainer_desc desc = rg_trainer_desc_default();
    rg_trainer_progress progress = { 0 };
    rg_device *device = NULL;
    rg_dataset *set = NULL;
    rg_model *model = NULL;
    rg_trainer *trainer = NULL;
    desc.group = group;
    desc.micro_batches = size;
    desc.batch = 4L * size;
    desc.epochs = 1;
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    EXPECT_OK(rg_dataset_glyphs(1, 5 * desc.batch, &set));
    EXPECT_OK(rg_model_parse("stopped", "dense classes\n", &model));
    EXPECT_OK(rg_trainer_create(device, model, set, &desc, &trainer));
    EXPECT_OK(rg_trainer_train(trainer, 1, stop_at_once, NULL));
    EXPECT_OK(rg_trainer_get_progress(trainer, &progress));
    EXPECT(progress.finished == 0);
    EXPECT_OK(rg_trainer_train(trainer, 1, NULL, NULL));
    EXPECT_OK(rg_trainer_get_progress(trainer, &progress));
    EXPECT(progress.finished == 1);
    EXPECT_OK(rg_trainer_agree_on_set(trainer, "other images", set));
    if (size > 1)
        EXPECT_FAILS(
            rg_trainer_agree_on_set(trainer, "other images", rank == size - 1 ? NULL : set),
            RG_INVALID_ARGUMENT, "has other images that differs from that of rank 0");
    EXPECT_FAILS(rg_trainer_agree_on_set(NULL, "other images", set), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_trainer_agree_on_set(trainer, NULL, set), RG_INVALID_ARGUMENT, "NULL");
    rg_trainer_destroy(trainer);
    rg_model_destroy(model);
    rg_dataset_destroy(set);
    rg_device_destroy(device);
}

static void test_null(void)
{
    rg_group_desc desc = rg_group_desc_default();
    rg_group *none = NULL;
    EXPECT(rg_group_rank(NULL) == 0 && rg_group_size(NULL) == 1);
    rg_group_destroy(NULL);
    rg_group_fail(NULL, "nothing");
    EXPECT_FAILS(rg_group_create(NULL, NULL), RG_INVALID_ARGUMENT, "group is NULL");
    EXPECT_FAILS(rg_group_barrier(NULL), RG_INVALID_ARGUMENT, "group is NULL");
    desc.timeout = 0;
    EXPECT_FAILS(rg_group_create(&desc, &none), RG_INVALID_ARGUMENT, "timeout must be");
    desc = rg_group_desc_default();
    desc.start_timeout = 0.5;
    EXPECT_FAILS(rg_group_create(&desc, &none), RG_INVALID_ARGUMENT, "start_timeout must be");
    desc = rg_group_desc_default();
    desc.engine = (rg_group_engine)9;
    EXPECT_FAILS(rg_group_create(&desc, &none), RG_INVALID_ARGUMENT, "engine is 9");
    desc.engine = RG_GROUP_ALONE;
    EXPECT_OK(rg_group_create(&desc, &none));
    EXPECT(rg_group_size(none) == 1);
    rg_group_destroy(none);
    desc.engine = RG_GROUP_MPI;
    desc.library = "/no/such/library.so";
    EXPECT_FAILS(rg_group_create(&desc, &none), RG_UNSUPPORTED, "/no/such/library.so");
}

/* At once: launchers end all ranks soon after one has ended. */
static void say(void *context, const char *sentence)
{
    (void)context;
    printf("told: %s\n", sentence);
    fflush(stdout);
}

/* A rank that leaves before the others: they are told, in place of a sum that lacks its part. */
static int leave_early(int32_t leaver)
{
    static float x[COUNT];
    for (int64_t i = 0; i < COUNT; i++)
        x[i] = (float)number(rank, i);
    if (rank != leaver) {
        const rg_status status = rg_group_sum(group, x, RG_F32, COUNT);
        if (status == RG_OK)
            say(NULL, "a sum without all ranks");
        EXPECT(status == RG_IO);
        EXPECT_FAILS(rg_group_barrier(group), RG_IO, "");
    }
    rg_group_destroy(group);
    return rg_test_report();
}

/* One rank asks for more memory than there is, and leaves; the others are told. */
static int fail_alone(int32_t failing)
{
    static float x[COUNT];
    if (rank == failing) {
        EXPECT_FAILS(rg_group_sum(group, x, RG_F32, INT64_MAX / 16), RG_OUT_OF_MEMORY, "memory");
        EXPECT_FAILS(rg_group_sum(group, x, RG_F32, COUNT), RG_IO, "memory");
    } else {
        EXPECT_FAILS(rg_group_sum(group, x, RG_F32, COUNT), RG_IO, "has failed: out of memory");
    }
    rg_group_destroy(group);
    return rg_test_report();
}

/* Sums of different sizes are refused on all ranks, whatever comes next. */
static int differ(int32_t other)
{
    static float x[COUNT + 1];
    const int64_t count = rank == other ? COUNT + 1 : COUNT;
    const rg_status first = rg_group_sum(group, x, RG_F32, count);
    const rg_status second = rg_group_barrier(group);
    if (first == RG_OK && second == RG_OK)
        say(NULL, "a sum of two sizes");
    EXPECT(second != RG_OK);
    rg_group_destroy(group);
    return rg_test_report();
}

/* In the place of that of MPI, for libraries that are linked with it: one rank never ends. */
static bool stalls;
__attribute__((visibility("default"))) int MPI_Finalize(void);
int MPI_Finalize(void)
{
    int (*function)(void);
    void *const found = dlsym(RTLD_NEXT, "MPI_Finalize");
    if (stalls)
        sleep(30);
    memcpy(&function, &found, sizeof function);
    return found != NULL ? function() : 1;
}

/* In the place of that of the C library: a machine on which many others run. */
static double pretended_load = -1;
__attribute__((visibility("default"))) int getloadavg(double averages[], int count);
int getloadavg(double averages[], int count)
{
    FILE *file = fopen("/proc/loadavg", "r");
    int found = 0;
    if (file != NULL) {
        found = count > 0 && fscanf(file, "%lf", averages) == 1 ? 1 : 0;
        (void)fclose(file);
    }
    if (pretended_load >= 0)
        averages[0] = pretended_load;
    return found;
}

/* In the place of those of the C library: on a crowded machine a look at all processes takes long,
 * and the time of day may be set. */
static bool looks_slowly, is_set_back;
__attribute__((visibility("default"))) DIR *opendir(const char *name)
{
    DIR *(*function)(const char *);
    void *const found = dlsym(RTLD_NEXT, "opendir");
    if (looks_slowly && strcmp(name, "/proc") == 0)
        sleep(3);
    memcpy(&function, &found, sizeof function);
    return found != NULL ? function(name) : NULL;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int status = (int)syscall(SYS_clock_gettime, clock, now);
    if (is_set_back && clock == CLOCK_REALTIME)
        now->tv_sec -= 1000;
    return status;
}

static int stall(int32_t who)
{
    stalls = rank == who;
    pretended_load = 0; /* so that the time is known */
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    rg_group_destroy(group);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("told: the group is gone after %lld seconds\n",
           (long long)(ended.tv_sec - began.tv_sec));
    fflush(stdout);
    _exit(1);
}

/* A rank comes later than the others wait by default where few others run. */
static int come_late(int32_t who)
{
    EXPECT(who < size);
    EXPECT_OK(rg_group_barrier(group));
    rg_group_destroy(group);
    return rg_test_report();
}

static int run_case(const char *name, int32_t who)
{
    static const struct {
        const char *name;
        int (*run)(int32_t who);
    } cases[] = { { "leave", leave_early }, { "fail", fail_alone }, { "differ", differ },
                  { "stall", stall },       { "late", come_late },  { "busy", come_late },
                  { "slow", come_late },    { "clock", come_late } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(cases[i].name, name) == 0)
            return cases[i].run(who);
    }
    return 2;
}

/* A process joins one group by MPI in its life. */
static void test_again(void)
{
    rg_group_desc desc = rg_group_desc_default();
    rg_group *again = NULL;
    desc.engine = RG_GROUP_MPI;
    if (size > 1)
        EXPECT_FAILS(rg_group_create(&desc, &again), RG_INVALID_STATE, "been started");
}

/* Cases in which one rank comes 10 seconds later: the others wait as long as they are told, or as
 * long as a busy machine lets them. */
static void prepare(const char *name, int32_t who, rg_group_desc *desc)
{
    const char *own = getenv("OMPI_COMM_WORLD_RANK"), *other = getenv("PMI_RANK");
    looks_slowly = strcmp(name, "slow") == 0;
    is_set_back = strcmp(name, "clock") == 0;
    const bool busy = looks_slowly || strcmp(name, "busy") == 0;
    if (!busy && !is_set_back && strcmp(name, "late") != 0)
        return;
    pretended_load = busy ? 16.0 * (double)sysconf(_SC_NPROCESSORS_ONLN) : 0;
    desc->start_timeout = busy ? 0 : 30;
    if (atoi(own != NULL ? own : other != NULL ? other : "0") == who)
        sleep(10);
}

/* Without arguments all tests; with CASE RANK one in which this rank does something else. */
int main(int argc, char **argv)
{
    test_null();
    rg_group_desc desc = rg_group_desc_default();
    desc.lost = argc > 2 ? say : NULL;
    if (argc > 2)
        prepare(argv[1], atoi(argv[2]), &desc);
    EXPECT_OK(rg_group_create(&desc, &group));
    if (group == NULL)
        return rg_test_report();
    rank = rg_group_rank(group);
    size = rg_group_size(group);
    if (argc > 2)
        return run_case(argv[1], atoi(argv[2]));
    test_sum();
    test_fast();
    test_messages();
    test_agreement();
    test_info();
    test_stop();
    test_again();
    rg_group_destroy(group);
    test_again();
    return rg_test_report();
}
