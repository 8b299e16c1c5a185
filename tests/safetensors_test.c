/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Safetensors: what is written is read again, byte for byte, from any view.
 * With "copy IN OUT" it copies a file, for a test beside other readers and writers. */
#include "tests/made_safetensors.h"
#include "tests/scratch_folder.h"

#include <retrograde/safetensors.h>

static rg_device *cpu;

static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16, RG_U8, RG_I32, RG_I64 };
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

/* ---- round trips ---- */

/* Elements that convert exactly to every dtype. */
static void fill_elements(void *data, rg_dtype dtype, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float value = (float)(i * 7 % 113);
        EXPECT_OK(rg_convert((char *)data + i * rg_dtype_size(dtype), dtype, &value, RG_F32, 1));
    }
}

/* Every dtype at every rank, in one file: from tensors and from host memory. */
static void test_round_trips(void)
{
    static const int64_t dims[] = { 2, 3, 1, 2, 1, 3, 2, 1 };
    enum { RANKS = RG_MAX_RANK + 1, COUNT = DTYPES * RANKS * 2 };
    static char names[COUNT][32];
    static unsigned char data[COUNT][72 * 8];
    static rg_safetensors_entry entries[COUNT];
    for (int i = 0; i < COUNT; i++) {
        const rg_dtype dtype = dtypes[i % DTYPES];
        rg_safetensors_entry *e = &entries[i];
        e->desc = rg_tensor_desc_dense(dtype, i / DTYPES % RANKS, dims);
        size_t count = 1;
        for (int d = 0; d < e->desc.rank; d++)
            count *= (size_t)dims[d];
        fill_elements(data[i], dtype, count);
        snprintf(names[i], sizeof names[i], "%s.%d.%s", rg_dtype_name(dtype), (int)e->desc.rank,
                 i % 2 ? "tensor" : "host");
        snprintf(names[i] + strlen(names[i]), 8, ".%d", i);
        e->name = names[i];
        e->data = data[i];
        rg_tensor *tensor = NULL;
        if (i % 2) {
            EXPECT_OK(rg_tensor_create(cpu, &e->desc, &tensor));
            EXPECT_OK(
                rg_tensor_write(tensor, data[i], count * rg_dtype_size(dtype), RG_LAYOUT_SAME));
        }
        e->tensor = tensor;
    }
    const char *path = scratch("x.safetensors");
    rg_safetensors *file = NULL;
    EXPECT_OK(rg_safetensors_write(path, entries, COUNT, NULL, 0));
    EXPECT_OK(rg_safetensors_open(path, &file));
    EXPECT(rg_safetensors_count(file) == COUNT && rg_safetensors_metadata_count(file) == 0);
    for (size_t i = 0; i < COUNT; i++) {
        const rg_safetensors_entry *e = &entries[i];
        const size_t bytes = rg_safetensors_bytes(file, i);
        unsigned char got[72 * 8];
        rg_tensor_desc desc;
        rg_tensor *loaded = NULL;
        size_t found = 0;
        EXPECT(strcmp(rg_safetensors_name(file, i), e->name) == 0);
        EXPECT(rg_safetensors_find(file, e->name, &found) && found == i);
        EXPECT_OK(rg_safetensors_desc(file, i, &desc));
        EXPECT(memcmp(&desc, &e->desc, sizeof desc) == 0);
        EXPECT_OK(rg_safetensors_read(file, i, got, bytes));
        EXPECT(memcmp(got, e->data, bytes) == 0);
        EXPECT_OK(rg_safetensors_load(file, i, cpu, &loaded));
        EXPECT_OK(rg_tensor_read(loaded, got, bytes, RG_LAYOUT_SAME));
        EXPECT(memcmp(got, e->data, bytes) == 0);
        rg_tensor_destroy(loaded);
        rg_tensor_destroy((rg_tensor *)(uintptr_t)e->tensor);
    }
    rg_safetensors_close(file);
    scratch_remove("x.safetensors");
}

