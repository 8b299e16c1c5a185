/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde bench`: the timed cases of ops beside the limit of the machine and beside peers. */
#include "cli/arguments.h"
#include "cli/bench_saved.h"
#include "cli/cases.h"
#include "cli/cli.h"
#include "cli/strategy_option.h"
#include "files/whole_file.h"

#include <stdlib.h>

typedef struct request {
    const char *device, *isa, *dtype, *name, *against, *only, *strategy, *save, *compare;
    int64_t threads, worst;
    double seconds;
    bool tf32, replay, json, help;
} request;

typedef struct bench {
    const request *request;
    rg_device *device;
    rg_queue *queue;
    rg_bench_printer printer;
    rg_bench_entries before;           /* of --compare */
    rg_bench_entries behind, compared; /* rows of this run: beside peers, and beside `before` */
    bool gpu;
    bool peer_failed[RG_MOST_PEERS];
    char peer_told[RG_MOST_PEERS][200]; /* why the peer left out a row, last time */
} bench;

/* ---- which rows ---- */

static bool wants_case(const bench *b, const rg_case *c)
{
    const char *name = b->request->name;
    const uint32_t timed = b->gpu ? RG_CASE_BENCH_GPU : RG_CASE_BENCH;
    return name == NULL ? (c->flags & timed) != 0 : strcmp(name, c->name) == 0;
}

static bool wants_dtype(const bench *b, rg_dtype dtype)
{
    const char *wanted = b->request->dtype;
    if (wanted == NULL)
        return dtype == RG_F32 || dtype == RG_BF16 || (b->gpu && dtype == RG_F16);
    return strcmp(wanted, "all") == 0 || strcmp(wanted, rg_dtype_name(dtype)) == 0;
}

/* Bytes that can still be used: of the system, and of the control group where there is one. */
static int64_t free_memory(void)
{
    long long kilobytes = 0, most = 0, used = 0;
    char text[256];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file != NULL && fgets(text, sizeof text, file) != NULL) {
        if (sscanf(text, "MemAvailable: %lld", &kilobytes) == 1)
            break;
    }
    if (file != NULL)
        fclose(file);
    int64_t bytes = kilobytes > 0 ? (int64_t)kilobytes * 1024 : INT64_MAX;
    FILE *limit = fopen("/sys/fs/cgroup/memory.max", "r");
    FILE *now = fopen("/sys/fs/cgroup/memory.current", "r");
    if (limit != NULL && now != NULL && fscanf(limit, "%lld", &most) == 1 &&
        fscanf(now, "%lld", &used) == 1 && most - used < bytes)
        bytes = most - used;
    if (limit != NULL)
        fclose(limit);
    if (now != NULL)
        fclose(now);
    return bytes;
}

/* ---- one row ---- */

/* A case that a peer does not support is reported once, not for every row. */
static void tell(bench *b, int peer)
{
    if (strcmp(b->peer_told[peer], rg_error_text()) == 0)
        return;
    snprintf(b->peer_told[peer], sizeof b->peer_told[peer], "%.199s", rg_error_text());
    fprintf(stderr, "retrograde: %s\n", b->peer_told[peer]);
}

static void time_peers(bench *b, const rg_bench_row *row, rg_bench_line *line)
{
    for (int i = 0; b->printer.peers[i] != NULL; i++) {
        const rg_peer *peer = b->printer.peers[i];
        line->peer[i] = (rg_peer_time){ 0 };
        if (b->peer_failed[i] || (row->c->flags & RG_CASE_NCHW && !peer->takes_nchw))
            continue;
        const rg_status status = peer->time(row, b->request->seconds, &line->peer[i]);
        if (status == RG_OK)
            continue;
        line->peer[i] = (rg_peer_time){ 0 };
        if (status == RG_UNSUPPORTED) {
            tell(b, i);
        } else {
            fprintf(stderr, "retrograde: %s; this peer is skipped from now on\n", rg_error_text());
            b->peer_failed[i] = true;
        }
    }
}

/* The peak of the device at this moment, for a contraction; 0 if it is not known. */
static rg_status find_peak(bench *b, const rg_bench_row *row, double *gflop_s)
{
    const rg_status status =
        row->operations > 0 ? rg_bench_peak(b->queue, row->dtype, gflop_s) : RG_OK;
    return status == RG_UNSUPPORTED ? RG_OK : status;
}

/* Ours, and the strategies that run meanwhile; then the peers, in the same mode. */
static rg_status measure_line(bench *b, rg_bench_row *row, rg_bench_line *line)
{
    rg_choices *choices = rg_device_choices(b->device);
    (void)rg_choices_take(choices, line->strategies);
    RG_TRY(rg_bench_row_measure(row, line->mode, b->request->seconds, &line->result));
    line->strategy_count = rg_choices_take(choices, line->strategies);
    row->mode = line->mode;
    time_peers(b, row, line);
    return RG_OK;
}

/* Prints a line, and keeps what --worst and --compare need of it. */
static rg_status finish_line(bench *b, const rg_bench_row *row, rg_bench_line *line)
{
    rg_bench_entry entry = { .ms = line->result.ms };
    int peer;
    rg_bench_name(&b->printer, row, line, entry.name);
    line->before_ms = rg_bench_entries_ms(&b->before, entry.name);
    rg_bench_print_line(&b->printer, row, line);
    entry.times = rg_bench_lead(line, &peer);
    entry.peer = peer >= 0 ? b->printer.peers[peer]->name : NULL;
    if (entry.times > 0)
        RG_TRY(rg_bench_entries_add(&b->behind, &entry));
    entry.times = line->before_ms / line->result.ms;
    return entry.times > 0 ? rg_bench_entries_add(&b->compared, &entry) : RG_OK;
}

static rg_status measure(bench *b, rg_bench_row *row)
{
    enum {
        SMALL_BYTES = 1 << 20,
        CALLS_PER_LINE = 100 /* so that a round outlasts the clock's step */
    };
    const double seconds = b->request->seconds;
    rg_bench_line line = { .mode = { .calls = 1, .commits = 1 } };
    RG_TRY(find_peak(b, row, &line.peak_gflop_s));
    double among_many = 0;
    if (row->bytes < SMALL_BYTES && !row->replay) {
        line.mode = (rg_bench_mode){ .calls = CALLS_PER_LINE, .commits = 1 };
        line.note = "100 calls";
        RG_TRY(measure_line(b, row, &line));
        RG_TRY(finish_line(b, row, &line));
        among_many = line.result.ms;
        line.mode = (rg_bench_mode){ .calls = 1, .commits = CALLS_PER_LINE };
        line.note = "1 call";
    } else if (b->gpu) {
        RG_TRY(rg_bench_gpu_mode(row, seconds, &line.mode));
    }
    RG_TRY(measure_line(b, row, &line));
    if (among_many > 0)
        line.overhead_us = 1e3 * (line.result.ms - among_many);
    return finish_line(b, row, &line);
}

static rg_status bench_row(bench *b, const rg_op_test *test, const rg_case *c, bool gradient,
                           const char *only, rg_dtype dtype)
{
    rg_bench_row row;
    RG_TRY(rg_bench_row_begin(test, c, gradient, only, dtype, &row));
    row.tf32 = b->request->tf32;
    row.replay = b->request->replay;
    const bool doubled = b->printer.peers[0] != NULL; /* a peer may need tensors of its own */
    const int64_t needed = row.memory * (doubled ? 2 : 1), free_now = free_memory();
    if (!b->gpu && needed > free_now - free_now / 16) { /* a GPU refuses what is too much */
        char reason[128];
        snprintf(reason, sizeof reason, "needs %.1f GB of memory, but only %.1f GB are free",
                 1e-9 * (double)needed, 1e-9 * (double)free_now);
        rg_bench_print_skipped(&b->printer, &row, reason);
        return RG_OK;
    }
    rg_status status = rg_bench_row_open(b->queue, &row);
    if (status == RG_OK)
        status = measure(b, &row);
    const bool skipped = status == RG_OUT_OF_MEMORY || status == RG_UNSUPPORTED;
    if (skipped)
        rg_bench_print_skipped(&b->printer, &row,
                               status == RG_UNSUPPORTED ? rg_error_text() : "not enough memory");
    rg_bench_row_close(&row);
    return skipped ? RG_OK : status;
}

static rg_status bench_dtypes(bench *b, const rg_op_test *test, const rg_case *c, bool gradient,
                              const char *only)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16 };
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        const bool fits = c->only == 0 || c->only >> dtypes[i] & 1;
        if (fits && wants_dtype(b, dtypes[i]))
            RG_TRY(bench_row(b, test, c, gradient, only, dtypes[i]));
    }
    return RG_OK;
}

/* Rows of the gradient of each input by itself. */
static rg_status bench_each(bench *b, const rg_op_test *test, const rg_case *c)
{
    _Alignas(16) char desc[RG_MAX_DESC];
    RG_TRY(rg_case_desc(test->op, c, desc));
    const int32_t inputs = rg_op_inputs(test->op, desc);
    for (int32_t i = 0; i < inputs; i++) {
        if (rg_op_differentiates(test->op, desc, i))
            RG_TRY(bench_dtypes(b, test, c, true, rg_op_input_names(test->op, desc)[i]));
    }
    return RG_OK;
}

static rg_status bench_op(bench *b, const rg_op_test *test)
{
    const char *only = b->request->only;
    const bool each = only != NULL && strcmp(only, "each") == 0;
    for (const rg_case *c = test->cases; c->name != NULL; c++) {
        const bool has_gradient = test->op->gradient != NULL && !(c->flags & RG_CASE_FORWARD);
        if (!wants_case(b, c))
            continue;
        if (only == NULL || each)
            RG_TRY(bench_dtypes(b, test, c, false, NULL));
        if (has_gradient)
            RG_TRY(each ? bench_each(b, test, c) : bench_dtypes(b, test, c, true, only));
    }
    return RG_OK;
}

/* ---- the command ---- */

static int check_request(const request *r, int ops, char **argv)
{
    rg_dtype dtype = RG_F32;
    for (int i = 0; i < ops; i++) {
        if (rg_op_test_find(argv[i]) == NULL)
            return rg_wrong("unknown op '%s'; see retrograde op --list", argv[i]);
    }
    if (r->dtype != NULL && strcmp(r->dtype, "all") != 0 &&
        (rg_dtype_parse(r->dtype, &dtype) != RG_OK || !rg_dtype_is_data(dtype)))
        return rg_wrong("--dtype must be f32, f64, f16, bf16 or all, not '%s'", r->dtype);
    if (r->threads > 1024)
        return rg_wrong("--threads must be between 1 and 1024, not %lld", (long long)r->threads);
    if (rg_isa_check(r->isa) != 0)
        return 2;
    if (r->worst > 0 && r->against == NULL)
        return rg_wrong("--worst needs --against, which names the peers");
    if (r->worst > 0 && r->json)
        return rg_wrong("--worst prints a table below the rows and cannot be used with --json");
    for (int i = 0; r->name != NULL; i++) {
        const rg_op_test *test = rg_op_test_at(ops, argv, i);
        if (test == NULL)
            return rg_wrong("unknown case '%s'", r->name);
        const rg_case *c = test->cases;
        while (c->name != NULL && strcmp(c->name, r->name) != 0)
            c++;
        if (c->name != NULL)
            break;
    }
    return 0;
}

enum { PEERS_TEXT = 128 };

/* "onednn,torch": those that are installed, and run on the device, are opened. */
static int open_peers(bench *b, const char *names)
{
    int opened = 0;
    for (const char *at = names; at != NULL && *at != 0;) {
        const size_t length = strcspn(at, ",");
        const rg_peer *peer = rg_peer_find(at, length);
        char all[PEERS_TEXT];
        if (peer == NULL)
            return rg_wrong("unknown peer '%.*s'; the peers are %s", (int)length, at,
                            rg_peers_text(false, ", ", all, sizeof all));
        bool again = false;
        for (int i = 0; i < opened; i++)
            again |= b->printer.peers[i] == peer;
        if (!again && rg_peer_open(peer, b->device) == RG_OK)
            b->printer.peers[opened++] = peer;
        else if (!again)
            fprintf(stderr, "retrograde: %s\n", rg_error_text());
        at += length + (at[length] == ',');
    }
    return 0;
}

static void fit_columns(bench *b, int ops, char **argv)
{
    rg_bench_printer *p = &b->printer;
    const rg_op_test *test;
    for (int i = 0; (test = rg_op_test_at(ops, argv, i)) != NULL; i++) {
        for (const rg_case *c = test->cases; c->name != NULL; c++) {
            const int op = (int)strlen(test->op->name), name = (int)strlen(c->name);
            if (wants_case(b, c)) {
                p->op_width = op > p->op_width ? op : p->op_width;
                p->case_width = name > p->case_width ? name : p->case_width;
            }
        }
    }
    const int counted = (int)sizeof "64x128, 100 calls" - 1; /* what rows of small cases end with */
    p->case_width = p->case_width > counted ? p->case_width : counted;
}

static int run_rows(bench *b, int ops, char **argv)
{
    const rg_op_test *test;
    fit_columns(b, ops, argv);
    rg_bench_print_head(&b->printer);
    for (int i = 0; (test = rg_op_test_at(ops, argv, i)) != NULL; i++) {
        if (bench_op(b, test) != RG_OK)
            return rg_failed();
    }
    if (b->request->worst > 0)
        rg_bench_print_worst(&b->behind, b->request->worst);
    if (b->request->compare != NULL && !b->request->json)
        rg_bench_print_compared(&b->compared, b->request->compare);
    return 0;
}

/* The file of --save is opened before the first row, and takes its place after the last. */
static int run_saved(bench *b, int ops, char **argv)
{
    rg_output output;
    char *text = NULL;
    size_t size = 0;
    if (b->request->save == NULL)
        return run_rows(b, ops, argv);
    rg_status status = rg_output_open(&output, b->request->save);
    if (status != RG_OK)
        return rg_wrong("%s: %s", b->request->save, rg_error_text());
    b->printer.save = open_memstream(&text, &size);
    const int result = b->printer.save != NULL ? run_rows(b, ops, argv) : 1;
    const bool written = b->printer.save != NULL && fclose(b->printer.save) == 0;
    status = written ? RG_OK : rg_fail(RG_OUT_OF_MEMORY, "not enough memory for the rows");
    if (status == RG_OK && result == 0)
        status = rg_output_add(&output, text, size);
    else if (status == RG_OK)
        status = RG_IO; /* nothing is left of the file */
    status = rg_output_close(&output, status);
    free(text);
    if (status != RG_OK && result == 0) {
        fprintf(stderr, "retrograde: %s: %s\n", b->request->save, rg_error_text());
        return 1;
    }
    return result;
}

static int run_bench(bench *b, int ops, char **argv)
{
    rg_device_options options = rg_device_options_default();
    options.threads = (int32_t)b->request->threads;
    options.isa = b->request->isa;
    options.tf32 = b->request->tf32;
    if (rg_usage_status(rg_device_create(b->request->device, &options, &b->device)) != RG_OK ||
        rg_queue_create(b->device, &b->queue) != RG_OK)
        return rg_failed();
    rg_choices_force(rg_device_choices(b->device), b->request->strategy);
    b->gpu = rg_bench_on_gpu(b->device);
    if (b->request->replay && !b->gpu)
        return rg_wrong("--replay needs a GPU: it replays CUDA graphs");
    b->printer.device = b->device;
    b->printer.json = b->request->json;
    b->printer.compares = b->request->compare != NULL;
    if (b->request->compare != NULL &&
        rg_bench_entries_read(b->request->compare, &b->before) != RG_OK)
        return rg_failed();
    const int status = open_peers(b, b->request->against);
    if (status != 0)
        return status;
    return run_saved(b, ops, argv);
}

static void print_help(const rg_option *options)
{
    printf("usage: retrograde bench [OP]...\n\n"
           "Times each kernel, alternating with plain loops that move the same bytes, once with\n"
           "ordinary stores and once with non-temporal stores; the faster loop is the limit. On a "
           "GPU\n"
           "the limit is the faster of a CUDA copy and a copy kernel. Peers are other libraries "
           "that\n"
           "run the same cases:\n\n");
    for (int i = 0; rg_peers[i] != NULL; i++)
        printf("  %-15s %s\n", rg_peers[i]->name, rg_peers[i]->text);
    puts("");
    rg_options_help(options);
}

int rg_cmd_bench(int argc, char **argv)
{
    request r = { .device = "cpu", .seconds = 0.6 };
    char peers[PEERS_TEXT], against[PEERS_TEXT + 32];
    snprintf(against, sizeof against, "%s; separate several by commas: onednn,torch",
             rg_peers_text(false, ", ", peers, sizeof peers));
    const rg_option options[] = {
        { "device", RG_OPTION_TEXT, &r.device, "D",
          "device to time: cpu, cuda or cuda:N (default cpu)" },
        { "threads", RG_OPTION_COUNT, &r.threads, "N", "number of CPU threads (default: all)" },
        { "isa", RG_OPTION_TEXT, &r.isa, "ISA",
          "highest instruction set to use: base, avx2 or avx512" },
        { "dtype", RG_OPTION_TEXT, &r.dtype, "T",
          "f32, f64, f16, bf16 or all (default f32 and bf16, and f16 on a GPU)" },
        { "case", RG_OPTION_TEXT, &r.name, "NAME", "time this case only" },
        { "gradient", RG_OPTION_TEXT, &r.only, "INPUT",
          "time the gradient of this input only; each: forward, then every input separately" },
        { "tf32", RG_OPTION_FLAG, &r.tf32, NULL,
          "let a GPU round f32 to TF32 in matrix products and convolutions" },
        { "replay", RG_OPTION_FLAG, &r.replay, NULL,
          "replay calls as a CUDA graph (peers on a GPU too), which leaves out the host's time" },
        { "strategy", RG_OPTION_TEXT, &r.strategy, "NAME", RG_STRATEGY_TEXT },
        { "against", RG_OPTION_TEXT, &r.against, "PEERS", against },
        { "seconds", RG_OPTION_REAL, &r.seconds, "S", "seconds for each row (default 0.6)" },
        { "worst", RG_OPTION_COUNT, &r.worst, "N",
          "below the table, list the N rows that are furthest behind the fastest peer" },
        { "save", RG_OPTION_TEXT, &r.save, "FILE",
          "also write the rows to FILE, as --json prints them" },
        { "compare", RG_OPTION_TEXT, &r.compare, "FILE",
          "show beside each row its time in FILE, which --save has written" },
        { "json", RG_OPTION_FLAG, &r.json, NULL, "print one JSON object per line" },
        { "help", RG_OPTION_FLAG, &r.help, NULL, "print this help" },
        { .name = NULL },
    };
    const int ops = rg_options_take(options, argc, argv, NULL, NULL);
    if (ops < 0)
        return 2;
    if (r.help) {
        print_help(options);
        return 0;
    }
    int status = check_request(&r, ops, argv);
    if (status == 0)
        status = rg_strategy_check(r.strategy, ops, argv);
    if (status != -1)
        return status;
    bench b = { .request = &r };
    status = run_bench(&b, ops, argv);
    for (int i = 0; b.printer.peers[i] != NULL; i++) {
        if (b.printer.peers[i]->close != NULL)
            b.printer.peers[i]->close();
    }
    rg_bench_entries_clear(&b.before);
    rg_bench_entries_clear(&b.behind);
    rg_bench_entries_clear(&b.compared);
    rg_queue_destroy(b.queue);
    rg_device_destroy(b.device);
    return status;
}
