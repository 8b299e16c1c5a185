/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tensors of more than 2^31 elements. One piece of memory is mapped again and again, so that they
 * need address space but hardly any memory: element i is element i % WINDOW of the window. The last
 * window of a result is memory of its own, so that it shows whether it was reached. */
#include "api.h"

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RG_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RG_SANITIZED 1
#endif
#endif

/* Elements of 2 bytes. A window is whole pages, and no power of two: an index that has lost its
 * upper bits meets another element. */
#define WINDOW   ((int64_t)33 << 15)
#define WINDOWS  ((((int64_t)1 << 31) / WINDOW) + 4)
#define ELEMENTS (WINDOWS * WINDOW)
#define LAST     (ELEMENTS - WINDOW)      /* the last window, beyond 2^31 */
#define BEYOND   (((int64_t)1 << 31) + 5) /* ROW by 2^21 rows, and 5 */
enum { ROW = 1024, SKIPPED = 77 };

typedef struct rolls {
    uint16_t *dy, *y, *dx; /* ELEMENTS each, all of them windows */
    rg_device *device;
    rig rig;
} rolls;

static int skip(const char *why)
{
    printf("skipped: %s\n", why);
    return SKIPPED;
}

/* ELEMENTS that are WINDOWS times the same, or but for the last; NULL if the system refuses. */
static uint16_t *map_roll(bool last_apart)
{
    const size_t window = (size_t)WINDOW * 2, all = (size_t)ELEMENTS * 2;
    const int file = memfd_create("window", MFD_CLOEXEC), use = PROT_READ | PROT_WRITE;
    char *roll = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)(2 * window)) == 0)
        roll = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool mapped = roll != MAP_FAILED;
    for (size_t at = 0; mapped && at < all; at += window) {
        const size_t from = last_apart && at + window == all ? window : 0;
        mapped =
            mmap(roll + at, window, use, MAP_SHARED | MAP_FIXED, file, (off_t)from) == roll + at;
    }
    if (file >= 0)
        close(file);
    if (!mapped && roll != MAP_FAILED)
        munmap(roll, all);
    return mapped ? (uint16_t *)(void *)roll : NULL;
}

/* No number anywhere. */
static void clear_roll(uint16_t *roll)
{
    memset(roll, 0xff, (size_t)WINDOW * 2);
    memset(roll + LAST, 0xff, (size_t)WINDOW * 2);
}

static void fill_window(uint16_t *window, uint64_t seed)
{
    static float values[WINDOW];
    for (int64_t i = 0; i < WINDOW; i++)
        values[i] = (float)draw(&seed) / 0x1p29f - 2;
    EXPECT_OK(rg_convert(window, RG_BF16, values, RG_F32, (size_t)WINDOW));
}

static rg_tensor *wrap(rg_device *device, void *data, int32_t rank, const int64_t dims[])
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_BF16, rank, dims);
    rg_tensor *tensor = NULL;
    EXPECT_OK(rg_tensor_wrap(device, &desc, data, NULL, NULL, &tensor));
    return tensor;
}

static void run_gradient(rig *r, const rg_kernel *kernel, rg_tensor *dy, rg_tensor *y,
                         rg_tensor *dx)
{
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, (rg_tensor *[]){ dy }, NULL,
                                 (rg_tensor *[]){ y }, NULL, (rg_tensor *[]){ dx }, 0));
    EXPECT_OK(rig_run(r));
}

/* ---- shapes ---- */

/* The offset of a view in elements, and its number of elements. */
static void expect_view(const rg_tensor *view, const uint16_t *data, int64_t offset, int64_t count)
{
    EXPECT(view != NULL && rg_tensor_data(view) == data + offset);
    EXPECT(count_of(view) == count);
}