/* The file byte by byte: escapes, order of names, alignment by order of data. */
static void test_written_bytes(void)
{
    const uint16_t half[3] = { 0x3c00, 0x4000, 0x4200 };
    const double wide[1] = { 2.5 };
    const int64_t three[] = { 3 };
    const rg_safetensors_entry entries[] = {
        { "h\"\\\n\xc3\xa9", NULL, half, rg_tensor_desc_dense(RG_F16, 1, three) },
        { "", NULL, wide, rg_tensor_desc_dense(RG_F64, 0, NULL) },
    };
    const rg_safetensors_text texts[] = { { "step", "12" }, { "\x7f", "\t" } };
    static const char header[] =
        "{\"__metadata__\":{\"step\":\"12\",\"\\u007f\":\"\\u0009\"},"
        "\"h\\\"\\\\\\u000a\xc3\xa9\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[8,14]},"
        "\"\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}";
    EXPECT_OK(rg_safetensors_write(scratch("x.safetensors"), entries, 2, texts, 2));
    made_file wanted = make_file(header, 14);
    memcpy(wanted.bytes + 8 + wanted.header, wide, 8);
    memcpy(wanted.bytes + 8 + wanted.header + 8, half, 6);
    char got[512];
    EXPECT(scratch_read("x.safetensors", got, sizeof got) == wanted.size);
    EXPECT(memcmp(got, wanted.bytes, wanted.size) == 0 && wanted.header % 8 == 0);
    rg_safetensors *file = NULL;
    EXPECT_OK(rg_safetensors_open(scratch("x.safetensors"), &file));
    EXPECT(strcmp(rg_safetensors_name(file, 0), entries[0].name) == 0);
    EXPECT(rg_safetensors_metadata_count(file) == 2);
    for (size_t i = 0; i < 2; i++) {
        EXPECT(strcmp(rg_safetensors_metadata_key(file, i), texts[i].key) == 0);
        EXPECT(strcmp(rg_safetensors_metadata(file, texts[i].key), texts[i].value) == 0);
    }
    EXPECT(rg_safetensors_metadata(file, "none") == NULL);
    EXPECT(rg_safetensors_metadata_key(file, 2) == NULL);
    rg_safetensors_close(file);
    scratch_remove("x.safetensors");

    EXPECT_OK(rg_safetensors_write(scratch("x.safetensors"), NULL, 0, NULL, 0)); /* of nothing */
    EXPECT(scratch_read("x.safetensors", got, sizeof got) == 16);
    EXPECT(memcmp(got, "\x08\0\0\0\0\0\0\0{}      ", 16) == 0);
    EXPECT_OK(rg_safetensors_open(scratch("x.safetensors"), &file));
    EXPECT(rg_safetensors_count(file) == 0 && !rg_safetensors_find(file, "", NULL));
    rg_safetensors_close(file);
    scratch_remove("x.safetensors");
}

/* Views in all orders, of sizes that take several pieces, and into views. */
static void test_strided(void)
{
    static const int64_t shapes[][3] = {
        { 3, 5, 7 }, { 1, 1300, 1100 }, { 700, 3, 800 }, { 2, 1, 1200000 }, { 0, 5, 7 }
    };
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const int64_t *dims = shapes[s];
        const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 3, dims);
        const size_t bytes = (size_t)(dims[0] * dims[1] * dims[2]) * 4;
        char *data = malloc(bytes + 1), *transposed = malloc(bytes + 1), *got = malloc(bytes + 1);
        for (size_t i = 0; i < bytes; i++)
            data[i] = (char)(i * 13 / 7);
        rg_tensor *tensor = NULL, *view = NULL, *other = NULL, *into = NULL;
        static const int32_t order[] = { 2, 0, 1 };
        EXPECT_OK(rg_tensor_create(cpu, &desc, &tensor));
        EXPECT_OK(rg_tensor_create(cpu, &desc, &other));
        EXPECT_OK(rg_tensor_write(tensor, data, bytes, RG_LAYOUT_SAME));
        EXPECT_OK(rg_tensor_permute(tensor, order, &view));
        EXPECT_OK(rg_tensor_permute(other, order, &into));
        EXPECT_OK(rg_tensor_read(view, transposed, bytes, RG_LAYOUT_SAME));
        rg_safetensors_entry entries[3] = { { "view", view, NULL, { 0 } },
                                            { "host", NULL, data, { 0 } },
                                            { "tensor", tensor, NULL, { 0 } } };
        EXPECT_OK(rg_tensor_get_desc(view, &entries[1].desc)); /* the same view of host memory */
        EXPECT_OK(rg_safetensors_write(scratch("x.safetensors"), entries, 3, NULL, 0));
        rg_safetensors *file = NULL;
        EXPECT_OK(rg_safetensors_open(scratch("x.safetensors"), &file));
        for (size_t i = 0; i < 2; i++) {
            EXPECT_OK(rg_safetensors_read(file, i, got, bytes));
            EXPECT(memcmp(got, transposed, bytes) == 0);
            memset(got, 0, bytes);
            EXPECT_OK(rg_tensor_write(other, got, bytes, RG_LAYOUT_SAME));
            EXPECT_OK(rg_safetensors_read_tensor(file, i, into));
            EXPECT_OK(rg_tensor_read(other, got, bytes, RG_LAYOUT_SAME));
            EXPECT(memcmp(got, data, bytes) == 0);
        }
        EXPECT_OK(rg_safetensors_read(file, 2, got, bytes));
        EXPECT(memcmp(got, data, bytes) == 0);
        rg_safetensors_close(file);
        rg_tensor_destroy(into);
        rg_tensor_destroy(view);
        rg_tensor_destroy(other);
        rg_tensor_destroy(tensor);
        free(data);
        free(transposed);
        free(got);
    }
    scratch_remove("x.safetensors");
}

