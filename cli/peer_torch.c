/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* PyTorch, in a child process that runs bench/torch_peer.py: one line of JSON for each row, one
 * line back. Two peers have a child each: `torch` calls its kernels, `compile` has torch.compile
 * make one of the formula. */
#include "backend/cpu/isa.h"
#include "cli/peer_api.h"
#include "core/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The script and its modules as text; made by the build. */
extern const char rg_torch_peer[], rg_torch_fields[], rg_torch_training[], rg_torch_kernels[],
    rg_torch_formulas[];

extern char **environ;

typedef struct child {
    const char *name;
    bool compile;
    pid_t process;
    int line; /* a socket; the process's standard input and output */
    int32_t threads;
    char device[32];
} child;

/* Filled when opened. */
static child torch = { .name = "torch" }, compiled = { .name = "compile", .compile = true };

/* ---- the child ---- */

static rg_status start(child *c, const char *python, const rg_device *device)
{
    char text[16];
    c->threads = rg_device_threads(device);
    snprintf(c->device, sizeof c->device, "%s", rg_device_name(device));
    snprintf(text, sizeof text, "%d", c->threads);
    setenv("OMP_NUM_THREADS", text, 1);
    setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0); /* as for oneDNN, which is inside */
    if (rg_isa_best() == RG_ISA_AVX512)
        setenv("ATEN_CPU_CAPABILITY", "avx512", 0); /* by itself it stops at AVX2 */
    /* Results that it allocates again and again get the same pages each time, as on a GPU. */
    setenv("MALLOC_MMAP_MAX_", "0", 0);
    setenv("MALLOC_TRIM_THRESHOLD_", "1099511627776", 0);
    int ends[2];
    RG_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, RG_IO,
             "%s: cannot create a socket: %s", c->name, strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    char *arguments[] = { (char *)(uintptr_t)python,
                          (char[]){ "-c" },
                          (char *)(uintptr_t)rg_torch_peer,
                          (char *)(uintptr_t)rg_torch_fields,
                          (char *)(uintptr_t)rg_torch_training,
                          (char *)(uintptr_t)rg_torch_kernels,
                          (char *)(uintptr_t)rg_torch_formulas,
                          NULL };
    const int failed = posix_spawnp(&c->process, python, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    c->line = ends[0];
    if (failed != 0) {
        close(ends[0]);
        c->process = 0;
        return rg_fail(RG_UNSUPPORTED, "%s: cannot start %s: %s", c->name, python,
                       strerror(failed));
    }
    return RG_OK;
}

static void stop(child *c)
{
    if (c->process == 0)
        return;
    close(c->line); /* the child ends at the end of its input */
    waitpid(c->process, NULL, 0);
    c->process = 0;
}

/* The child hangs or its answer is invalid. */
static rg_status abandon(child *c, const char *reason)
{
    kill(c->process, SIGKILL);
    stop(c);
    return rg_fail(RG_IO, "%s: %s", c->name, reason);
}

static rg_status send_line(child *c, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        const ssize_t sent = send(c->line, text, left, MSG_NOSIGNAL);
        if (sent <= 0)
            return abandon(c, "the script has ended");
        text += sent;
        left -= (size_t)sent;
    }
    return RG_OK;
}

static rg_status receive_line(child *c, char *text, size_t capacity, double seconds)
{
    const double until = rg_seconds() + seconds;
    for (size_t length = 0; length + 1 < capacity; length++) {
        struct pollfd wait = { .fd = c->line, .events = POLLIN };
        const double left = until - rg_seconds();
        if (left <= 0 || poll(&wait, 1, (int)(left * 1e3) + 1) <= 0)
            return abandon(c, "the script does not answer");
        if (read(c->line, text + length, 1) != 1)
            return abandon(c, "the script has ended");
        if (text[length] == '\n') {
            text[length] = 0;
            return RG_OK;
        }
    }
    return abandon(c, "the script's answer is too long");
}

/* {"ms": 1.5}, {"skip": "reason"}: the value after the key, or NULL. */
static const char *value_of(const char *answer, const char *key)
{
    const char *at = strstr(answer, key);
    return at != NULL ? at + strlen(key) : NULL;
}

/* What the script's first line says: {"ready": "2.4.0", "compile": true, "cuda": false}. */
static const char *lack_of(const child *c, const char *answer)
{
    if (value_of(answer, "{\"ready\": ") == NULL)
        return "is not installed";
    if (c->compile && value_of(answer, "\"compile\": true") == NULL)
        return "has no torch.compile";
    if (strcmp(c->device, "cpu") != 0 && value_of(answer, "\"cuda\": true") == NULL)
        return "finds no GPU";
    return NULL;
}

