/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Matrices as in MPS: origins, row and column ranges, batch ranges, row strides, the four matrix
 * kernels. On any device, but for memory of the host that is wrapped. docs/mps.md names these
 * tests. */
#include "any_device.h"
#include "mps.h"

/* ---- what MPS sets on a kernel is a view here ---- */

/* MPSMatrixDescriptor: sizes in elements, strides in bytes. */
typedef struct matrix_desc {
    int64_t matrices, rows, columns, row_bytes, matrix_bytes;
    rg_dtype dtype;
} matrix_desc;

static rg_tensor_desc desc_of(const matrix_desc *m)
{
    const int64_t element = (int64_t)rg_dtype_size(m->dtype);
    rg_tensor_desc desc = rg_tensor_desc_dense(m->dtype, 3, DIMS(m->matrices, m->rows, m->columns));
    desc.strides[0] = m->matrix_bytes / element;
    desc.strides[1] = m->row_bytes / element;
    return desc;
}

/* MPSMatrixUnaryKernel and MPSMatrixBinaryKernel: where an operand begins, and how much of it is
 * used at most. In MPS x of an origin counts rows and y columns. */
typedef struct range {
    int64_t start, size;
} range;

enum { ALL = INT32_MAX }; /* as NSUIntegerMax: as many as there are */

static int64_t clipped(int64_t wanted, int64_t size, int64_t start)
{
    return wanted < size - start ? wanted : size - start;
}

static rg_tensor *active(rg_tensor *matrix, range batch, range rows, range columns)
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(matrix, &desc));
    const int64_t start[] = { batch.start, rows.start, columns.start };
    const int64_t length[] = { clipped(batch.size, desc.dims[0], batch.start),
                               clipped(rows.size, desc.dims[1], rows.start),
                               clipped(columns.size, desc.dims[2], columns.start) };
    rg_tensor *view = NULL;
    EXPECT_OK(rg_tensor_slice(matrix, start, length, NULL, &view));
    return view;
}

static void take_row(const rg_tensor *matrix, int64_t k, int64_t row, double values[])
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(matrix, &desc));
    for (int64_t i = 0; i < desc.dims[2]; i++)
        values[i] = element_at(matrix, DIMS(k, row, i));
}

/* ---- the four kernels ---- */

static void expect_rows(const rg_tensor *x, const rg_tensor *y, const rg_tensor *dy,
                        const rg_tensor *dx, bool log_kind, double tolerance)
{
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(x, &desc));
    double in[64], got[64], want[64], slope[64];
    for (int64_t k = 0; k < desc.dims[0]; k++) {
        for (int64_t row = 0; row < desc.dims[1]; row++) {
            take_row(x, k, row, in);
            take_row(y, k, row, got);
            forward_of(in, want, (int)desc.dims[2], log_kind);
            for (int64_t i = 0; i < desc.dims[2]; i++)
                EXPECT(is_near(got[i], want[i], tolerance * (1 + fabs(want[i]))));
            take_row(dy, k, row, slope); /* the gradient reads the result of forward, as stored */
            gradient_of(slope, got, want, (int)desc.dims[2], log_kind);
            take_row(dx, k, row, got);
            for (int64_t i = 0; i < desc.dims[2]; i++)
                EXPECT(is_near(got[i], want[i], tolerance * 4));
        }
    }
}

/* MPSMatrixSoftMax, MPSMatrixLogSoftMax and their gradients reduce along the columns of each row,
 * in f32 and f16, with operands of one type. */
static void test_kernels(rig *r)
{
    static const struct {
        rg_dtype dtype;
        double tolerance;
    } types[] = { { RG_F32, 1e-5 }, { RG_F16, 2e-3 }, { RG_F64, 1e-12 } };
    for (int t = 0; t < 3; t++) {
        for (int log_kind = 0; log_kind < 2; log_kind++) {
            const rg_dtype dtype = types[t].dtype;
            rg_kernel *kernel =
                softmax_of(r->device, log_kind ? RG_SOFTMAX_LOG : RG_SOFTMAX_PLAIN, -1);
            rg_tensor *x = filled(r->device, dtype, 3, DIMS(2, 5, 33), 1);
            rg_tensor *dy = filled(r->device, dtype, 3, DIMS(2, 5, 33), 2);
            rg_tensor *y = tensor_of(r->device, dtype, 3, DIMS(2, 5, 33));
            rg_tensor *dx = tensor_of(r->device, dtype, 3, DIMS(2, 5, 33));
            EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, NULL));
            EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &dy, NULL, &y, NULL, &dx, 0));
            EXPECT_OK(rig_run(r));
            expect_rows(x, y, dy, dx, log_kind == 1, types[t].tolerance);
            rg_tensor *other = tensor_of(r->device, RG_BF16, 3, DIMS(2, 5, 33));
            EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, &x, &other, NULL),
                         RG_INVALID_ARGUMENT, "bf16");
            rg_tensor_destroy(other);
            rg_tensor_destroy(x);
            rg_tensor_destroy(y);
            rg_tensor_destroy(dy);
            rg_tensor_destroy(dx);
            rg_kernel_destroy(kernel);
        }
    }
}