static void test_expanded(void)
{
    const int64_t two[] = { 2 }, more[] = { 3, 2 };
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_I32, 1, two);
    const int32_t data[2] = { 5, 6 };
    int32_t got[6];
    rg_tensor *tensor = NULL, *view = NULL;
    EXPECT_OK(rg_tensor_create(cpu, &desc, &tensor));
    EXPECT_OK(rg_tensor_write(tensor, data, 8, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_expand(tensor, 2, more, &view));
    const rg_safetensors_entry entry = { "x", view, NULL, { 0 } };
    rg_safetensors *file = NULL;
    EXPECT_OK(rg_safetensors_write(scratch("x.safetensors"), &entry, 1, NULL, 0));
    EXPECT_OK(rg_safetensors_open(scratch("x.safetensors"), &file));
    EXPECT_OK(rg_safetensors_read(file, 0, got, sizeof got));
    EXPECT(memcmp(got, (int32_t[]){ 5, 6, 5, 6, 5, 6 }, sizeof got) == 0);
    EXPECT_FAILS(rg_safetensors_read_tensor(file, 0, view), RG_INVALID_ARGUMENT, "overlaps itself");
    rg_safetensors_close(file);
    rg_tensor_destroy(view);
    rg_tensor_destroy(tensor);
    scratch_remove("x.safetensors");
}

/* ---- beside other programs ---- */

static int copy_file(const char *from, const char *to)
{
    enum { MOST = 256 };
    static rg_safetensors_entry entries[MOST];
    static rg_safetensors_text texts[MOST];
    rg_safetensors *file = NULL;
    EXPECT_OK(rg_safetensors_open(from, &file));
    const size_t count = rg_safetensors_count(file), more = rg_safetensors_metadata_count(file);
    EXPECT(count <= MOST && more <= MOST);
    for (size_t i = 0; i < count; i++) {
        rg_tensor *tensor = NULL;
        EXPECT_OK(rg_safetensors_load(file, i, cpu, &tensor));
        entries[i] = (rg_safetensors_entry){ rg_safetensors_name(file, i), tensor, NULL, { 0 } };
    }
    for (size_t i = 0; i < more; i++) {
        texts[i].key = rg_safetensors_metadata_key(file, i);
        texts[i].value = rg_safetensors_metadata(file, texts[i].key);
    }
    EXPECT_OK(rg_safetensors_write(to, entries, count, texts, more));
    for (size_t i = 0; i < count; i++)
        rg_tensor_destroy((rg_tensor *)(uintptr_t)entries[i].tensor);
    rg_safetensors_close(file);
    return rg_test_report();
}

int main(int count, char **arguments)
{
    EXPECT_OK(rg_device_create("cpu", NULL, &cpu));
    if (count == 4 && strcmp(arguments[1], "copy") == 0) {
        const int failed = copy_file(arguments[2], arguments[3]);
        rg_device_destroy(cpu);
        return failed;
    }
    scratch_begin();
    test_round_trips();
    test_written_bytes();
    test_strided();
    test_expanded();
    rg_device_destroy(cpu);
    scratch_end();
    return rg_test_report();
}
