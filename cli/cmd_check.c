/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde check`: every case of an op in every dtype; on the CPU also on every instruction set
 * and with several numbers of threads. */
#include "cli/arguments.h"
#include "cli/check.h"
#include "cli/cli.h"
#include "cli/random_network.h"
#include "cli/random_trials.h"
#include "cli/strategy_option.h"
#include "core/shape.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_THREADS = 3, MOST_ISAS = 8, OPTIONS = 128 };

typedef struct request {
    const char *device, *dtype, *isa, *name, *random_case, *only, *fingerprints, *strategy;
    double random; /* seconds, or negative: the cases of the ops */
    int64_t threads, seed, runs, trials, networks;
    bool quick, is_long, json, help;
    bool is_cpu;     /* it has instruction sets and threads to choose */
    FILE *bits_file; /* opened from `fingerprints`, or NULL */
    int64_t ran;     /* cases that the strategy accepted */
} request;

/* One opened device per number of threads, all of one instruction set. */
typedef struct devices {
    rg_checker checkers[MOST_THREADS];
    char options[MOST_THREADS][OPTIONS];
    int count;
    int64_t ran; /* cases that the strategy accepted */
} devices;

/* All instruction sets of the CPU; for a GPU one without a name. They share the values of a case,
 * because the definition is slow. */
typedef struct isa_list {
    devices isas[MOST_ISAS];
    int count;
} isa_list;

static void close_isas(isa_list *l)
{
    for (int k = 0; k < l->count; k++) {
        for (int i = 0; i < l->isas[k].count; i++) {
            rg_queue_destroy(l->isas[k].checkers[i].queue);
            rg_device_destroy(l->isas[k].checkers[i].device);
        }
    }
}

/* The options that select this device. */
static void write_options(const request *r, const char *isa, int64_t threads, char text[OPTIONS])
{
    int length = 0;
    text[0] = 0;
    if (r->is_cpu)
        length = snprintf(text, OPTIONS, " --isa %s --threads %lld", isa, (long long)threads);
    if (r->runs > 1)
        length +=
            snprintf(text + length, OPTIONS - (size_t)length, " --runs %lld", (long long)r->runs);
    if (r->strategy != NULL)
        snprintf(text + length, OPTIONS - (size_t)length, " --strategy '%.40s'", r->strategy);
}

/* NULL and 0 threads: the defaults of the device. */
static rg_status open_device(const request *r, const char *isa, int64_t threads, devices *d)
{
    rg_checker *checker = &d->checkers[d->count];
    rg_device_options options = rg_device_options_default();
    options.isa = isa;
    options.threads = (int32_t)threads;
    write_options(r, isa, threads, d->options[d->count]);
    *checker = (rg_checker){ .options = d->options[d->count],
                             .seed = (uint64_t)r->seed,
                             .told = r->json ? stderr : stdout };
    RG_TRY(rg_device_create(r->device, &options, &checker->device));
    rg_choices_force(rg_device_choices(checker->device), r->strategy);
    d->count++;
    return rg_queue_create(checker->device, &checker->queue);
}

/* The default instruction set of the machine. */
static bool is_best(const char *isa)
{
    int32_t last = 0;
    while (rg_device_isa_list(last + 1) != NULL)
        last++;
    return strcmp(isa, rg_device_isa_list(last)) == 0;
}

/* An odd number of threads divides work differently; one instruction set is enough to test that. */
static rg_status open_devices(const request *r, const char *isa, devices *d)
{
    *d = (devices){ .count = 0 };
    if (r->threads > 0 || !r->is_cpu)
        return open_device(r, isa, r->threads, d);
    if (r->is_long)
        return open_device(r, isa, 2, d); /* such cases take seconds each */
    const int64_t most = r->quick || (r->isa == NULL && !is_best(isa)) ? 2 : 3;
    for (int64_t threads = r->quick ? 2 : 1; threads <= most; threads++)
        RG_TRY(open_device(r, isa, threads, d));
    return RG_OK;
}

static rg_status open_isas(const request *r, isa_list *l)
{
    l->count = 0;
    if (!r->is_cpu)
        return open_devices(r, NULL, &l->isas[l->count++]);
    const char *isa;
    for (int32_t i = 0; (isa = rg_device_isa_list(i)) != NULL && l->count < MOST_ISAS; i++) {
        if (r->isa == NULL || strcmp(r->isa, isa) == 0)
            RG_TRY(open_devices(r, isa, &l->isas[l->count++]));
    }
    return RG_OK;
}

/* ---- one case, one group ---- */

static bool is_wanted(const request *r, const rg_case *c, int64_t count)
{
    enum { SMALL_ELEMENTS = 20000, LARGE_ELEMENTS = 10 << 20 };
    const bool timed = c->flags & (RG_CASE_BENCH | RG_CASE_BENCH_GPU);
    const bool large = count > LARGE_ELEMENTS || c->flags & RG_CASE_LONG;
    if (r->name != NULL)
        return strcmp(r->name, c->name) == 0;
    if (r->is_long)
        return large && !timed;
    return r->quick || timed ? count <= SMALL_ELEMENTS && !large : !large;
}

/* One line for each case: hashes of the bits of y, dx and dx with `add`, 0 where there is none. */
static void write_fingerprint(const request *r, const devices *d, const rg_values *values,
                              bool expanded, const rg_bits *bits)
{
    const rg_device *device = d->checkers[0].device;
    if (r->bits_file != NULL)
        fprintf(r->bits_file, "%s %s%s %s %s %s %016llx %016llx %016llx\n", values->test->op->name,
                values->c->name, expanded ? "/expanded" : "", rg_dtype_name(values->dtype),
                rg_device_name(device), rg_device_isa(device), (unsigned long long)bits->y,
                (unsigned long long)bits->dx, (unsigned long long)bits->added);
}

/* On one instruction set; runs and numbers of threads have the same bits. */
static void check_isa(const request *r, devices *d, const rg_values *values, bool expanded)
{
    rg_bits bits = { 0 };
    for (int64_t run = 0; run < r->runs; run++) {
        for (int i = 0; i < d->count; i++)
            rg_check_values(&d->checkers[i], values, expanded, &bits);
    }
    write_fingerprint(r, d, values, expanded, &bits);
    bool ran = false;
    for (int i = 0; i < d->count && r->strategy != NULL; i++)
        ran |= rg_strategy_ran(d->checkers[i].device, r->strategy);
    d->ran += ran && !expanded;
}

static rg_status check_case(const request *r, isa_list *l, const rg_op_test *test, const rg_case *c,
                            rg_dtype dtype, bool expanded)
{
    rg_values values;
    const rg_status status = rg_values_make(test, c, dtype, (uint64_t)r->seed, expanded, &values);
    for (int k = 0; status == RG_OK && k < l->count; k++)
        check_isa(r, &l->isas[k], &values, expanded);
    rg_values_free(&values);
    return status;
}

/* One line about all cases of an op; returns how many failures there were. */
static int64_t print_group(const request *r, const devices *d, const char *op, rg_dtype dtype,
                           int64_t count)
{
    const rg_device *device = d->checkers[0].device;
    int64_t comparisons = 0, failed = 0;
    double worst = 0;
    for (int i = 0; i < d->count; i++) {
        comparisons += d->checkers[i].comparisons;
        failed += d->checkers[i].failures;
        worst = d->checkers[i].worst > worst ? d->checkers[i].worst : worst;
    }
    char threads[32];
    snprintf(threads, sizeof threads, d->count == 3 ? "1, 2, 3" : "1, 2");
    if (d->count == 1)
        snprintf(threads, sizeof threads, "%d", rg_device_threads(device));
    char strategy[80] = "";
    if (r->strategy != NULL)
        snprintf(strategy, sizeof strategy,
                 r->json ? ", \"strategy\": \"%.40s\", \"skipped\": %lld"
                         : "; %.40s ran, %lld cases skipped",
                 r->strategy, (long long)(count - d->ran));
    if (r->json)
        printf("{\"op\": \"%s\", \"device\": \"%s\", \"isa\": \"%s\", \"dtype\": \"%s\", "
               "\"threads\": \"%s\", \"runs\": %lld, \"cases\": %lld, \"comparisons\": %lld, "
               "\"failures\": %lld, \"worst\": %.3g%s}\n",
               op, rg_device_name(device), rg_device_isa(device), rg_dtype_name(dtype), threads,
               (long long)r->runs, (long long)count, (long long)comparisons, (long long)failed,
               worst, strategy);
    else
        printf("%-12s %-6s %-7s %-5s %s %-8s %4lld cases %7lld comparisons  %s (largest error "
               "%.2f of the tolerance)%s\n",
               op, rg_device_name(device), rg_device_isa(device), rg_dtype_name(dtype),
               r->is_cpu ? "threads" : "       ", r->is_cpu ? threads : "", (long long)count,
               (long long)comparisons, failed == 0 ? "ok" : "FAILED", worst, strategy);
    fflush(stdout);
    return failed;
}

/* All cases of an op in one dtype, on every instruction set. */
static rg_status check_group(request *r, const rg_op_test *test, rg_dtype dtype, int64_t *failures,
                             int64_t *cases)
{
    isa_list l;
    rg_status status = open_isas(r, &l);
    int64_t count = 0;
    for (const rg_case *c = test->cases; status == RG_OK && c->name != NULL; c++) {
        rg_tensor_desc x[RG_MAX_INPUTS];
        int32_t inputs;
        status = rg_case_shapes(c, dtype, x, &inputs);
        if (status != RG_OK || !is_wanted(r, c, rg_shape_count(&x[0])) ||
            (c->only != 0 && !(c->only >> dtype & 1)))
            continue;
        status = check_case(r, &l, test, c, dtype, false);
        const bool expands = c->golden == NULL && x[0].rank > 1 && rg_shape_count(&x[0]) <= 20000;
        if (status == RG_OK && expands && !(c->flags & (RG_CASE_SPECIAL | RG_CASE_LONG)))
            status = check_case(r, &l, test, c, dtype, true);
        if (status != RG_OK)
            fprintf(stderr, "retrograde: case '%s': %s\n", c->name, rg_error_text());
        count++;
    }
    const bool tells = count > 0 || !r->is_long; /* few ops and dtypes have long cases */
    for (int k = 0; k < l.count; k++)
        r->ran += l.isas[k].ran;
    for (int k = 0; status == RG_OK && k < l.count && tells; k++)
        *failures += print_group(r, &l.isas[k], test->op->name, dtype, count);
    *cases += count;
    close_isas(&l);
    return status;
}

static rg_status check_op(request *r, const rg_op_test *test, int64_t *failures, int64_t *cases)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16 };
    if (r->strategy != NULL && !rg_op_has_strategy(test->op, r->strategy))
        return RG_OK;
    for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++) {
        if (r->dtype == NULL || strcmp(r->dtype, rg_dtype_name(dtypes[k])) == 0)
            RG_TRY(check_group(r, test, dtypes[k], failures, cases));
    }
    return RG_OK;
}

/* ---- the command ---- */

/* Tensors are created and destroyed thousands of times: keeps freed memory for the next ones. */
static void keep_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

static int check_request(const request *r)
{
    rg_dtype dtype = RG_F32;
    if (r->dtype != NULL && (rg_dtype_parse(r->dtype, &dtype) != RG_OK || !rg_dtype_is_data(dtype)))
        return rg_wrong("--dtype must be f32, f64, f16 or bf16, not '%s'", r->dtype);
    if (r->quick && r->is_long)
        return rg_wrong("--quick and --long cannot be used together");
    if (r->runs < 1 || r->runs > 1000000)
        return rg_wrong("--runs must be between 1 and 1000000, not %lld", (long long)r->runs);
    const int wrong = rg_isa_check(r->isa);
    return wrong != 0 ? wrong : rg_threads_check(r->threads);
}

/* Opens the device once, to see whether it is a GPU. */
static int look_at_device(request *r)
{
    rg_device *device;
    const rg_status status = rg_device_create(r->device, NULL, &device);
    if (status != RG_OK)
        return status == RG_INVALID_ARGUMENT ? rg_wrong("%s", rg_error_text()) : rg_failed();
    r->is_cpu = strcmp(rg_device_name(device), "cpu") == 0;
    rg_device_destroy(device);
    if (!r->is_cpu && (r->isa != NULL || r->threads > 0))
        return rg_wrong("%s is a GPU; --%s applies to the CPU only", r->device,
                        r->isa != NULL ? "isa" : "threads");
    return 0;
}

/* Random trials of the ops named, or of all. No device is opened here: a child process does it. */
static int check_random(const request *r, int count, char **names)
{
    const rg_op_test *ops[RG_RANDOM_SUBJECTS] = { NULL };
    for (int i = 0; i < count && i < RG_RANDOM_SUBJECTS - 1; i++)
        ops[i] = rg_op_test_find(names[i]);
    const bool is_cpu = strcmp(r->device, "cpu") == 0;
    const rg_random_request asked = { .device = r->device,
                                      .limits = { .dtype = r->dtype,
                                                  .isa = r->isa,
                                                  .strategy = r->strategy,
                                                  .threads = (int32_t)r->threads,
                                                  .is_cpu = is_cpu },
                                      .seconds = r->random,
                                      .trials = r->trials,
                                      .seed = r->seed,
                                      .json = r->json,
                                      .networks = count == 0 && r->dtype == NULL && r->threads == 0,
                                      .ops = count > 0 ? ops : rg_op_tests };
    if (!is_cpu && (r->isa != NULL || r->threads > 0))
        return rg_wrong("%s is a GPU; --%s applies to the CPU only", r->device,
                        r->isa != NULL ? "isa" : "threads");
    if (r->random_case == NULL)
        return rg_random_trials(&asked);
    if (count != 1)
        return rg_wrong("--random-case needs exactly one op");
    return rg_random_repeat(&asked, ops[0], r->random_case);
}

/* Takes the options and prints the help where it is asked for; returns as rg_options_take(). */
static int take_options(request *r, int argc, char **argv)
{
    const rg_option options[] = {
        { "device", RG_OPTION_TEXT, &r->device, "D", "cpu, cuda or cuda:N (default cpu)" },
        { "dtype", RG_OPTION_TEXT, &r->dtype, "T", "check only f32, f64, f16 or bf16" },
        { "isa", RG_OPTION_TEXT, &r->isa, "ISA",
          "check only the instruction set base, avx2 or avx512, on the CPU" },
        { "threads", RG_OPTION_COUNT, &r->threads, "N",
          "run with N CPU threads instead of 1, 2 and 3" },
        { "runs", RG_OPTION_COUNT, &r->runs, "N",
          "run every case N times and compare the bits of all runs (default 1)" },
        { "seed", RG_OPTION_COUNT, &r->seed, "N", "seed of the random values (default 1)" },
        { "case", RG_OPTION_TEXT, &r->name, "NAME", "check this case only, however large" },
        { "strategy", RG_OPTION_TEXT, &r->strategy, "NAME", RG_STRATEGY_TEXT },
        { "networks", RG_OPTION_COUNT, &r->networks, "N",
          "check N random networks instead, from --seed on, with all options of plans" },
        { "only", RG_OPTION_TEXT, &r->only, "LIST",
          "with --networks 1: keep only these items of the network, as printed by a failure" },
        { "quick", RG_OPTION_FLAG, &r->quick, NULL, "check only small cases, with 2 threads" },
        { "long", RG_OPTION_FLAG, &r->is_long, NULL,
          "check only cases of more than 10M elements (long sums), with 2 threads" },
        { "random", RG_OPTION_REAL, &r->random, "SECONDS",
          "run random trials instead of the cases, for SECONDS" },
        { "trials", RG_OPTION_COUNT, &r->trials, "N", "run exactly N random trials" },
        { "random-case", RG_OPTION_TEXT, &r->random_case, "TEXT",
          "repeat one random trial of one op, as printed by a failure" },
        { "fingerprints", RG_OPTION_TEXT, &r->fingerprints, "FILE",
          "write a hash of the result bits of every case, to compare two builds with diff" },
        { "json", RG_OPTION_FLAG, &r->json, NULL, "print one JSON object per line" },
        { "help", RG_OPTION_FLAG, &r->help, NULL, "print this help" },
        { .name = NULL },
    };
    const int ops = rg_options_take(options, argc, argv, NULL, NULL);
    if (ops >= 0 && r->help) {
        printf("usage: retrograde check [OP]...\n\n"
               "Compares every case with its definition in double precision and with finite "
               "differences.\n"
               "--random SECONDS draws random calls of all ops (descriptors, shapes, values, "
               "layouts) and\n"
               "random networks instead; each failure is reduced and printed as a command that "
               "repeats it.\n\n");
        rg_options_help(options);
    }
    return ops;
}

/* The cases of the ops named, or of all. */
static int check_ops(request *r, int ops, char **argv)
{
    int64_t failures = 0, cases = 0;
    rg_status status = RG_OK;
    if (r->fingerprints != NULL && (r->bits_file = fopen(r->fingerprints, "w")) == NULL) {
        (void)rg_fails(RG_IO, "cannot write '%s': %s", r->fingerprints, strerror(errno));
        return rg_failed();
    }
    const rg_op_test *test;
    for (int i = 0; status == RG_OK && (test = rg_op_test_at(ops, argv, i)) != NULL; i++)
        status = check_op(r, test, &failures, &cases);
    if (r->bits_file != NULL && (ferror(r->bits_file) != 0 || fclose(r->bits_file) != 0))
        status = rg_fails(RG_IO, "cannot write '%s'", r->fingerprints);
    if (status != RG_OK)
        return rg_failed();
    if (cases == 0)
        return rg_wrong("no case matches the arguments");
    if (r->strategy != NULL && r->ran == 0 && failures == 0)
        return rg_wrong("strategy '%s' accepts none of the cases", r->strategy);
    return failures == 0 ? 0 : 1;
}

int rg_cmd_check(int argc, char **argv)
{
    request r = { .device = "cpu", .seed = 1, .runs = 1, .random = -1 };
    const int ops = take_options(&r, argc, argv);
    if (ops < 0 || check_request(&r) != 0)
        return 2;
    if (r.help)
        return 0;
    for (int i = 0; i < ops; i++) {
        if (rg_op_test_find(argv[i]) == NULL)
            return rg_wrong("unknown op '%s'; see retrograde op --list", argv[i]);
    }
    const int told = rg_strategy_check(r.strategy, ops, argv);
    if (told != -1)
        return told;
    keep_memory();
    if (r.random >= 0 || r.trials > 0 || r.random_case != NULL)
        return check_random(&r, ops, argv);
    const int wrong = look_at_device(&r);
    if (wrong != 0)
        return wrong;
    if (r.networks == 0)
        return check_ops(&r, ops, argv);
    if (ops > 0 || r.dtype != NULL || r.strategy != NULL)
        return rg_wrong("--networks draws networks of all ops and dtypes; it takes no %s",
                        ops > 0           ? "op"
                        : r.dtype != NULL ? "--dtype"
                                          : "--strategy");
    return rg_check_networks(r.device, r.isa, r.networks, (uint64_t)r.seed, r.only);
}
