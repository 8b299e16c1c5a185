/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Devices: names, options, environment, and who keeps whom alive. */
#define RG_NO_DEPRECATION_WARNINGS /* the old names are tried, too */
#include "api.h"

static void test_names(void)
{
    rg_device *device = NULL;
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    EXPECT(strcmp(rg_device_name(device), "cpu") == 0);
    EXPECT(rg_device_threads(device) >= 1);
    rg_device_destroy(device);
    EXPECT_OK(rg_device_create("cpu:0", NULL, &device));
    EXPECT(strcmp(rg_device_name(device), "cpu") == 0);
    rg_device_destroy(device);
    rg_device_destroy(NULL);

    static const char *const malformed[] = { "",      "tpu",     "cuda:x",
                                             "cuda:", "cuda:-1", "CPU",
                                             "cpu ",  "cpu:",    "cpu:0x",
                                             ":",     ":0",      "cpu:+0",
                                             "cudax", "cuda::0", "cpu:99999999999999999999" };
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        device = (rg_device *)1;
        EXPECT_FAILS(rg_device_create(malformed[i], NULL, &device), RG_INVALID_ARGUMENT,
                     "unknown device");
        EXPECT(device == NULL);
    }
    static const char *const absent[] = { "cpu:1", "cpu:4096", "cuda:4096" };
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        EXPECT_FAILS(rg_device_create(absent[i], NULL, &device), RG_NO_DEVICE, absent[i]);
        EXPECT(device == NULL);
    }
    char name[32];
    const bool has_cuda = rg_device_list(1, name, sizeof name) == RG_OK;
    static const char *const gpus[] = { "cuda", "cuda:0", "cuda:7" };
    for (int i = 0; i < 3 && !has_cuda; i++) {
        device = (rg_device *)1;
        EXPECT_FAILS(rg_device_create(gpus[i], NULL, &device), RG_NO_DEVICE, gpus[i]);
        const char *const why = strstr(rg_error_text(), " is not available: ");
        EXPECT(why != NULL && strlen(why) > 25); /* what is missing */
        EXPECT(device == NULL);
    }
    EXPECT_FAILS(rg_device_create(NULL, NULL, &device), RG_INVALID_ARGUMENT, "name is NULL");
    EXPECT_FAILS(rg_device_create("cpu", NULL, NULL), RG_INVALID_ARGUMENT, "device is NULL");
    EXPECT(strcmp(rg_device_name(NULL), "") == 0 && rg_device_threads(NULL) == 0);
    EXPECT(strcmp(rg_device_isa(NULL), "") == 0);
}

static void test_list(void)
{
    char name[32] = "untouched";
    EXPECT_OK(rg_device_list(0, name, sizeof name));
    EXPECT(strcmp(name, "cpu") == 0);
    int32_t count = 0;
    while (rg_device_list(count, name, sizeof name) == RG_OK)
        count++;
    EXPECT_FAILS(rg_device_list(count, name, sizeof name), RG_NO_DEVICE,
                 "this machine has no more devices");
    EXPECT_FAILS(rg_device_list(INT32_MAX, name, sizeof name), RG_NO_DEVICE,
                 "this machine has no more devices");
    EXPECT_FAILS(rg_device_list(-1, name, sizeof name), RG_INVALID_ARGUMENT, "-1");
    EXPECT_FAILS(rg_device_list(0, NULL, 4), RG_INVALID_ARGUMENT, "NULL");
    char small[3] = { 'x', 'x', 'x' };
    EXPECT_OK(rg_device_list(0, small, 2)); /* cut, and ended */
    EXPECT(strcmp(small, "c") == 0 && small[2] == 'x');
}

/* One line, cut where it does not fit. */
static void test_describe(void)
{
    rg_device_options options = rg_device_options_default();
    options.isa = "base";
    char text[64] = "untouched", small[9] = "xxxxxxxx";
    EXPECT(rg_device_describe(NULL, text, sizeof text) == 0 && text[0] == 0);
    EXPECT(rg_device_describe(NULL, NULL, 0) == 0);
    for (options.threads = 1; options.threads <= 2; options.threads++) {
        rg_device *device = NULL;
        EXPECT_OK(rg_device_create("cpu", &options, &device));
        const char *const wanted = options.threads == 1 ? "1 thread, base" : "2 threads, base";
        EXPECT(rg_device_describe(device, text, sizeof text) == strlen(wanted));
        EXPECT(strcmp(text, wanted) == 0);
        EXPECT(rg_device_describe(device, NULL, 0) == strlen(wanted));
        EXPECT(rg_device_describe(device, small, 7) == strlen(wanted));
        EXPECT(strlen(small) == 6 && memcmp(small, wanted, 6) == 0 && small[7] == 'x');
        rg_device_destroy(device);
    }
}

