/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* NPY files: round trips, every form that NumPy writes, and files that broke other readers. */
#include "tests/failing_allocator.h"
#include "tests/scratch_folder.h"

#include <retrograde/files.h>

#include <sys/stat.h>

static rg_device *cpu;

/* ---- making files ---- */

typedef struct npy {
    unsigned char bytes[2048];
    size_t size;
} npy;

/* A file of the given version; the header is padded to a multiple of 64. */
static npy make_npy(int version, const char *dictionary, const void *data, size_t size)
{
    npy made = { .bytes = "\x93NUMPY" };
    const size_t start = version == 1 ? 10 : 12;
    const size_t whole = (start + strlen(dictionary) + 1 + 63) / 64 * 64;
    made.bytes[6] = (unsigned char)version;
    for (size_t i = 8; i < start; i++)
        made.bytes[i] = (unsigned char)((whole - start) >> 8 * (i - 8));
    memset(made.bytes + start, ' ', whole - start);
    memcpy(made.bytes + start, dictionary, strlen(dictionary));
    made.bytes[whole - 1] = '\n';
    if (size > 0)
        memcpy(made.bytes + whole, data, size);
    made.size = whole + size;
    return made;
}

static rg_status load_bytes(const void *bytes, size_t size, rg_tensor **tensor)
{
    scratch_write("x.npy", bytes, size);
    const rg_status status = rg_tensor_load_npy(cpu, scratch("x.npy"), tensor);
    scratch_remove("x.npy");
    EXPECT((status == RG_OK) == (*tensor != NULL));
    return status;
}

/* ---- what is read ---- */

/* The tensor has this dtype and shape, and these elements in C order. */
static bool holds(rg_tensor *tensor, rg_dtype dtype, int32_t rank, const int64_t dims[],
                  const void *data, size_t bytes)
{
    char got[256];
    rg_tensor_desc desc;
    if (rg_tensor_get_desc(tensor, &desc) != RG_OK || desc.dtype != dtype || desc.rank != rank)
        return false;
    for (int32_t d = 0; d < rank; d++) {
        if (desc.dims[d] != dims[d])
            return false;
    }
    return rg_tensor_read(tensor, got, bytes, RG_LAYOUT_SAME) == RG_OK &&
           memcmp(got, data, bytes) == 0;
}

static void test_versions_and_spellings(void)
{
    static const char *const dictionaries[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
        "{ \"shape\" : ( 2 , 3 , ) , \"fortran_order\" :False,\"descr\":\"<f4\" , }  \t",
        "{'shape':(2L,3L),'descr':'<f4','fortran_order':False}",
    };
    const float x[6] = { 1, -2, 3.5f, 0, 5, 6 };
    const int64_t dims[] = { 2, 3 };
    for (int version = 1; version <= 3; version++) {
        for (size_t i = 0; i < sizeof dictionaries / sizeof dictionaries[0]; i++) {
            const npy file = make_npy(version, dictionaries[i], x, sizeof x);
            rg_tensor *tensor = NULL;
            EXPECT_OK(load_bytes(file.bytes, file.size, &tensor));
            EXPECT(holds(tensor, RG_F32, 2, dims, x, sizeof x));
            rg_tensor_destroy(tensor);
        }
    }
}