/* ---- origins, sourceRows and sourceColumns, batchStart and batchSize, rowBytes ---- */

enum { MATRICES = 4, ROWS = 7, COLUMNS = 9, PITCH = 12, BYTES = MATRICES * ROWS * PITCH * 4 };

/* A stack with padded rows in a larger tensor, *all; gaps are filled, too. */
static rg_tensor *padded(rg_device *device, uint64_t seed, rg_tensor **all)
{
    static char memory[BYTES];
    rg_tensor *tensor = NULL;
    memset(memory, 0x55, BYTES);
    *all = tensor_of(device, RG_F32, 3, DIMS(MATRICES, ROWS, PITCH));
    EXPECT_OK(rg_tensor_write(*all, memory, BYTES, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_slice(*all, DIMS(0, 0, 0), DIMS(MATRICES, ROWS, COLUMNS), NULL, &tensor));
    fill(tensor, seed);
    return tensor;
}

/* Each operand has its own origin; matrix k of the batch is batchStart + k in every operand.
 * Nothing is written outside of the active region of the result. */
static void test_origins(rig *r)
{
    rg_tensor *wide[4];
    rg_tensor *x = padded(r->device, 1, &wide[0]), *y = padded(r->device, 2, &wide[1]);
    rg_tensor *dy = padded(r->device, 3, &wide[2]), *dx = padded(r->device, 4, &wide[3]);
    char *before = elements_of(wide[3]);
    const range batch = { 1, 2 };
    rg_tensor *ax = active(x, batch, (range){ 2, 3 }, (range){ 4, 5 });
    rg_tensor *ay = active(y, batch, (range){ 0, 3 }, (range){ 1, 5 });
    rg_tensor *ady = active(dy, batch, (range){ 4, 3 }, (range){ 0, 5 });
    rg_tensor *adx = active(dx, batch, (range){ 1, 3 }, (range){ 3, 5 });
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &ax, &ay, NULL));
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &ady, NULL, &ay, NULL, &adx, 0));
    EXPECT_OK(rig_run(r));
    expect_rows(ax, ay, ady, adx, false, 1e-6);
    char *after = elements_of(wide[3]);
    int changed = 0;
    for (int64_t i = 0; i < BYTES / 4; i++) {
        const int64_t k = i / (ROWS * PITCH), row = i / PITCH % ROWS, column = i % PITCH;
        const bool inside = k >= 1 && k < 3 && row >= 1 && row < 4 && column >= 3 && column < 8;
        const bool same = memcmp(after + 4 * i, before + 4 * i, 4) == 0;
        EXPECT(same || inside);
        changed += !same;
    }
    EXPECT(changed == 2 * 3 * 5);
    rg_tensor *const all[] = { ax, ay, ady, adx, x, y, dy, dx, wide[0], wide[1], wide[2], wide[3] };
    for (int i = 0; i < 12; i++)
        rg_tensor_destroy(all[i]);
    free(before);
    free(after);
    rg_kernel_destroy(kernel);
}

/* Sizes that are left alone mean as many as there are behind the origin; where operands offer
 * different sizes the least of them counts. */
