/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Many threads: one kernel, one queue or several, waiting together; made for the thread sanitizer.
 */
#include "api.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { THREADS = 6, ROUNDS = 40 };

/* EXPECT counts without a lock: threads count here and the main one expects. */
static _Atomic int wrong;
#define WRONG_UNLESS(condition) atomic_fetch_add(&wrong, !(condition))

typedef struct job {
    rg_device *device;
    rg_queue *queue;
    const rg_kernel *kernel;
    rg_tensor *x, *expected;
    uint64_t seed;
    _Atomic int *handled;
} job;

static void handle(void *context, rg_status outcome)
{
    WRONG_UNLESS(outcome == RG_OK);
    atomic_fetch_add((_Atomic int *)context, 1);
}

/* Records on the shared queue with the shared kernel into tensors of its own. */
static void *work(void *context)
{
    job *j = context;
    for (int i = 0; i < ROUNDS; i++) {
        rg_commands *commands = NULL;
        rg_tensor *y = NULL, *temporary = NULL;
        WRONG_UNLESS(rg_commands_create(j->queue, &commands) == RG_OK);
        WRONG_UNLESS(rg_kernel_forward_alloc(j->kernel, commands, 1, &j->x, false, &y, NULL) ==
                     RG_OK);
        WRONG_UNLESS(rg_kernel_forward_alloc(j->kernel, commands, 1, &y, true, &temporary, NULL) ==
                     RG_OK);
        float again[12 * 70];
        WRONG_UNLESS(rg_commands_read(commands, temporary, again, sizeof again, RG_LAYOUT_SAME) ==
                     RG_OK);
        if (i % 3 == 0)
            WRONG_UNLESS(rg_commands_on_completion(commands, handle, j->handled) == RG_OK);
        WRONG_UNLESS(rg_commands_commit(commands) == RG_OK);
        if (i % 5 == 0)
            rg_commands_get_state(commands);
        WRONG_UNLESS(rg_commands_wait(commands) == RG_OK);
        float got[12 * 70], wanted[12 * 70];
        WRONG_UNLESS(rg_tensor_read(y, got, sizeof got, RG_LAYOUT_SAME) == RG_OK);
        WRONG_UNLESS(rg_tensor_read(j->expected, wanted, sizeof wanted, RG_LAYOUT_SAME) == RG_OK);
        WRONG_UNLESS(memcmp(got, wanted, sizeof got) == 0);
        rg_tensor_destroy(y);
        rg_tensor_destroy(temporary);
        rg_commands_destroy(commands);
    }
    return NULL;
}