/* Every dtype in both byte orders, "=" and "|". The bytes of element i are 16 i + 1, 16 i + 2, … */
static void test_dtypes_and_byte_orders(void)
{
    static const struct {
        const char *name;
        rg_dtype dtype;
    } types[] = { { "f2", RG_F16 }, { "f4", RG_F32 }, { "f8", RG_F64 },
                  { "u1", RG_U8 },  { "i4", RG_I32 }, { "i8", RG_I64 } };
    const uint16_t one = 1;
    const bool little = *(const unsigned char *)&one == 1;
    const int64_t dims[] = { 3 };
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const size_t size = rg_dtype_size(types[t].dtype);
        for (const char *order = "<>=|"; *order != 0; order++) {
            unsigned char stored[24], native[24];
            const bool swap = (*order == '<' && !little) || (*order == '>' && little);
            for (size_t i = 0; i < 3 * size; i++) {
                stored[i] = (unsigned char)(16 * (i / size) + i % size + 1);
                native[swap ? i / size * size + size - 1 - i % size : i] = stored[i];
            }
            char text[128];
            snprintf(text, sizeof text,
                     "{'descr': '%c%s', 'fortran_order': False, 'shape': (3,), }", *order,
                     types[t].name);
            const npy file = make_npy(1, text, stored, 3 * size);
            rg_tensor *tensor = NULL;
            EXPECT_OK(load_bytes(file.bytes, file.size, &tensor));
            EXPECT(holds(tensor, types[t].dtype, 1, dims, native, 3 * size));
            rg_tensor_destroy(tensor);
        }
    }
}

static void test_fortran_order(void)
{
    int32_t stored[24], dense[24]; /* element (i, j, k) of (2, 3, 4) is 100 i + 10 j + k */
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 3; j++) {
            for (int k = 0; k < 4; k++) {
                stored[i + 2 * j + 6 * k] = 100 * i + 10 * j + k;
                dense[12 * i + 4 * j + k] = 100 * i + 10 * j + k;
            }
        }
    }
    const npy file = make_npy(1, "{'descr': '=i4', 'fortran_order': True, 'shape': (2, 3, 4), }",
                              stored, sizeof stored);
    const int64_t dims[] = { 2, 3, 4 };
    rg_tensor *tensor = NULL;
    EXPECT_OK(load_bytes(file.bytes, file.size, &tensor));
    EXPECT(holds(tensor, RG_I32, 3, dims, dense, sizeof dense));
    rg_tensor_desc desc;
    EXPECT_OK(rg_tensor_get_desc(tensor, &desc));
    EXPECT(desc.strides[0] == 12 && desc.strides[1] == 4 && desc.strides[2] == 1);
    rg_tensor_destroy(tensor);
}

static void test_rank_0_empty_and_rank_8(void)
{
    const double value = 2.5;
    const int64_t none[] = { 3, 0, 5 }, ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    static const char *const shapes[] = { "()", "(3, 0, 5)", "(1, 1, 1, 1, 1, 1, 1, 1)" };
    static const int32_t ranks[] = { 0, 3, 8 };
    const int64_t *dims[] = { NULL, none, ones };
    for (int i = 0; i < 3; i++) {
        for (int fortran = 0; fortran < 2; fortran++) {
            char text[128];
            snprintf(text, sizeof text, "{'descr': '=f8', 'fortran_order': %s, 'shape': %s, }",
                     fortran ? "True" : "False", shapes[i]);
            const size_t size = i == 1 ? 0 : sizeof value;
            const npy file = make_npy(1, text, &value, size);
            rg_tensor *tensor = NULL;
            EXPECT_OK(load_bytes(file.bytes, file.size, &tensor));
            EXPECT(holds(tensor, RG_F64, ranks[i], dims[i], &value, size));
            rg_tensor_destroy(tensor);
        }
    }
}

static void test_pipe(void)
{
    const float x[6] = { 1, 2, 3, 4, 5, 6 };
    const int64_t dims[] = { 6 };
    npy file =
        make_npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", x, sizeof x);
    for (int extra = -1; extra <= 1; extra++) { /* too short, right, too long */
        int ends[2];
        char path[64];
        rg_tensor *tensor = NULL;
        EXPECT(pipe(ends) == 0);
        const size_t size = (size_t)((int)file.size + extra);
        EXPECT(write(ends[1], file.bytes, size) == (ssize_t)size);
        close(ends[1]);
        snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
        if (extra == 0) {
            EXPECT_OK(rg_tensor_load_npy(cpu, path, &tensor));
            EXPECT(holds(tensor, RG_F32, 1, dims, x, sizeof x));
        } else {
            EXPECT_FAILS(rg_tensor_load_npy(cpu, path, &tensor), RG_MALFORMED,
                         extra < 0 ? "fewer follow" : "more follow");
        }
        rg_tensor_destroy(tensor);
        close(ends[0]);
    }
}