static void test_clipped_sizes(rig *r)
{
    rg_tensor *dy = filled(r->device, RG_F32, 3, DIMS(3, 6, 8), 1);
    rg_tensor *y = filled(r->device, RG_F32, 3, DIMS(3, 5, 9), 2);
    rg_tensor *dx = filled(r->device, RG_F32, 3, DIMS(3, 6, 8), 3);
    const range all = { 0, ALL };
    rg_tensor *whole = active(dy, all, (range){ 2, ALL }, (range){ 3, ALL });
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(whole, &desc));
    EXPECT(desc.dims[0] == 3 && desc.dims[1] == 4 && desc.dims[2] == 5);
    const int64_t rows = clipped(clipped(ALL, 6, 2), 5, 0),
                  columns = clipped(clipped(ALL, 8, 3), 9, 0);
    EXPECT(rows == 4 && columns == 5);
    rg_tensor *ay = active(y, all, (range){ 0, rows }, (range){ 0, columns });
    rg_tensor *adx = active(dx, all, (range){ 0, rows }, (range){ 0, columns });
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    EXPECT_OK(rg_kernel_gradient(kernel, r->commands, &whole, NULL, &ay, NULL, &adx, 0));
    EXPECT_FAILS(rg_kernel_gradient(kernel, r->commands, &whole, NULL, &y, NULL, &adx, 0),
                 RG_INVALID_ARGUMENT, "y is"); /* nothing is clipped silently */
    rg_tensor *none = NULL;                    /* an origin outside of the matrix */
    EXPECT_FAILS(rg_tensor_slice(dy, DIMS(0, 7, 0), DIMS(1, 1, 1), NULL, &none),
                 RG_INVALID_ARGUMENT, "dimension 1");
    EXPECT_OK(rig_run(r));
    rg_tensor *const made[] = { whole, ay, adx, dy, y, dx };
    for (int i = 0; i < 6; i++)
        rg_tensor_destroy(made[i]);
    rg_kernel_destroy(kernel);
}

/* initWithBuffer:offset:descriptor: element (i, j) of matrix k stands at offset + k matrixBytes +
 * i rowBytes + j elementSize. The last row need not be padded: the memory ends with its elements.
 */
static void test_buffers(rig *r)
{
    enum { OFFSET = 24 };
    const matrix_desc m = { 2, 3, 5, 6 * 2, 40, RG_F16 };
    const size_t bytes = (size_t)(OFFSET + m.matrix_bytes + 2 * m.row_bytes + 5 * 2);
    char *buffer = malloc(bytes); /* to the byte, for the address sanitizer */
    memset(buffer, 0, bytes);
    const rg_tensor_desc desc = desc_of(&m);
    rg_tensor *x = NULL, *bad = NULL;
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, buffer + OFFSET, NULL, NULL, &x));
    fill(x, 1);
    for (int64_t k = 0; k < 2; k++)
        for (int64_t i = 0; i < 3; i++)
            for (int64_t j = 0; j < 5; j++) {
                double value = 0;
                const char *at = buffer + OFFSET + k * 40 + i * 12 + j * 2;
                EXPECT_OK(rg_convert(&value, RG_F64, at, RG_F16, 1));
                EXPECT(value == element_at(x, DIMS(k, i, j)));
            }
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &x, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT(rg_tensor_bytes(x) == 0 && rg_tensor_data(x) == buffer + OFFSET);
    EXPECT(rg_tensor_device(x) == r->device);
    rg_tensor_desc wrong = desc; /* rowBytes less than a row: rows that overlap cannot be written */
    wrong.strides[1] = 3;
    EXPECT_OK(rg_tensor_wrap(r->device, &wrong, buffer, NULL, NULL, &bad));
    EXPECT_FAILS(rg_kernel_forward(kernel, r->commands, &bad, &bad, NULL), RG_INVALID_ARGUMENT,
                 "overlaps itself");
    rg_tensor_destroy(bad);
    rg_tensor_destroy(x);
    rg_kernel_destroy(kernel);
    free(buffer);
}

/* MPSVector: length, vectors, vectorBytes. A vector is a tensor of rank 1, several of rank 2. */
static void test_vectors(rig *r)
{
    _Alignas(16) float memory[3 * 8];
    rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(3, 5));
    desc.strides[0] = 8; /* vectorBytes / 4 */
    rg_tensor *vectors = NULL, *second = NULL, *alone = NULL;
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, memory, NULL, NULL, &vectors));
    fill(vectors, 1);
    EXPECT_OK(rg_tensor_slice(vectors, DIMS(1, 0), DIMS(1, 5), NULL, &second));
    EXPECT_OK(rg_tensor_reshape(second, 1, DIMS(5), &alone));
    EXPECT(rg_tensor_data(alone) == memory + 8);
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, 0);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &alone, &alone, NULL));
    EXPECT_OK(rig_run(r));
    double sum = 0;
    for (int i = 0; i < 5; i++)
        sum += (double)memory[8 + i];
    EXPECT(is_near(sum, 1, 1e-6));
    rg_tensor_destroy(alone);
    rg_tensor_destroy(second);
    rg_tensor_destroy(vectors);
    rg_kernel_destroy(kernel);
}