static rg_status open_with(child *c, const char *python, const rg_device *device)
{
    char answer[1024];
    RG_TRY(start(c, python, device));
    RG_TRY(receive_line(c, answer, sizeof answer, 180));
    const char *lack = lack_of(c, answer);
    if (lack == NULL)
        return RG_OK;
    stop(c);
    return rg_fail(RG_UNSUPPORTED, "%s: PyTorch of %s %s", c->name, python, lack);
}

static rg_status open_child(child *c, const rg_device *device)
{
    const char *wanted = getenv("RG_PYTHON");
    if (wanted != NULL && wanted[0] != 0)
        return open_with(c, wanted, device);
    if (open_with(c, "python3", device) == RG_OK)
        return RG_OK;
    return open_with(c, "/usr/bin/python3", device); /* where a distribution puts it */
}

/* ---- one row ---- */

typedef struct writer {
    char text[4096];
    size_t length;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const int added = vsnprintf(w->text + w->length, sizeof w->text - w->length, format, values);
    va_end(values);
    const size_t capacity = sizeof w->text - 1 - w->length;
    w->length += (size_t)added < capacity ? (size_t)added : capacity;
}

static void put_field(void *context, const char *name, const rg_field *field, const char *value)
{
    (void)field;
    writer *w = context;
    put(w, "%s\"%s\": \"%s\"", w->text[w->length - 1] == '{' ? "" : ", ", name, value);
}

static rg_status time_row(child *c, const rg_bench_row *row, double seconds, rg_peer_time *time)
{
    writer w = { .length = 0 };
    put(&w, "{\"op\": \"%s\", \"fields\": {", row->test->op->name);
    rg_fields_each(&row->test->op->desc, row->desc, put_field, &w);
    put(&w, "}, \"shapes\": [");
    for (int32_t i = 0; i < row->inputs; i++) {
        put(&w, "%s[", i > 0 ? ", " : "");
        for (int32_t d = 0; d < row->x_desc[i].rank; d++)
            put(&w, "%s%lld", d > 0 ? ", " : "", (long long)row->x_desc[i].dims[d]);
        put(&w, "]");
    }
    put(&w, "], \"dtype\": \"%s\", \"direction\": \"%s\", \"device\": \"%s\", \"compile\": %s, ",
        rg_dtype_name(row->dtype), row->gradient ? "gradient" : "forward", c->device,
        c->compile ? "true" : "false");
    put(&w, "\"nchw\": %s, \"state\": %s, ", row->c->flags & RG_CASE_NCHW ? "true" : "false",
        row->state != NULL ? "true" : "false");
    put(&w, "\"only\": \"%s\", \"tf32\": %s, \"replay\": %s, ",
        row->only >= 0 ? rg_op_input_names(row->test->op, row->desc)[row->only] : "",
        row->tf32 ? "true" : "false", row->replay ? "true" : "false");
    put(&w, "\"calls\": %d, \"commits\": %d, \"threads\": %d, \"seconds\": %g}\n", row->mode.calls,
        row->mode.commits, c->threads, seconds);
    char answer[1024];
    RG_TRY(send_line(c, w.text));
    RG_TRY(receive_line(c, answer, sizeof answer, (c->compile ? 300 : 60) + 100 * seconds));
    const char *ms = value_of(answer, "{\"ms\": ");
    RG_CHECK(ms != NULL, RG_UNSUPPORTED, "%s: %s", c->name, answer);
    time->ms = strtod(ms, NULL);
    time->view = value_of(answer, "\"view\": true") != NULL;
    return RG_OK;
}

/* ---- the two peers ---- */

static rg_status open_torch(const rg_device *device)
{
    return open_child(&torch, device);
}

static rg_status time_torch(const rg_bench_row *row, double seconds, rg_peer_time *time)
{
    return time_row(&torch, row, seconds, time);
}

static void close_torch(void)
{
    stop(&torch);
}

static rg_status open_compiled(const rg_device *device)
{
    return open_child(&compiled, device);
}

static rg_status time_compiled(const rg_bench_row *row, double seconds, rg_peer_time *time)
{
    return time_row(&compiled, row, seconds, time);
}

static void close_compiled(void)
{
    stop(&compiled);
}

const rg_peer rg_peer_torch = { .name = "torch",
                                .text = "kernels of PyTorch",
                                .takes_nchw = true,
                                .open = open_torch,
                                .time = time_torch,
                                .close = close_torch };
const rg_peer rg_peer_compile = { .name = "compile",
                                  .text = "the formula compiled by torch.compile",
                                  .open = open_compiled,
                                  .time = time_compiled,
                                  .close = close_compiled };