/* ---- what is written ---- */

static void test_round_trips(void)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16, RG_U8, RG_I32, RG_I64 };
    static const int64_t dims[] = { 3, 2, 5, 1, 1, 1, 1, 1 };
    for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; t++) {
        for (int32_t rank = 0; rank <= 8; rank++) {
            const rg_tensor_desc desc = rg_tensor_desc_dense(dtypes[t], rank, dims);
            const size_t count = rank == 0 ? 1 : rank == 1 ? 3 : rank == 2 ? 6 : 30;
            const size_t bytes = count * rg_dtype_size(dtypes[t]);
            float values[30], wide[30];
            unsigned char data[30 * 8];
            for (size_t i = 0; i < count; i++)
                values[i] = (float)i * 0.75f;
            rg_tensor *x = NULL, *y = NULL;
            EXPECT_OK(rg_convert(data, dtypes[t], values, RG_F32, count));
            EXPECT_OK(rg_convert(wide, RG_F32, data, dtypes[t], count));
            EXPECT_OK(rg_tensor_create(cpu, &desc, &x));
            EXPECT_OK(rg_tensor_write(x, data, bytes, RG_LAYOUT_SAME));
            EXPECT_OK(rg_tensor_save_npy(x, scratch("x.npy")));
            EXPECT_OK(rg_tensor_load_npy(cpu, scratch("x.npy"), &y));
            const bool as_f32 = dtypes[t] == RG_BF16;
            EXPECT(holds(y, as_f32 ? RG_F32 : dtypes[t], rank, dims, as_f32 ? (void *)wide : data,
                         as_f32 ? 4 * count : bytes));
            rg_tensor_destroy(x);
            rg_tensor_destroy(y);
        }
    }
    scratch_remove("x.npy");
}

/* Byte for byte what NumPy writes for np.arange(6, dtype='<i4').reshape(2, 3).T. */
static void test_written_bytes(void)
{
    static const char start[] = "\x93NUMPY\x01\0\x76\0{'descr': '<i4', 'fortran_order': False, "
                                "'shape': (3, 2), }";
    const int32_t x[6] = { 0, 1, 2, 3, 4, 5 }, transposed[6] = { 0, 3, 1, 4, 2, 5 };
    const int64_t dims[] = { 2, 3 };
    const int32_t order[] = { 1, 0 };
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_I32, 2, dims);
    rg_tensor *tensor = NULL, *view = NULL;
    EXPECT_OK(rg_tensor_create(cpu, &desc, &tensor));
    EXPECT_OK(rg_tensor_write(tensor, x, sizeof x, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_permute(tensor, order, &view));
    EXPECT_OK(rg_tensor_save_npy(view, scratch("x.npy")));
    char got[256], wanted[152];
    memset(wanted, ' ', 128);
    memcpy(wanted, start, sizeof start - 1);
    wanted[127] = '\n';
    memcpy(wanted + 128, transposed, sizeof transposed);
    EXPECT(scratch_read("x.npy", got, sizeof got) == sizeof wanted);
    EXPECT(memcmp(got, wanted, sizeof wanted) == 0);
    scratch_remove("x.npy");
    rg_tensor_destroy(view);
    rg_tensor_destroy(tensor);
}

/* ---- what is refused ---- */

#define REST ", 'fortran_order': False, 'shape': (6,), }"
#define HEAD "{'descr': '<f4', 'fortran_order': False, 'shape': "

