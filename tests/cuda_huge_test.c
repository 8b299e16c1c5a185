/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tensors of more than 2^31 elements on a GPU. Their inputs repeat a window, so every result must
 * repeat its own beginning, bit for bit; and that beginning is what the CPU gives. */
#include "cuda_rig.h"
#include "cuda_window.h"

/* Elements of 2 bytes, whole rows of 1024, and no power of two: an index that has lost its upper
 * bits meets another element. */
#define WINDOW   ((int64_t)33 << 15)
#define PAST_31  ((int64_t)1 << 31)
#define GIBIBYTE ((size_t)1 << 30)

/* A tensor whose elements, taken as `rows`, are looked at in the first WINDOW of each row. */
typedef struct form {
    rg_dtype dtype;
    int32_t rank;
    int64_t dims[3]; /* on the GPU */
    int64_t cut[3];  /* on the CPU: the same but for what lies past the window */
    int64_t rows;    /* of the GPU's */
    double tolerance;
} form;

static int64_t elements_in(const form *f)
{
    int64_t count = 1;
    for (int32_t d = 0; d < f->rank; d++)
        count *= f->dims[d];
    return count;
}

static rg_tensor *cut_of(rg_tensor *tensor, const form *f)
{
    static const int64_t start[3];
    rg_tensor *view = NULL;
    EXPECT_OK(rg_tensor_slice(tensor, start, f->cut, NULL, &view));
    return view;
}

/* Values in [-2, 2) that repeat, or no numbers at all. */
static rg_tensor *huge_tensor(rg_device *device, const form *f, uint64_t seed)
{
    rg_tensor *tensor = tensor_of(device, f->dtype, f->rank, f->dims), *first = NULL, *flat = NULL;
    const int64_t count = elements_in(f);
    if (seed == 0) {
        EXPECT_CUDA(cudaMemset(rg_tensor_data(tensor), 0xff, (size_t)count * 2));
        EXPECT_CUDA(cudaDeviceSynchronize());
        return tensor;
    }
    EXPECT_OK(rg_tensor_reshape(tensor, 1, &count, &flat));
    EXPECT_OK(rg_tensor_slice(flat, DIMS(0), DIMS(WINDOW), NULL, &first));
    fill(first, seed);
    EXPECT_CUDA(window_repeat(rg_tensor_data(tensor), WINDOW, count));
    rg_tensor_destroy(first);
    rg_tensor_destroy(flat);
    return tensor;
}

/* What the CPU is given: the beginning of a huge tensor. */
static rg_tensor *cut_to_cpu(rg_device *cpu, rg_tensor *tensor, const form *f)
{
    rg_tensor *view = cut_of(tensor, f), *copy = tensor_of(cpu, f->dtype, f->rank, f->cut);
    char *elements = elements_of(view);
    EXPECT_OK(rg_tensor_write(copy, elements, bytes_of(copy), RG_LAYOUT_SAME));
    free(elements);
    rg_tensor_destroy(view);
    return copy;
}

/* The beginning is right, and the rest repeats it. */
static void expect_result(rg_tensor *got, const rg_tensor *want, const form *f)
{
    rg_tensor *view = cut_of(got, f);
    EXPECT(are_close(view, want, f->tolerance));
    rg_tensor_destroy(view);
    const int64_t length = elements_in(f) / f->rows;
    unsigned long long all = 0;
    for (int64_t row = 0; row < f->rows; row++) {
        unsigned long long differences = 1;
        const uint16_t *data = rg_tensor_data(got);
        EXPECT_CUDA(window_differences(data + row * length, WINDOW, length, &differences));
        all += differences;
    }
    EXPECT(all == 0);
}

/* Forward and gradient on both devices. `reads_y`: what the gradient reads beside dy. */
static void run_both(rig *gpu, rig *cpu, const rg_kernel *kernel, bool reads_y, const form *f)
{
    rg_kernel *reference = NULL;
    EXPECT_OK(rg_kernel_copy(kernel, cpu->device, &reference));
    rg_tensor *x = huge_tensor(gpu->device, f, 1), *y = huge_tensor(gpu->device, f, 0);
    rg_tensor *dy = huge_tensor(gpu->device, f, 2), *dx = huge_tensor(gpu->device, f, 0);
    rg_tensor *x1 = cut_to_cpu(cpu->device, x, f), *dy1 = cut_to_cpu(cpu->device, dy, f);
    rg_tensor *y1 = NULL, *dx1 = NULL;
    EXPECT_OK(rg_kernel_forward(kernel, gpu->commands, &x, &y, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, gpu->commands, &dy, reads_y ? NULL : &x,
                                 reads_y ? &y : NULL, NULL, &dx, 0));
    EXPECT_OK(rig_run(gpu));
    EXPECT_OK(rg_kernel_forward_alloc(reference, cpu->commands, 1, &x1, false, &y1, NULL));
    EXPECT_OK(rig_run(cpu));
    expect_result(y, y1, f);
    rg_tensor_destroy(y1);
    y1 = cut_to_cpu(cpu->device, y, f); /* the gradient is compared for one and the same y */
    EXPECT_OK(rg_kernel_gradient_alloc(reference, cpu->commands, 1, &dy1, reads_y ? NULL : &x1, &y1,
                                       NULL, 1, false, &dx1));
    EXPECT_OK(rig_run(cpu));
    expect_result(dx, dx1, f);
    rg_tensor *const all[] = { x, y, dy, dx, x1, dy1, y1, dx1 };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rg_tensor_destroy(all[i]);
    rg_kernel_destroy(reference);
}

