/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The kernels of an op may stand in several files, each with a table of its own. No two of them
 * list the same kernel: which one ran would follow from the order of file names. */
#include "ops/matmul/product_record.h"
#include "ops/ops.h"
#include "test.h"

/* How many of the tables have kernel `id` for `dtype`. */
static int cpu_owners(const rg_cpu_table *const *tables, int32_t id, int dtype)
{
    int owners = 0;
    for (; *tables != NULL; tables++)
        owners += id < (*tables)->count && (*tables)->rows[id].function[dtype] != NULL;
    return owners;
}

static int cuda_owners(const rg_cuda_table *const *tables, int32_t id, int dtype)
{
    int owners = 0;
    for (; *tables != NULL; tables++) {
        for (int32_t i = 0; i < (*tables)->count; i++) {
            const rg_cuda_row *row = &(*tables)->rows[i];
            owners += row->id == id && row->function[dtype] != NULL;
        }
    }
    return owners;
}

/* Whether all tables of a list have as many rows, and no kernel has two owners. */
static bool cpu_list_is_good(const rg_cpu_table *const *tables)
{
    const int32_t count = *tables != NULL ? (*tables)->count : 0;
    for (const rg_cpu_table *const *table = tables; *table != NULL; table++) {
        if ((*table)->count != count)
            return false;
    }
    for (int32_t id = 0; id < count; id++) {
        for (int dtype = 0; dtype < 4; dtype++) {
            if (cpu_owners(tables, id, dtype) > 1)
                return false;
        }
    }
    return true;
}

/* Whether no kernel has two owners. */
static bool cuda_list_is_good(const rg_cuda_table *const *tables)
{
    for (const rg_cuda_table *const *table = tables; *table != NULL; table++) {
        for (int32_t i = 0; i < (*table)->count; i++) {
            for (int dtype = 0; dtype < 4; dtype++) {
                if (cuda_owners(tables, (*table)->rows[i].id, dtype) > 1)
                    return false;
            }
        }
    }
    return true;
}

static void expect_good(const rg_kernel_table *kernels, const char *name)
{
    for (int r = 0; r < 2 * RG_MAX_ISAS; r++) {
        const rg_cpu_table *const *tables = kernels->cpu[r % 2][r / 2];
        if (tables != NULL && !cpu_list_is_good(tables))
            printf("%s: see its *_cpu.c\n", name);
        EXPECT(tables == NULL || cpu_list_is_good(tables));
    }
    if (kernels->cuda != NULL && !cuda_list_is_good(kernels->cuda))
        printf("%s: see its *_cuda.cu\n", name);
    EXPECT(kernels->cuda == NULL || cuda_list_is_good(kernels->cuda));
}

static void test_ops(void)
{
    for (int i = 0; rg_ops[i] != NULL; i++)
        expect_good(rg_ops[i]->kernels, rg_ops[i]->name);
}

static void nothing(const void *args, int64_t begin, int64_t end)
{
    (void)args, (void)begin, (void)end;
}

static void nothing_cuda(const void *args, const rg_cuda_target *target)
{
    (void)args, (void)target;
}

/* The test itself sees a kernel that is listed twice, and tables of different length. */
static void test_test(void)
{
    static const rg_cpu_row first[2] = { [0] = { { [RG_F32] = nothing } } };
    static const rg_cpu_row second[2] = { [1] = { { [RG_F32] = nothing } } };
    static const rg_cpu_table a = { first, 2 }, b = { second, 2 }, shorter = { first, 1 };
    EXPECT(cpu_list_is_good((const rg_cpu_table *const[]){ &a, &b, NULL }));
    EXPECT(!cpu_list_is_good((const rg_cpu_table *const[]){ &a, &b, &a, NULL }));
    EXPECT(!cpu_list_is_good((const rg_cpu_table *const[]){ &b, &shorter, NULL }));
    static const rg_cuda_row row[2] = { { 4, { [RG_F16] = nothing_cuda } },
                                        { 4, { [RG_F32] = nothing_cuda } } };
    static const rg_cuda_table c = { row, 2 };
    EXPECT(cuda_list_is_good((const rg_cuda_table *const[]){ &c, NULL }));
    EXPECT(!cuda_list_is_good((const rg_cuda_table *const[]){ &c, &c, NULL }));
}

int main(void)
{
    test_ops();
    test_test();
    return rg_test_report();
}