static const struct {
    const char *dictionary, *words;
    rg_status status;
} bad_dictionaries[] = {
    { "", "not a dictionary", RG_MALFORMED },
    { "[]", "not a dictionary", RG_MALFORMED },
    { "{}", "lacks descr", RG_MALFORMED },
    { "{'descr': ''" REST, "the element type is ''; f2, f4, f8, u1, b1, i4 and i8 are supported",
      RG_MALFORMED },
    { "{'descr': '<'" REST, "the element type is '<'; f2, f4, f8, u1, b1, i4 and i8 are supported",
      RG_MALFORMED },
    { "{'descr': '<ixy'" REST,
      "the element type is '<ixy'; f2, f4, f8, u1, b1, i4 and i8 are supported", RG_MALFORMED },
    { "{'descr': 'f4'" REST,
      "the element type is 'f4'; f2, f4, f8, u1, b1, i4 and i8 are supported", RG_MALFORMED },
    { "{'descr': '<f4444444444444444444444444'" REST, "unknown string", RG_MALFORMED },
    { "{'descr': '<c8'" REST,
      "the element type is '<c8'; f2, f4, f8, u1, b1, i4 and i8 are supported", RG_UNSUPPORTED },
    { "{'descr': '|O'" REST,
      "the element type is '|O'; f2, f4, f8, u1, b1, i4 and i8 are supported", RG_MALFORMED },
    { "{'descr': [('a', '<f4')]" REST, "lacks a string", RG_MALFORMED },
    { "{'descr': '<f4" REST, "unknown string", RG_MALFORMED },
    { "{'descr': '<f4', 'descr': '<f4'" REST, "descr twice", RG_MALFORMED },
    { "{'descr': '<f4', 'other': 1" REST, "unknown key 'other'", RG_MALFORMED },
    { "{'descr': '<f4' 'shape': (6,)}", "lacks ',' or '}'", RG_MALFORMED },
    { "{'descr' '<f4'" REST, "lacks ':'", RG_MALFORMED },
    { "{'descr': '<f4', 'shape': (6,)}", "lacks fortran_order", RG_MALFORMED },
    { "{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}", "neither", RG_MALFORMED },
    { "{'descr': '<f4', 'fortran_order': False}", "lacks shape", RG_MALFORMED },
    { HEAD "(6,), } x", "the NPY header has text after its dictionary", RG_MALFORMED },
    { HEAD "(6,), ", "lacks a string", RG_MALFORMED },
    { HEAD "6}", "not a tuple", RG_MALFORMED },
    { HEAD "(6)}", "not a tuple", RG_MALFORMED },
    { HEAD "[6]}", "not a tuple", RG_MALFORMED },
    { HEAD "(2 3)}", "lacks ',' or ')'", RG_MALFORMED },
    { HEAD "(,)}", "whole numbers", RG_MALFORMED },
    { HEAD "(-6,)}", "whole numbers", RG_MALFORMED },
    { HEAD "(6.0,)}", "lacks ',' or ')'", RG_MALFORMED },
    { HEAD "(06,)}", "whole numbers", RG_MALFORMED },
    { HEAD "(6, ", "whole numbers", RG_MALFORMED },
    { HEAD "(5,)}", "declares 20 bytes", RG_MALFORMED },
    { HEAD "(7,)}", "declares 28 bytes", RG_MALFORMED },
    { HEAD "(1000000000000,)}", "but 24 follow", RG_MALFORMED },
    { HEAD "(9223372036854775807,)}", "overflows", RG_MALFORMED },
    { HEAD "(9223372036854775808,)}", "too large", RG_MALFORMED },
    { HEAD "(4294967296, 4294967296)}", "overflows", RG_MALFORMED },
    { HEAD "(2305843009213693952, 8, 6)}", "overflows", RG_MALFORMED },
    { HEAD "(0, 4294967296, 4294967296)}", "overflows", RG_MALFORMED },
    { HEAD "(1, 1, 1, 1, 1, 1, 1, 1, 6)}", "more than 8", RG_UNSUPPORTED },
};

static void test_bad_dictionaries(void)
{
    const float x[6] = { 0 };
    for (size_t i = 0; i < sizeof bad_dictionaries / sizeof bad_dictionaries[0]; i++) {
        const npy file = make_npy(1, bad_dictionaries[i].dictionary, x, sizeof x);
        rg_tensor *tensor = NULL;
        EXPECT_FAILS(load_bytes(file.bytes, file.size, &tensor), bad_dictionaries[i].status,
                     bad_dictionaries[i].words);
        EXPECT(strncmp(rg_error_text(), scratch_folder, strlen(scratch_folder)) == 0);
    }
}