static void test_shared(bool one_queue)
{
    rig r = rig_open(3);
    rg_kernel *kernel = softmax_of(r.device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *x = filled(r.device, RG_F32, 2, DIMS(12, 70), 1);
    rg_tensor *expected = tensor_of(r.device, RG_F32, 2, DIMS(12, 70));
    EXPECT_OK(rg_kernel_forward(kernel, r.commands, &x, &expected, NULL));
    EXPECT_OK(rig_run(&r));
    _Atomic int handled = 0;
    wrong = 0;
    job jobs[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){ r.device, r.queue, kernel, x, expected, (uint64_t)i, &handled };
        if (!one_queue)
            EXPECT_OK(rg_queue_create(r.device, &jobs[i].queue));
        EXPECT(pthread_create(&threads[i], NULL, work, &jobs[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
        if (!one_queue)
            rg_queue_destroy(jobs[i].queue);
    }
    EXPECT(wrong == 0);
    EXPECT(handled == THREADS * ((ROUNDS + 2) / 3));
    rg_tensor_destroy(x);
    rg_tensor_destroy(expected);
    rg_kernel_destroy(kernel);
    rig_close(&r);
}

/* ---- several threads wait for the same commands ---- */

static void *wait_for(void *context)
{
    rg_commands *commands = context;
    WRONG_UNLESS(rg_commands_wait(commands) == RG_OK);
    WRONG_UNLESS(rg_commands_get_state(commands) == RG_COMMANDS_COMPLETED);
    WRONG_UNLESS(rg_commands_error_text(commands)[0] == 0);
    return NULL;
}

static void test_wait_together(void)
{
    rig r = rig_open(2);
    rg_kernel *kernel = softmax_of(r.device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *x = filled(r.device, RG_F32, 2, DIMS(300, 300), 1);
    rg_tensor *y = tensor_of(r.device, RG_F32, 2, DIMS(300, 300));
    wrong = 0;
    for (int round = 0; round < 20; round++) {
        _Atomic int handled = 0;
        for (int i = 0; i < 4; i++)
            EXPECT_OK(rg_kernel_forward(kernel, r.commands, &x, &y, NULL));
        EXPECT_OK(rg_commands_on_completion(r.commands, handle, &handled));
        EXPECT_OK(rg_commands_commit(r.commands));
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            EXPECT(pthread_create(&threads[i], NULL, wait_for, r.commands) == 0);
        EXPECT_OK(rg_commands_wait(r.commands));
        EXPECT(handled == 1);
        for (int i = 0; i < THREADS; i++)
            EXPECT(pthread_join(threads[i], NULL) == 0);
        rig_renew(&r);
    }
    EXPECT(wrong == 0);
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_kernel_destroy(kernel);
    rig_close(&r);
}

/* ---- two queues side by side ---- */

typedef struct rendezvous {
    _Atomic int here;
    _Atomic bool met;
} rendezvous;

/* Two handlers, one per queue, that each wait for the other to begin. */
static void meet(void *context, rg_status outcome)
{
    rendezvous *m = context;
    WRONG_UNLESS(outcome == RG_OK);
    atomic_fetch_add(&m->here, 1);
    for (int i = 0; i < 10000 && m->here < 2; i++)
        usleep(1000);
    m->met = m->here == 2;
}

static void test_side_by_side(void)
{
    rig r = rig_open(1);
    rg_queue *other = NULL;
    rg_commands *second = NULL;
    rendezvous m = { 0 };
    wrong = 0;
    EXPECT_OK(rg_queue_create(r.device, &other));
    EXPECT_OK(rg_commands_create(other, &second));
    EXPECT_OK(rg_commands_on_completion(r.commands, meet, &m));
    EXPECT_OK(rg_commands_on_completion(second, meet, &m));
    EXPECT_OK(rg_commands_commit(r.commands));
    EXPECT_OK(rg_commands_commit(second));
    EXPECT_OK(rg_commands_wait(second));
    EXPECT_OK(rg_commands_wait(r.commands));
    EXPECT(m.met && wrong == 0);
    rg_commands_destroy(second);
    rg_queue_destroy(other);
    rig_close(&r);
}

/* ---- recording goes on while an earlier part runs ---- */

static void test_continue_under_way(void)
{
    rig r = rig_open(2);
    rg_kernel *kernel = softmax_of(r.device, RG_SOFTMAX_PLAIN, -1);
    rg_tensor *x = filled(r.device, RG_F32, 2, DIMS(200, 500), 1);
    rg_tensor *plain[2] = { tensor_of(r.device, RG_F32, 2, DIMS(200, 500)),
                            tensor_of(r.device, RG_F32, 2, DIMS(200, 500)) };
    EXPECT_OK(rg_kernel_forward(kernel, r.commands, &x, &plain[0], NULL));
    for (int i = 0; i < 20; i++)
        EXPECT_OK(rg_kernel_forward(kernel, r.commands, &plain[i % 2], &plain[1 - i % 2], NULL));
    EXPECT_OK(rig_run(&r));
    _Atomic int handled = 0;
    rg_tensor *last = NULL, *next = NULL, *result = tensor_of(r.device, RG_F32, 2, DIMS(200, 500));
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r.commands, 1, &x, true, &last, NULL));
    for (int i = 0; i < 19; i++) {
        EXPECT_OK(rg_commands_on_completion(r.commands, handle, &handled));
        EXPECT_OK(rg_commands_commit_and_continue(r.commands));
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r.commands, 1, &last, true, &next, NULL));
        rg_tensor_destroy(last);
        last = next;
    }
    EXPECT_OK(rg_kernel_forward(kernel, r.commands, &last, &result, NULL));
    EXPECT_OK(rig_run(&r));
    EXPECT(handled == 19);
    EXPECT(same_bits(result, plain[0]));
    rg_tensor_destroy(last);
    rg_tensor_destroy(result);
    rg_tensor_destroy(plain[0]);
    rg_tensor_destroy(plain[1]);
    rg_tensor_destroy(x);
    rg_kernel_destroy(kernel);
    rig_close(&r);
}