static rg_status open_with(int32_t threads, const char *isa, int32_t *got, char isa_got[16])
{
    rg_device_options options = rg_device_options_default();
    options.threads = threads;
    options.isa = isa;
    rg_device *device;
    const rg_status status = rg_device_create("cpu", &options, &device);
    if (status == RG_OK) {
        *got = rg_device_threads(device);
        snprintf(isa_got, 16, "%s", rg_device_isa(device));
    }
    rg_device_destroy(device);
    return status;
}

static void test_options(void)
{
    int32_t threads = 0;
    char isa[16];
    EXPECT_OK(open_with(3, "base", &threads, isa));
    EXPECT(threads == 3 && strcmp(isa, "base") == 0);
    EXPECT_OK(open_with(1024, NULL, &threads, isa));
    EXPECT(threads == 1024);
    EXPECT_FAILS(open_with(1025, NULL, &threads, isa), RG_INVALID_ARGUMENT, "1025");
    EXPECT_FAILS(open_with(-1, NULL, &threads, isa), RG_INVALID_ARGUMENT, "-1");
    EXPECT_FAILS(open_with(INT32_MIN, NULL, &threads, isa), RG_INVALID_ARGUMENT, "threads");
    EXPECT_FAILS(open_with(1, "sse9", &threads, isa), RG_INVALID_ARGUMENT, "sse9");
    EXPECT_FAILS(open_with(1, "AVX2", &threads, isa), RG_INVALID_ARGUMENT, "AVX2");
    EXPECT(strcmp(rg_device_isa_list(0), "base") == 0);
    EXPECT(rg_device_isa_list(-1) == NULL && rg_device_isa_list(99) == NULL);
    rg_device_options old = rg_device_options_default();
    old.rung = "base"; /* the name of version 0.1 */
    EXPECT(strcmp(old.isa, "base") == 0 && rg_device_rung_list(99) == NULL);
    EXPECT(strcmp(rg_device_rung_list(0), "base") == 0 && strcmp(rg_device_rung(NULL), "") == 0);
    static const char *const all[] = { "base", "avx2", "avx512" };
    for (int32_t i = 0; i < 3; i++) {
        if (rg_device_isa_list(i) == NULL) {
            EXPECT_FAILS(open_with(1, all[i], &threads, isa), RG_UNSUPPORTED, all[i]);
        } else {
            EXPECT_OK(open_with(1, all[i], &threads, isa));
            EXPECT(strcmp(isa, all[i]) == 0 && strcmp(rg_device_isa_list(i), all[i]) == 0);
        }
    }
    rg_device_options options = rg_device_options_default();
    rg_device *device;
    static const uint32_t sizes[] = { 0, 4, sizeof(rg_device_options) + 1, UINT32_MAX };
    for (int i = 0; i < 4; i++) {
        options.size = sizes[i];
        EXPECT_FAILS(rg_device_create("cpu", &options, &device), RG_INVALID_ARGUMENT, "size");
    }
    options = rg_device_options_default();
    options.size = offsetof(rg_device_options, isa); /* as an older program would have it */
    options.isa = "nonsense";
    EXPECT_OK(rg_device_create("cpu", &options, &device));
    rg_device_destroy(device);
    options = rg_device_options_default();
    options.allocator = &(const rg_allocator){ 0 };
    EXPECT_FAILS(rg_device_create("cpu", &options, &device), RG_INVALID_ARGUMENT, "allocator");
}