static void test_bad_lengths_and_versions(void)
{
    const float x[6] = { 0 };
    const char *dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}";
    npy file = make_npy(1, dictionary, x, sizeof x);
    rg_tensor *tensor = NULL;
    file.bytes[8] = file.bytes[9] = 0xff; /* a header of 65535 bytes in a file of 77 */
    EXPECT_FAILS(load_bytes(file.bytes, 77, &tensor), RG_MALFORMED, "65535 bytes, but only 67");
    const unsigned char huge[12] = "\x93NUMPY\x02\0\xf0\xff\xff\xff";
    EXPECT_FAILS(load_bytes(huge, 12, &tensor), RG_MALFORMED, "4294967280 bytes, but only 0");
    EXPECT_FAILS(load_bytes("", 0, &tensor), RG_MALFORMED, "the file ends inside its NPY header");
    EXPECT_FAILS(load_bytes("PK\3\4 a zip file", 16, &tensor), RG_MALFORMED, "not an NPY file");
    for (int version = 0; version < 256; version += version < 4 ? 4 : 251) {
        file = make_npy(1, dictionary, x, sizeof x);
        file.bytes[6] = (unsigned char)version;
        EXPECT_FAILS(load_bytes(file.bytes, file.size, &tensor), RG_UNSUPPORTED, "NPY version");
    }

    /* a real header of a megabyte is refused by its length */
    const size_t size = 1 << 20;
    unsigned char *large = calloc(1, size);
    memcpy(large, "\x93NUMPY\x02\0\0\0\x08\0", 12);
    EXPECT_FAILS(load_bytes(large, size, &tensor), RG_MALFORMED, "at most 65535");
    free(large);
}

/* Neither a file that declares a large size nor a large file takes memory. */
static void test_memory_follows_the_file(void)
{
    failing f = { 0 };
    rg_device *device = failing_device(&f);
    const size_t before = f.bytes;
    f.peak = 0;
    const char *texts[] = { "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,)}",
                            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}" };
    for (int i = 0; i < 2; i++) {
        const npy file = make_npy(1, texts[i], "1234", 4);
        rg_tensor *tensor = NULL;
        scratch_write("x.npy", file.bytes, file.size);
        if (i == 1) /* a file with a hole of 1 TB; some file systems refuse */
            (void)!truncate(scratch("x.npy"), (off_t)1 << 40);
        const rg_status status = rg_tensor_load_npy(device, scratch("x.npy"), &tensor);
        EXPECT(i == 1 || status == RG_MALFORMED);
        rg_tensor_destroy(tensor);
        scratch_remove("x.npy");
        EXPECT(f.bytes == before && f.peak < before + 4096);
    }
    rg_device_destroy(device);
}

static void test_every_truncation(void)
{
    const float x[6] = { 1, 2, 3, 4, 5, 6 };
    for (int version = 1; version <= 3; version++) {
        const npy file = make_npy(
            version, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", x, sizeof x);
        for (size_t size = 0; size < file.size; size++) {
            rg_tensor *tensor = NULL;
            EXPECT(load_bytes(file.bytes, size, &tensor) == RG_MALFORMED);
        }
    }
}

static void test_random_flips(void)
{
    const uint64_t first = 20240607;
    uint64_t seed = first;
    const float x[6] = { 1, 2, 3, 4, 5, 6 };
    for (int i = 0; i < 4000; i++) {
        npy file = make_npy(1 + i % 3, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }",
                            x, sizeof x);
        const int flips = 1 + (int)(scratch_random(&seed) % 4);
        for (int k = 0; k < flips; k++) {
            const uint64_t r = scratch_random(&seed);
            file.bytes[(r >> 8) % file.size] ^=
                (unsigned char)(r % 2 ? 1u << (r >> 1) % 8 : r >> 40);
        }
        rg_tensor *tensor = NULL;
        const rg_status status = load_bytes(file.bytes, file.size, &tensor);
        if (status != RG_OK && status != RG_MALFORMED && status != RG_UNSUPPORTED)
            printf("flip %d of seed %llu: %s\n", i, (unsigned long long)first, rg_error_text());
        EXPECT(status == RG_OK || status == RG_MALFORMED || status == RG_UNSUPPORTED);
        rg_tensor_destroy(tensor);
    }
}

