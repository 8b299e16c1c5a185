/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* PyTorch, in a child process that runs bench/torch_peer.py: one line of JSON for each row, one
 * line back. */
#include "backend/cpu/rung.h"
#include "cli/peer_api.h"

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

/* The script as text; made by the build. */
extern const char rg_torch_script[];

extern char **environ;

static struct {
    pid_t process;
    int line; /* a socket; the child's standard input and output */
    int32_t threads;
} child; /* filled by open_peer */

/* ---- the child ---- */

static rg_status start(const char *python, int32_t threads)
{
    char text[16];
    snprintf(text, sizeof text, "%d", threads);
    setenv("OMP_NUM_THREADS", text, 1);
    setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0); /* as for oneDNN, which is inside */
    if (rg_rung_best() == RG_RUNG_AVX512)
        setenv("ATEN_CPU_CAPABILITY", "avx512", 0); /* by itself it stops at AVX2 */
    int ends[2];
    RG_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, RG_IO,
             "torch: no socket: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    char *arguments[] = { (char *)(uintptr_t)python, (char[]){ "-c" },
                          (char *)(uintptr_t)rg_torch_script, NULL };
    const int failed = posix_spawnp(&child.process, python, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    child.line = ends[0];
    child.threads = threads;
    if (failed != 0) {
        close(ends[0]);
        child.process = 0;
        return rg_fail(RG_UNSUPPORTED, "torch: %s does not start: %s", python, strerror(failed));
    }
    return RG_OK;
}

static void close_peer(void)
{
    if (child.process == 0)
        return;
    close(child.line); /* the child ends at the end of its input */
    waitpid(child.process, NULL, 0);
    child.process = 0;
}

/* The child hangs or answers nonsense. */
static rg_status abandon(const char *reason)
{
    kill(child.process, SIGKILL);
    close_peer();
    return rg_fail(RG_IO, "torch: %s", reason);
}

static rg_status send_line(const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        const ssize_t sent = send(child.line, text, left, MSG_NOSIGNAL);
        if (sent <= 0)
            return abandon("the script has ended");
        text += sent;
        left -= (size_t)sent;
    }
    return RG_OK;
}

static rg_status receive_line(char *text, size_t capacity, double seconds)
{
    const double until = rg_bench_seconds() + seconds;
    for (size_t length = 0; length + 1 < capacity; length++) {
        struct pollfd wait = { .fd = child.line, .events = POLLIN };
        const double left = until - rg_bench_seconds();
        if (left <= 0 || poll(&wait, 1, (int)(left * 1e3) + 1) <= 0)
            return abandon("the script does not answer");
        if (read(child.line, text + length, 1) != 1)
            return abandon("the script has ended");
        if (text[length] == '\n') {
            text[length] = 0;
            return RG_OK;
        }
    }
    return abandon("the script's answer is too long");
}

/* {"ms": 1.5}, {"skip": "reason"}: the value behind the key, or NULL. */
static const char *value_of(const char *answer, const char *key)
{
    const char *at = strstr(answer, key);
    return at != NULL ? at + strlen(key) : NULL;
}

static rg_status open_with(const char *python, int32_t threads)
{
    char answer[1024];
    RG_TRY(start(python, threads));
    RG_TRY(receive_line(answer, sizeof answer, 120));
    if (value_of(answer, "{\"ready\": ") != NULL)
        return RG_OK;
    close_peer();
    return rg_fail(RG_UNSUPPORTED, "torch is not installed for %s", python);
}

static rg_status open_peer(int32_t threads)
{
    const char *wanted = getenv("RG_PYTHON");
    if (wanted != NULL && wanted[0] != 0)
        return open_with(wanted, threads);
    if (open_with("python3", threads) == RG_OK)
        return RG_OK;
    return open_with("/usr/bin/python3", threads); /* where a distribution puts it */
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
    const size_t room = sizeof w->text - 1 - w->length;
    w->length += (size_t)added < room ? (size_t)added : room;
}

static void put_field(void *context, const char *name, const rg_field *field, const char *value)
{
    (void)field;
    writer *w = context;
    put(w, "%s\"%s\": \"%s\"", w->text[w->length - 1] == '{' ? "" : ", ", name, value);
}

static rg_status time_row(const rg_bench_row *row, double seconds, double *ms)
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
    put(&w, "], \"dtype\": \"%s\", \"direction\": \"%s\", \"threads\": %d, \"seconds\": %g}\n",
        rg_dtype_name(row->dtype), row->gradient ? "gradient" : "forward", child.threads, seconds);
    char answer[1024];
    RG_TRY(send_line(w.text));
    RG_TRY(receive_line(answer, sizeof answer, 60 + 100 * seconds));
    const char *time = value_of(answer, "{\"ms\": ");
    RG_CHECK(time != NULL, RG_UNSUPPORTED, "torch: %s", answer);
    *ms = strtod(time, NULL);
    return RG_OK;
}

const rg_peer rg_peer_torch = { "torch", open_peer, time_row, close_peer };
const rg_peer *const rg_peers[] = { &rg_peer_onednn, &rg_peer_torch, NULL };