static void test_views(const rolls *m)
{
    rg_tensor *flat = wrap(m->device, m->dy, 1, DIMS(ELEMENTS)), *view = NULL, *part = NULL;
    EXPECT_OK(rg_tensor_reshape(flat, 2, DIMS(ELEMENTS / ROW, ROW), &view));
    expect_view(view, m->dy, 0, ELEMENTS);
    EXPECT_OK(rg_tensor_slice(view, DIMS(BEYOND / ROW, 5), DIMS(7, 3), DIMS(1, 2), &part));
    expect_view(part, m->dy, BEYOND, 21);
    uint16_t values[21];
    EXPECT_OK(rg_tensor_read(part, values, sizeof values, RG_LAYOUT_SAME));
    for (int i = 0; i < 21; i++)
        EXPECT(values[i] == m->dy[(BEYOND + i / 3 * ROW + i % 3 * 2) % WINDOW]);
    rg_tensor_destroy(view);
    rg_tensor_destroy(part);

    /* a stride of more than 2^31 */
    const int64_t stride = ELEMENTS - 7;
    EXPECT_OK(rg_tensor_slice(flat, DIMS(0), DIMS(2), DIMS(stride), &view));
    rg_tensor_desc desc;
    EXPECT_OK(rg_tensor_get_desc(view, &desc));
    EXPECT(desc.strides[0] == stride && desc.dims[0] == 2);
    EXPECT_OK(rg_tensor_read(view, values, 4, RG_LAYOUT_SAME));
    EXPECT(values[0] == m->dy[0] && values[1] == m->dy[stride % WINDOW]);
    rg_tensor_destroy(view);
    EXPECT_OK(rg_tensor_reshape(flat, 3, DIMS(1, ELEMENTS, 1), &view));
    EXPECT_OK(rg_tensor_permute(view, (const int32_t[]){ 2, 0, 1 }, &part));
    expect_view(part, m->dy, 0, ELEMENTS);
    rg_tensor_destroy(view);
    rg_tensor_destroy(part);

    view = NULL;
    EXPECT_FAILS(rg_tensor_slice(flat, DIMS(BEYOND), DIMS(ELEMENTS - BEYOND + 1), NULL, &view),
                 RG_INVALID_ARGUMENT, "");
    EXPECT_FAILS(rg_tensor_reshape(flat, 2, DIMS(ELEMENTS / ROW + 1, ROW), &view),
                 RG_INVALID_ARGUMENT, "");
    EXPECT_FAILS(rg_tensor_reshape(flat, 1, DIMS(ELEMENTS - ((int64_t)1 << 32)), &view),
                 RG_INVALID_ARGUMENT, "");
    EXPECT(view == NULL);
    rg_tensor_destroy(flat);
}

/* ---- kernels: the result is that of one window ---- */

/* Runs `kernel` over whole rolls; every window of dx then holds what `small` gives for one. */
static void test_whole(rolls *m, const rg_kernel *kernel, int32_t rank, const int64_t dims[],
                       const int64_t small[])
{
    rg_tensor *dy = wrap(m->device, m->dy, rank, dims), *y = wrap(m->device, m->y, rank, dims);
    rg_tensor *dx = wrap(m->device, m->dx, rank, dims);
    rg_tensor *dy1 = wrap(m->device, m->dy, rank, small);
    rg_tensor *y1 = wrap(m->device, m->y, rank, small);
    rg_tensor *want = tensor_of(m->device, RG_BF16, rank, small);
    clear_roll(m->dx);
    run_gradient(&m->rig, kernel, dy, y, dx);
    run_gradient(&m->rig, kernel, dy1, y1, want);
    EXPECT(memcmp(m->dx, rg_tensor_data(want), bytes_of(want)) == 0);
    EXPECT(memcmp(m->dx + LAST, rg_tensor_data(want), bytes_of(want)) == 0);
    rg_tensor *const all[] = { dy, y, dx, dy1, y1, want };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rg_tensor_destroy(all[i]);
}

/* Runs `kernel` over a slice of each roll; it gives what the same elements give in dense tensors.
 */