static void test_environment(void)
{
    int32_t threads = 0;
    char isa[16];
    setenv("RG_THREADS", "5", 1);
    setenv("RG_CPU", "base", 1);
    EXPECT_OK(open_with(0, NULL, &threads, isa));
    EXPECT(threads == 5 && strcmp(isa, "base") == 0);
    EXPECT_OK(open_with(2, rg_device_isa_list(0), &threads, isa)); /* options win */
    EXPECT(threads == 2);
    setenv("RG_CPU", "avx512", 1); /* a cap: never an error where the machine has less */
    EXPECT_OK(open_with(0, NULL, &threads, isa));
    static const char *const bad[] = {
        "0", "-3", "1025", "two", "4 ", "4.5", "99999999999999999999"
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("RG_THREADS", bad[i], 1);
        EXPECT_FAILS(open_with(0, NULL, &threads, isa), RG_INVALID_ARGUMENT, "RG_THREADS");
        EXPECT_OK(open_with(1, NULL, &threads, isa)); /* not looked at */
    }
    setenv("RG_THREADS", "", 1); /* as if it were not set */
    setenv("RG_CPU", "", 1);
    EXPECT_OK(open_with(0, NULL, &threads, isa));
    EXPECT(threads >= 1);
    setenv("RG_CPU", "quantum", 1);
    EXPECT_FAILS(open_with(0, NULL, &threads, isa), RG_INVALID_ARGUMENT, "quantum");
    EXPECT_OK(open_with(0, "base", &threads, isa));
    unsetenv("RG_THREADS");
    unsetenv("RG_CPU");
}

/* Everything made on a device keeps it, whatever is destroyed first. */
static void test_lifetime(void)
{
    rig r = rig_open(2);
    rg_tensor *x = filled(r.device, RG_F32, 2, DIMS(6, 50), 1);
    rg_tensor *y = tensor_of(r.device, RG_F32, 2, DIMS(6, 50));
    rg_kernel *kernel = softmax_of(r.device, RG_SOFTMAX_PLAIN, -1);
    rg_device_destroy(r.device);
    rg_queue_destroy(r.queue);
    EXPECT_OK(rg_kernel_forward(kernel, r.commands, &x, &y, NULL));
    EXPECT_OK(rg_commands_commit(r.commands));
    EXPECT_OK(rg_commands_wait(r.commands));
    rg_commands_destroy(r.commands);
    EXPECT(strcmp(rg_device_name(rg_tensor_device(x)), "cpu") == 0);
    EXPECT(rg_kernel_device(kernel) == rg_tensor_device(y));
    rg_tensor_destroy(x);
    rg_kernel_destroy(kernel);
    float values[300];
    EXPECT_OK(rg_tensor_read(y, values, sizeof values, RG_LAYOUT_SAME));
    double sum = 0;
    for (int i = 0; i < 300; i++)
        sum += (double)values[i];
    EXPECT(sum > 5.999 && sum < 6.001);
    rg_tensor_destroy(y);
}

static void test_queues(void)
{
    rg_queue *queue = (rg_queue *)1;
    EXPECT_FAILS(rg_queue_create(NULL, &queue), RG_INVALID_ARGUMENT, "device is NULL");
    EXPECT(queue == NULL);
    rg_device *device;
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    EXPECT_FAILS(rg_queue_create(device, NULL), RG_INVALID_ARGUMENT, "queue is NULL");
    int stream;
    void *const streams[] = { NULL, &stream };
    for (int i = 0; i < 2; i++) {
        queue = (rg_queue *)1;
        EXPECT_FAILS(rg_queue_wrap(device, streams[i], &queue), RG_UNSUPPORTED,
                     "rg_queue_wrap: cpu has no CUDA streams");
        EXPECT(queue == NULL);
    }
    queue = (rg_queue *)1;
    EXPECT_FAILS(rg_queue_wrap(NULL, &stream, &queue), RG_INVALID_ARGUMENT, "device is NULL");
    EXPECT(queue == NULL);
    EXPECT_FAILS(rg_queue_wrap(device, NULL, NULL), RG_INVALID_ARGUMENT, "queue is NULL");
    rg_queue_destroy(NULL);
    rg_commands *commands = (rg_commands *)1;
    EXPECT_FAILS(rg_commands_create(NULL, &commands), RG_INVALID_ARGUMENT, "queue is NULL");
    EXPECT(commands == NULL);
    EXPECT_OK(rg_queue_create(device, &queue));
    EXPECT_FAILS(rg_commands_create(queue, NULL), RG_INVALID_ARGUMENT, "commands is NULL");
    rg_queue_destroy(queue);
    rg_device_destroy(device);
}

int main(void)
{
    test_environment(); /* first: it clears the variables that the others must not see */
    test_names();
    test_list();
    test_describe();
    test_options();
    test_lifetime();
    test_queues();
    return rg_test_report();
}