static void test_paths_and_null(void)
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 0, NULL);
    rg_tensor *x = NULL, *y = NULL;
    EXPECT_OK(rg_tensor_create(cpu, &desc, &x));
    EXPECT_OK(rg_tensor_write(x, &(float){ 1 }, 4, RG_LAYOUT_SAME));
    EXPECT_FAILS(rg_tensor_load_npy(cpu, scratch("none.npy"), &y), RG_IO, "none.npy: cannot");
    EXPECT_FAILS(rg_tensor_load_npy(cpu, scratch_folder, &y), RG_IO, "directory");
    EXPECT_FAILS(rg_tensor_load_npy(cpu, "/dev/null", &y), RG_MALFORMED, "/dev/null");
    EXPECT_FAILS(rg_tensor_load_npy(cpu, "/dev/zero", &y), RG_MALFORMED, "/dev/zero");
    EXPECT_FAILS(rg_tensor_save_npy(x, scratch("none/x.npy")), RG_IO, "none/x.npy");
    EXPECT_FAILS(rg_tensor_save_npy(x, scratch_folder), RG_IO, scratch_folder);
    EXPECT_FAILS(rg_tensor_save_npy(x, "/dev/full"), RG_IO, "/dev/full");
    EXPECT_OK(rg_tensor_save_npy(x, "/dev/null"));
    EXPECT_FAILS(rg_tensor_load_npy(NULL, "x", &y), RG_INVALID_ARGUMENT, "device");
    EXPECT_FAILS(rg_tensor_load_npy(cpu, NULL, &y), RG_INVALID_ARGUMENT, "path");
    EXPECT_FAILS(rg_tensor_load_npy(cpu, "x", NULL), RG_INVALID_ARGUMENT, "tensor");
    EXPECT_FAILS(rg_tensor_save_npy(NULL, "x"), RG_INVALID_ARGUMENT, "tensor");
    EXPECT_FAILS(rg_tensor_save_npy(x, NULL), RG_INVALID_ARGUMENT, "path");
    rg_tensor_destroy(x);
}

static rg_status load_and_save(rg_device *device)
{
    rg_tensor *tensor = NULL;
    rg_status status = rg_tensor_load_npy(device, scratch("in.npy"), &tensor);
    if (status == RG_OK)
        status = rg_tensor_save_npy(tensor, scratch("out.npy"));
    EXPECT((status == RG_OK) == (access(scratch("out.npy"), F_OK) == 0));
    rg_tensor_destroy(tensor);
    return status;
}

static void test_out_of_memory(void)
{
    const float x[6] = { 1, 2, 3, 4, 5, 6 };
    const npy file =
        make_npy(2, "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3), }", x, sizeof x);
    scratch_write("in.npy", file.bytes, file.size);
    fail_at_every_call(load_and_save);
    scratch_remove("in.npy");
    scratch_remove("out.npy");
}

int main(void)
{
    scratch_begin();
    EXPECT_OK(rg_device_create("cpu", NULL, &cpu));
    test_versions_and_spellings();
    test_dtypes_and_byte_orders();
    test_fortran_order();
    test_rank_0_empty_and_rank_8();
    test_pipe();
    test_round_trips();
    test_written_bytes();
    test_bad_dictionaries();
    test_bad_lengths_and_versions();
    test_memory_follows_the_file();
    test_every_truncation();
    test_random_flips();
    test_paths_and_null();
    test_out_of_memory();
    rg_device_destroy(cpu);
    scratch_end();
    return rg_test_report();
}