static void test_slice(rolls *m, const rg_kernel *kernel, int32_t rank, const int64_t dims[],
                       const int64_t start[], const int64_t length[], const int64_t step[])
{
    uint16_t *const data[] = { m->dy, m->y, m->dx };
    rg_tensor *view[3], *dense[3];
    clear_roll(m->dx);
    for (int t = 0; t < 3; t++) {
        rg_tensor *roll = wrap(m->device, data[t], rank, dims);
        view[t] = NULL;
        EXPECT_OK(rg_tensor_slice(roll, start, length, step, &view[t]));
        dense[t] = tensor_of(m->device, RG_BF16, rank, length);
        char *elements = elements_of(view[t]);
        EXPECT_OK(rg_tensor_write(dense[t], elements, bytes_of(dense[t]), RG_LAYOUT_SAME));
        free(elements);
        rg_tensor_destroy(roll);
    }
    run_gradient(&m->rig, kernel, view[0], view[1], view[2]);
    run_gradient(&m->rig, kernel, dense[0], dense[1], dense[2]);
    EXPECT(same_bits(view[2], dense[2]));
    for (int t = 0; t < 3; t++) {
        rg_tensor_destroy(view[t]);
        rg_tensor_destroy(dense[t]);
    }
}

/* Three rows of THIRD: their beginnings are at different places of the window. The slices below
 * take no element of the window twice, so that results do not overwrite each other. */
#define THIRD (ELEMENTS / 3 - 1000)

static void test_neuron(rolls *m)
{
    rg_neuron_desc desc = rg_neuron_desc_default();
    desc.a = 0.25;
    desc.has_a = true;
    desc.from_y = true;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_neuron_create(m->device, &desc, &kernel));
    test_whole(m, kernel, 2, DIMS(WINDOWS, WINDOW), DIMS(1, WINDOW));
    test_slice(m, kernel, 2, DIMS(3, THIRD), DIMS(1, 3), DIMS(2, 1000), DIMS(1, 717001));
    rg_kernel_destroy(kernel);
}

static void test_softmax(rolls *m)
{
    const int64_t rows = ELEMENTS / ROW;
    rg_kernel *plain = softmax_of(m->device, RG_SOFTMAX_PLAIN, -1);
    rg_kernel *log = softmax_of(m->device, RG_SOFTMAX_LOG, 0);
    test_whole(m, plain, 2, DIMS(rows, ROW), DIMS(WINDOW / ROW, ROW));
    test_slice(m, plain, 2, DIMS(rows, ROW), DIMS(BEYOND / ROW, 1), DIMS(50, 1000), NULL);
    test_slice(m, plain, 2, DIMS(rows, ROW), DIMS(LAST / ROW + 9, 0), DIMS(7, ROW), NULL);
    test_slice(m, plain, 2, DIMS(3, THIRD), DIMS(0, 11), DIMS(3, 1000), DIMS(1, 717001));
    test_slice(m, log, 2, DIMS(3, THIRD), DIMS(0, THIRD - 600), DIMS(3, 500), NULL);
    test_slice(m, log, 2, DIMS(rows, ROW), DIMS(7, 3), DIMS(41, 500), DIMS(52501, 2));
    rg_kernel_destroy(plain);
    rg_kernel_destroy(log);
}

int main(void)
{
#if defined(RG_SANITIZED)
    return skip("too slow under a sanitizer");
#endif
    if (getenv("RG_EMULATOR") != NULL)
        return skip("too slow under an emulator");
    if (sizeof(void *) < 8)
        return skip("there is no room for 2^31 elements");
    rolls m = { .dy = map_roll(false), .y = map_roll(false), .dx = map_roll(true) };
    if (m.dy == NULL || m.y == NULL || m.dx == NULL)
        return skip("the system does not map one piece of memory so often");
    m.rig = rig_open(2);
    m.device = m.rig.device;
    fill_window(m.dy, 1);
    fill_window(m.y, 2);
    test_views(&m);
    test_neuron(&m);
    test_softmax(&m);
    rig_close(&m.rig);
    return rg_test_report();
}