/* ---- the same bits ---- */

/* Whatever the number of threads, and however the caller has set rounding and subnormals. */
static void test_same_bits(void)
{
    rg_tensor *wanted[2] = { NULL, NULL };
    rig first = { 0 };
    for (int32_t threads = 1; threads <= 8; threads++) {
        rig r = rig_open(threads);
        rg_tensor *x = filled(r.device, RG_F32, 2, DIMS(301, 401), 1);
        for (int axis = 0; axis < 2; axis++) {
            rg_kernel *kernel = softmax_of(r.device, RG_SOFTMAX_LOG, axis);
            rg_tensor *y = tensor_of(r.device, RG_F32, 2, DIMS(301, 401));
            EXPECT_OK(rg_kernel_forward(kernel, r.commands, &x, &y, NULL));
#if defined(__x86_64__)
            const unsigned plain = _mm_getcsr();
            _mm_setcsr(threads % 2 ? plain : plain | 0xe040); /* towards 0, flush, no subnormals */
#endif
            EXPECT_OK(rig_run(&r));
#if defined(__x86_64__)
            EXPECT((_mm_getcsr() & ~0x3fu) == ((threads % 2 ? plain : plain | 0xe040) & ~0x3fu));
            _mm_setcsr(plain);
#endif
            if (threads == 1)
                wanted[axis] = y;
            else
                EXPECT(same_bits(y, wanted[axis]));
            if (threads > 1)
                rg_tensor_destroy(y);
            rg_kernel_destroy(kernel);
        }
        rg_tensor_destroy(x);
        if (threads == 1)
            first = r;
        else
            rig_close(&r);
    }
    rg_tensor_destroy(wanted[0]);
    rg_tensor_destroy(wanted[1]);
    rig_close(&first);
}

/* ---- threads of the caller ---- */

typedef struct caller_task {
    void (*task)(void *data, int32_t index);
    void *data;
    int32_t index;
} caller_task;

static void *run_caller_task(void *context)
{
    const caller_task *t = context;
    t->task(t->data, t->index);
    return NULL;
}

/* A thread for each task but the first; counts calls and tasks. */
static void run_on_threads(void *context, int32_t count, void (*task)(void *, int32_t), void *data)
{
    int *calls = context;
    pthread_t threads[8];
    caller_task tasks[8];
    calls[0]++;
    calls[1] += count;
    for (int32_t i = 1; i < count; i++) {
        tasks[i] = (caller_task){ task, data, i };
        pthread_create(&threads[i], NULL, run_caller_task, &tasks[i]);
    }
    task(data, 0);
    for (int32_t i = 1; i < count; i++)
        pthread_join(threads[i], NULL);
}

static rig rig_on(const rg_device_options *options)
{
    rig r = { 0 };
    EXPECT_OK(rg_device_create("cpu", options, &r.device));
    EXPECT_OK(rg_queue_create(r.device, &r.queue));
    EXPECT_OK(rg_commands_create(r.queue, &r.commands));
    return r;
}