/* resourceSize: bytes that the object owns; none where memory is the caller's, or a parent's.
 * synchronizeOnCommandBuffer: is not needed: after wait, the elements are there to be read. */
static void test_resources(rig *r)
{
    rg_tensor *x = filled(r->device, RG_F32, 2, DIMS(4, 6), 1), *part = NULL, *wrapped = NULL;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, DIMS(4, 6));
    EXPECT_OK(rg_tensor_slice(x, DIMS(1, 0), DIMS(2, 6), NULL, &part));
    float memory[24] = { 0 }, read[24] = { 0 };
    EXPECT_OK(rg_tensor_wrap(r->device, &desc, memory, NULL, NULL, &wrapped));
    EXPECT(rg_tensor_bytes(x) == 96 && rg_tensor_bytes(part) == 0 && rg_tensor_bytes(wrapped) == 0);
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_PLAIN, -1);
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &wrapped, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(wrapped, read, sizeof read, RG_LAYOUT_SAME));
    EXPECT(memcmp(read, memory, sizeof read) == 0 && memory[0] > 0);
    rg_tensor_destroy(x);
    rg_tensor_destroy(part);
    rg_tensor_destroy(wrapped);
    rg_kernel_destroy(kernel);
}

/* ---- the gradient of matrix log-softmax ---- */

/* Apple's header prints  dX_ij = g_ij - exp(Y_ij sum_k g_ik).  The sum stands outside of exp: that
 * is what finite differences of the loss sum g Y say, and what is computed here. */
static void test_log_gradient_erratum(rig *r)
{
    enum { COUNT = 6 };
    const double x[COUNT] = { 0.3, -1.2, 0.8, 0.1, -0.4, 1.1 };
    const double g[COUNT] = { 0.7, -0.3, 0.5, 1.2, -0.9, 0.4 }, step = 1e-5;
    double y[COUNT], dx[COUNT] = { 0 }, sum = 0, furthest = 0;
    forward_of(x, y, COUNT, true);
    rg_tensor *dy = tensor_of(r->device, RG_F64, 2, DIMS(1, COUNT)), *result = NULL;
    rg_tensor *out = tensor_of(r->device, RG_F64, 2, DIMS(1, COUNT));
    EXPECT_OK(rg_tensor_write(dy, g, sizeof g, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(out, y, sizeof y, RG_LAYOUT_SAME));
    rg_kernel *kernel = softmax_of(r->device, RG_SOFTMAX_LOG, -1);
    EXPECT_OK(
        rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, NULL, &out, NULL, 1, false, &result));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(result, dx, sizeof dx, RG_LAYOUT_SAME));
    for (int i = 0; i < COUNT; i++)
        sum += g[i];
    for (int i = 0; i < COUNT; i++) {
        double moved[COUNT], above[COUNT], below[COUNT], slope = 0;
        memcpy(moved, x, sizeof moved);
        moved[i] = x[i] + step;
        forward_of(moved, above, COUNT, true);
        moved[i] = x[i] - step;
        forward_of(moved, below, COUNT, true);
        for (int j = 0; j < COUNT; j++)
            slope += g[j] * (above[j] - below[j]) / (2 * step);
        EXPECT(is_near(dx[i], slope, 1e-8));
        furthest = fmax(furthest, fabs(g[i] - exp(y[i] * sum) - slope));
    }
    EXPECT(furthest > 0.1); /* the printed formula is no gradient */
    rg_tensor_destroy(dy);
    rg_tensor_destroy(out);
    rg_tensor_destroy(result);
    rg_kernel_destroy(kernel);
}

int main(void)
{
    rig r = rig_open(2);
    test_buffers(&r);
    test_vectors(&r);
    test_resources(&r);
    rig_close(&r);
    RUN_ON_DEVICES(test_kernels, test_origins, test_clipped_sizes, test_log_gradient_erratum);
    return rg_test_report();
}