static void test_rows(rig *gpu, rig *cpu)
{
    enum { ROW = 1024 };
    const form f = { RG_BF16, 2, { PAST_31 / ROW + 3, ROW }, { WINDOW / ROW, ROW }, 1, 1e-2 };
    rg_kernel *plain = softmax_of(gpu->device, RG_SOFTMAX_PLAIN, -1);
    rg_kernel *log = softmax_of(gpu->device, RG_SOFTMAX_LOG, -1);
    run_both(gpu, cpu, plain, true, &f);
    run_both(gpu, cpu, log, true, &f);
    rg_kernel_destroy(plain);
    rg_kernel_destroy(log);
}

/* Five elements to a group, and they lie far apart. */
static void test_columns(rig *gpu, rig *cpu)
{
    const form f = { RG_F16, 3, { 3, 5, PAST_31 / 12 }, { 3, 5, WINDOW }, 15, 2e-3 };
    rg_kernel *kernel = softmax_of(gpu->device, RG_SOFTMAX_PLAIN, 1);
    run_both(gpu, cpu, kernel, true, &f);
    rg_kernel_destroy(kernel);
}

static void test_neuron(rig *gpu, rig *cpu)
{
    const form f = { RG_BF16, 1, { PAST_31 + 7 }, { WINDOW }, 1, 1e-2 };
    rg_neuron_desc desc = rg_neuron_desc_default();
    desc.a = 0.25;
    desc.has_a = true;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_neuron_create(gpu->device, &desc, &kernel));
    run_both(gpu, cpu, kernel, false, &f);
    rg_kernel_destroy(kernel);
}

/* Copies whose strides and offsets are past 2^31, at once and recorded. */
static void test_copies(rig *gpu)
{
    const form f = { RG_BF16, 1, { PAST_31 + 77 }, { WINDOW }, 1, 0 };
    const int64_t count = f.dims[0], stride = count - 9;
    rg_tensor *tensor = huge_tensor(gpu->device, &f, 3), *view = NULL, *end = NULL;
    uint16_t *window = calloc((size_t)WINDOW, 2), got[6] = { 0 }, back[6] = { 0 };
    rg_tensor *first = cut_of(tensor, &f);
    EXPECT_OK(rg_tensor_read(first, window, (size_t)WINDOW * 2, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_slice(tensor, DIMS(4), DIMS(2), DIMS(stride), &view));
    EXPECT_OK(rg_tensor_read(view, got, 4, RG_LAYOUT_SAME));
    EXPECT(got[0] == window[4] && got[1] == window[(4 + stride) % WINDOW]);
    const uint16_t in[6] = { 11, 12, 13, 14, 15, 16 };
    EXPECT_OK(rg_commands_write(gpu->commands, view, in, 4, RG_LAYOUT_SAME));
    EXPECT_OK(rg_commands_read(gpu->commands, view, back, 4, RG_LAYOUT_SAME));
    EXPECT_OK(rig_run(gpu));
    EXPECT(memcmp(in, back, 4) == 0);
    EXPECT_OK(rg_tensor_slice(tensor, DIMS(stride + 3), DIMS(3), NULL, &end));
    EXPECT_OK(rg_tensor_read(end, got, 6, RG_LAYOUT_SAME));
    EXPECT(got[0] == window[(stride + 3) % WINDOW] && got[1] == 12);
    EXPECT(got[2] == window[(stride + 5) % WINDOW]);
    rg_tensor *const all[] = { tensor, view, first, end };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rg_tensor_destroy(all[i]);
    free(window);
}

int main(void)
{
    if (!has_gpu())
        return skip(rg_error_text());
    size_t free_bytes = 0, all = 0;
    EXPECT_CUDA(cudaMemGetInfo(&free_bytes, &all));
    if (free_bytes < 32 * GIBIBYTE)
        return skip("the GPU has less than 32 GiB of free memory");
    rig gpu = rig_open_cuda(), cpu = rig_open(0);
    test_copies(&gpu);
    test_neuron(&gpu, &cpu);
    test_rows(&gpu, &cpu);
    test_columns(&gpu, &cpu);
    rig_close(&gpu);
    rig_close(&cpu);
    return rg_test_report();
}