/* A convolution, which needs scratch per thread, on threads of the caller and on one of the
 * device's: the same bits. */
static void test_callers_threads(void)
{
    int calls[2] = { 0, 0 };
    const rg_parallel parallel = { run_on_threads, calls };
    rg_device_options options = rg_device_options_default();
    rg_tensor *y[2];
    rig rigs[2];
    for (int i = 0; i < 2; i++) {
        options.threads = i == 0 ? 1 : 4;
        options.parallel = i == 0 ? NULL : &parallel;
        rigs[i] = rig_on(&options);
        rg_conv_desc desc = rg_conv_desc_default();
        desc.bias = false;
        rg_kernel *conv = NULL;
        EXPECT_OK(rg_conv_create(rigs[i].device, &desc, &conv));
        rg_tensor *x[] = { filled(rigs[i].device, RG_F32, 4, DIMS(4, 20, 20, 24), 1),
                           filled(rigs[i].device, RG_F32, 4, DIMS(40, 3, 3, 24), 2) };
        y[i] = tensor_of(rigs[i].device, RG_F32, 4, DIMS(4, 18, 18, 40));
        EXPECT_OK(rg_kernel_forward(conv, rigs[i].commands, x, &y[i], NULL));
        EXPECT_OK(rig_run(&rigs[i]));
        rg_tensor_destroy(x[0]);
        rg_tensor_destroy(x[1]);
        rg_kernel_destroy(conv);
    }
    EXPECT(same_bits(y[0], y[1]));
    EXPECT(calls[0] >= 1 && calls[1] > calls[0]);
    for (int i = 0; i < 2; i++) {
        rg_tensor_destroy(y[i]);
        rig_close(&rigs[i]);
    }
    const rg_parallel nothing = { NULL, NULL };
    options.parallel = &nothing;
    rg_device *device = NULL;
    EXPECT(rg_device_create("cpu", &options, &device) == RG_INVALID_ARGUMENT);
    EXPECT(strstr(rg_error_text(), "parallel") != NULL);
}

static int thread_count(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (const struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;)
        count += e->d_name[0] != '.';
    if (folder != NULL)
        closedir(folder);
    return count;
}

/* A host with threads of its own gets none beside them, also where work is committed behind other
 * work, which otherwise wakes a thread of the queue. */
static void test_no_thread_beside_callers(void)
{
    int calls[2] = { 0, 0 };
    const rg_parallel parallel = { run_on_threads, calls };
    rg_device_options options = rg_device_options_default();
    options.parallel = &parallel;
    options.threads = 2;
    rig r = rig_on(&options);
    rg_commands *second = NULL;
    rg_kernel *copy = NULL;
    rg_neuron_desc desc = rg_neuron_desc_default();
    rg_tensor *x = filled(r.device, RG_F32, 1, DIMS(1 << 16), 1);
    rg_tensor *y = tensor_of(r.device, RG_F32, 1, DIMS(1 << 16));
    EXPECT_OK(rg_commands_create(r.queue, &second));
    EXPECT_OK(rg_neuron_create(r.device, &desc, &copy));
    EXPECT_OK(rg_kernel_forward(copy, r.commands, &x, &y, NULL));
    EXPECT_OK(rg_kernel_forward(copy, second, &x, &y, NULL));
    const int before = thread_count();
    EXPECT_OK(rg_commands_commit(r.commands));
    EXPECT_OK(rg_commands_commit(second));
    EXPECT_OK(rg_commands_wait(second));
    EXPECT(thread_count() == before);
    EXPECT_OK(rg_commands_wait(r.commands));
    rg_commands_destroy(second);
    rg_kernel_destroy(copy);
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rig_close(&r);
}

int main(void)
{
    test_callers_threads();
    test_no_thread_beside_callers();
    test_shared(true);
    test_shared(false);
    test_wait_together();
    test_side_by_side();
    test_continue_under_way();
    test_same_bits();
    return rg_test_report();
}
