/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Safetensors: round trips, hostile files, full disks, failing memory, a writer that is killed.
 * With "copy IN OUT" it copies a file, for a test beside other readers and writers. */
#include "files/safetensors_format.h"
#include "runtime/objects.h"
#include "tests/failing_allocator.h"
#include "tests/scratch_folder.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static rg_device *cpu;

static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16, RG_U8, RG_I32, RG_I64 };
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

/* ---- making files ---- */

/* A file of this header, filled up with spaces, and `size` bytes of data: 0, 1, 2, … */
typedef struct made_file {
    unsigned char bytes[4096];
    size_t size, header;
} made_file;

static made_file make_file(const char *header, size_t size)
{
    made_file made = { .header = (strlen(header) + 7) / 8 * 8 };
    for (int i = 0; i < 8; i++)
        made.bytes[i] = (unsigned char)(made.header >> 8 * i);
    memset(made.bytes + 8, ' ', made.header);
    memcpy(made.bytes + 8, header, strlen(header));
    for (size_t i = 0; i < size; i++)
        made.bytes[8 + made.header + i] = (unsigned char)i;
    made.size = 8 + made.header + size;
    return made;
}

static rg_status open_bytes(const void *bytes, size_t size, rg_safetensors **file)
{
    scratch_write("x.safetensors", bytes, size);
    const rg_status status = rg_safetensors_open(scratch("x.safetensors"), file);
    scratch_remove("x.safetensors"); /* an open file stays readable */
    EXPECT((status == RG_OK) == (*file != NULL));
    return status;
}

static rg_status open_header(const char *header, size_t size, rg_safetensors **file)
{
    const made_file made = make_file(header, size);
    return open_bytes(made.bytes, made.size, file);
}

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

/* Byte for byte what stands in the file: escapes, order of names, alignment by order of data. */
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

/* ---- what is refused ---- */

#define ONE(rest) "{\"a\":{\"dtype\":\"F32\"," rest "}"
#define SHAPE(s)  ONE("\"shape\":" s ",\"data_offsets\":[0,8]}")
#define ENDS(s)   ONE("\"shape\":[2],\"data_offsets\":" s "}")
#define PAIR(a, b)                                                                            \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" a "},\"b\":{\"dtype\":\"U8\"," \
    "\"shape\":[4],\"data_offsets\":" b "}}"

/* All with 8 bytes of data. */
static void test_bad_headers(void)
{
    static const struct {
        const char *header, *words;
    } cases[] = {
        { "", "the header does not start with '{'" },
        { "[]", "the header does not start with '{'" },
        { "        {}", "the header does not start with '{'" },
        { "{", "line 1, column 9: expected" },
        { "{} x", "expected the end of the text" },
        { "{}", "the tensors end at 0, but 8 bytes" },
        { "{\"a\":1}", "a tensor must be an object" },
        { "{\"a\":{}}", "\"dtype\"" },
        { "{\"a\":{\"dtype\":3}}", "column 15: a tensor needs a string \"dtype\"" },
        { "{\"a\":{\"dtype\":\"\",\"shape\":[2],\"data_offsets\":[0,8]}}", "name of a dtype" },
        { "{\"a\":{\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "name of a dtype" },
        { "{\"a\":{\"dtype\":\"F3333333333333333\",\"shape\":[2],\"data_offsets\":[0,8]}}",
          "name of a dtype" },
        { ONE("\"data_offsets\":[0,8]}"), "an array \"shape\"" },
        { SHAPE("2"), "an array \"shape\"" },
        { SHAPE("[-2]"),
          "in the header, line 1, column 30: shape must consist of whole numbers of at least 0" },
        { SHAPE("[-0]"),
          "in the header, line 1, column 30: shape must consist of whole numbers of at least 0" },
        { SHAPE("[2.0]"),
          "in the header, line 1, column 30: shape must consist of whole numbers of at least 0" },
        { SHAPE("[2e0]"),
          "in the header, line 1, column 30: shape must consist of whole numbers of at least 0" },
        { SHAPE("[\"2\"]"),
          "in the header, line 1, column 30: shape must consist of whole numbers of at least 0" },
        { SHAPE("[[2]]"),
          "in the header, line 1, column 30: shape must consist of whole numbers of at least 0" },
        { SHAPE("[02]"), "expected ',' or ']'" },
        { SHAPE("[1]"), "make 4 bytes, the offsets 8" },
        { SHAPE("[3]"), "make 12 bytes, the offsets 8" },
        { SHAPE("[2,0]"), "make 0 bytes, the offsets 8" },
        { SHAPE("[1,1,1,1,1,1,1,1,3]"), "make 12 bytes" },
        { SHAPE("[9223372036854775808]"), "too large" },
        { SHAPE("[99999999999999999999999]"), "too large" },
        { SHAPE("[9223372036854775807]"), "overflows" },
        { SHAPE("[4294967296,4294967296]"), "overflows" },
        { SHAPE("[4294967296,1073741824]"), "overflows" },
        { SHAPE("[2305843009213693952,8,2]"), "overflows" },
        { SHAPE("[0,4294967296,4294967296]"), "overflows" },
        { SHAPE("[4294967296,4294967296,4294967296,4294967296,1,1,1,1,1]"), "overflows" },
        { ONE("\"shape\":[2]}"), "\"data_offsets\" of two" },
        { ENDS("[8]"), "\"data_offsets\" of two" },
        { ENDS("[0,8,8]"), "\"data_offsets\" of two" },
        { ENDS("[-8,0]"), "in the header, line 1, column 49: data_offsets must consist of whole "
                          "numbers of at least 0" },
        { ENDS("[8,0]"), "the end of the tensor is before its start" },
        { ENDS("[0,16]"), "ends at 16, but 8 bytes" },
        { ENDS("[18446744073709551612,4]"), "too large" },
        { ENDS("[0,9223372036854775807]"), "ends at 9223372036854775807, but 8" },
        { PAIR("[0,4]", "[0,4]"), "begins at 0, but the data before it end at 4" },
        { PAIR("[0,4]", "[3,7]"), "begins at 3, but the data before it end at 4" },
        { PAIR("[4,8]", "[3,7]"), "begins at 3, but the data before it end at 0" },
        { PAIR("[1,5]", "[5,9]"), "ends at 9" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
          "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
          "\"b\" begins at 4, but the data before it end at 3" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[7],\"data_offsets\":[0,7]}}", "end at 7, but 8" },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[15],\"data_offsets\":[0,8]}}", "make 8 bytes" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
          "\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",
          "twice" },
        { "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",
          "twice" },
        { "{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}}", "twice" },
        { "{\"__metadata__\":[]}", "__metadata__ is an object" },
        { "{\"__metadata__\":{\"a\":1}}", "all values are strings" },
        { "{\"\xff\":1}", "not UTF-8" },
    };
    rg_safetensors *file = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        EXPECT_FAILS(open_header(cases[i].header, 8, &file), RG_MALFORMED, cases[i].words);
        EXPECT(strncmp(rg_error_text(), scratch_folder, strlen(scratch_folder)) == 0);
    }
    EXPECT_OK(open_header(SHAPE("[2]"), 8, &file)); /* what all of them would be */
    rg_safetensors_close(file);
    EXPECT_OK(open_header(PAIR("[4,8]", "[0,4]"), 8, &file));
    rg_safetensors_close(file);
    EXPECT_OK(open_header("{\"__metadata__\":null,\"a\":{\"dtype\":\"U8\",\"shape\":[8],"
                          "\"more\":{},\"data_offsets\":[0,8]}}",
                          8, &file));
    rg_safetensors_close(file);
}

static void test_lengths(void)
{
    made_file made = make_file(SHAPE("[2]"), 8);
    rg_safetensors *file = NULL;
    static const uint64_t lengths[] = { UINT64_MAX,        UINT64_MAX - 7,    INT64_MAX,
                                        UINT64_C(1) << 63, UINT64_C(1) << 32, 4096 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int k = 0; k < 8; k++)
            made.bytes[k] = (unsigned char)(lengths[i] >> 8 * k);
        EXPECT_FAILS(open_bytes(made.bytes, made.size, &file), RG_MALFORMED, "bytes, but only");
    }
    for (size_t size = 1; size < 8; size++)
        EXPECT_FAILS(open_bytes(made.bytes, size, &file), RG_MALFORMED, "has no header");
    EXPECT_FAILS(open_bytes("", 0, &file), RG_MALFORMED, "empty");

    const size_t size = (32 << 20) + 1;
    unsigned char *large = calloc(1, 8 + size);
    memset(large + 8, '[', size);
    large[8] = '{';
    large[3] = 2, large[0] = 1;
    EXPECT_FAILS(open_bytes(large, 8 + size, &file), RG_MALFORMED, "at most 33554432");
    large[3] = 0, large[0] = 0, large[1] = 1;
    memcpy(large + 8, "{\"a\":", 5);
    EXPECT_FAILS(open_bytes(large, 8 + 256, &file), RG_MALFORMED,
                 "the nesting is deeper than 64 levels");
    free(large);
}

/* A file that claims much, and one that is much, take no memory. */
static void test_memory_follows_the_header(void)
{
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1000000000],\"data_offsets\":[0,4000000000]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1073741824],\"data_offsets\":[0,4294967296]}}",
    };
    failing f = { 0 };
    const rg_allocator allocator = { failing_allocate, failing_release, &f };
    for (int i = 0; i < 2; i++) {
        const made_file made = make_file(headers[i], 4);
        rg_safetensors *file = NULL;
        scratch_write("x.safetensors", made.bytes, made.size);
        bool whole = true; /* a file with a hole of 4 GB; some file systems refuse */
        if (i == 1)
            whole =
                truncate(scratch("x.safetensors"), (off_t)(made.size - 4) + ((off_t)1 << 32)) == 0;
        const rg_status status =
            rg_safetensors_open_with(&allocator, scratch("x.safetensors"), &file);
        EXPECT(status == (i == 1 && whole ? RG_OK : RG_MALFORMED));
        EXPECT(f.peak < 32768);
        rg_safetensors_close(file);
        scratch_remove("x.safetensors");
        EXPECT(f.blocks == 0 && f.bytes == 0);
    }
}

/* Reads all that can be read. */
static void read_everything(const rg_safetensors *file)
{
    char data[64];
    for (size_t i = 0; i < rg_safetensors_count(file); i++) {
        rg_tensor_desc desc;
        rg_tensor *tensor = NULL;
        size_t found;
        const size_t bytes = rg_safetensors_bytes(file, i);
        EXPECT(bytes <= sizeof data &&
               rg_safetensors_find(file, rg_safetensors_name(file, i), &found) && found == i);
        const rg_status status = rg_safetensors_desc(file, i, &desc);
        EXPECT(status == RG_OK || status == RG_UNSUPPORTED);
        EXPECT(rg_safetensors_read(file, i, data, bytes) == status);
        EXPECT(rg_safetensors_load(file, i, cpu, &tensor) == status);
        rg_tensor_destroy(tensor);
    }
    for (size_t i = 0; i < rg_safetensors_metadata_count(file); i++)
        EXPECT(rg_safetensors_metadata(file, rg_safetensors_metadata_key(file, i)) != NULL);
}

static const char small_header[] =
    "{\"__metadata__\":{\"k\":\"\\u00e9\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],"
    "\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[8,10]}}";

static void test_every_truncation(void)
{
    const made_file made = make_file(small_header, 10);
    rg_safetensors *file = NULL;
    for (size_t size = 0; size < made.size; size++)
        EXPECT(open_bytes(made.bytes, size, &file) == RG_MALFORMED);
    EXPECT_OK(open_bytes(made.bytes, made.size, &file));
    read_everything(file);
    rg_safetensors_close(file);
    made_file longer = made;
    EXPECT_FAILS(open_bytes(longer.bytes, longer.size + 1, &file), RG_MALFORMED, "but 11 bytes");
}

/* Each byte with each bit flipped, and as 0, 255, a quote, a bracket and a digit. */
static void test_every_flip(void)
{
    const made_file made = make_file(small_header, 10);
    static const unsigned char others[] = { 0, 255, '"', '[', '}', '9', '-' };
    for (size_t at = 0; at < 8 + made.header; at++) {
        for (size_t k = 0; k < 8 + sizeof others; k++) {
            made_file changed = made;
            changed.bytes[at] = k < 8 ? (unsigned char)(made.bytes[at] ^ 1u << k) : others[k - 8];
            rg_safetensors *file = NULL;
            const rg_status status = open_bytes(changed.bytes, changed.size, &file);
            EXPECT(status == RG_OK || status == RG_MALFORMED);
            read_everything(file);
            rg_safetensors_close(file);
        }
    }
}

static void test_unsupported(void)
{
    static const char *const types[] = { "BOOL",    "I8",      "I16",         "U16",
                                         "U32",     "U64",     "C64",         "F8_E4M3",
                                         "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
                                         "F4",      "F6_E2M3", "F6_E3M2",     "I128" };
    static const int bits[] = { 8, 8, 16, 16, 32, 64, 64, 8, 8, 8, 8, 8, 4, 6, 6, 128 };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char header[256], data[64];
        const int bytes = 4 * bits[i] / 8;
        snprintf(header, sizeof header,
                 "{\"x\\u001b\":{\"dtype\":\"%s\",\"shape\":[2,2],\"data_offsets\":[0,%d]}}",
                 types[i], bytes);
        rg_safetensors *file = NULL;
        EXPECT_OK(open_header(header, (size_t)bytes, &file));
        EXPECT(rg_safetensors_count(file) == 1 && rg_safetensors_find(file, "x\x1b", NULL));
        EXPECT(strcmp(rg_safetensors_dtype(file, 0), types[i]) == 0);
        EXPECT_FAILS(rg_safetensors_read(file, 0, data, (size_t)bytes), RG_UNSUPPORTED, types[i]);
        EXPECT(strstr(rg_error_text(), "\"x\\u001b\"") != NULL); /* nothing for the terminal */
        rg_safetensors_close(file);
    }
    rg_safetensors *file = NULL;
    rg_tensor_desc desc;
    EXPECT_OK(open_header(SHAPE("[1,1,1,1,1,1,1,1,2]"), 8, &file));
    EXPECT_FAILS(rg_safetensors_desc(file, 0, &desc), RG_UNSUPPORTED, "9 dimensions");
    rg_safetensors_close(file);
}

static void test_wrong_calls(void)
{
    rg_safetensors *file = NULL;
    rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, (const int64_t[]){ 2 });
    float data[2];
    rg_tensor *tensor = NULL, *none = NULL;
    EXPECT_OK(open_header(SHAPE("[2]"), 8, &file));
    EXPECT(rg_safetensors_name(file, 1) == NULL && rg_safetensors_dtype(file, 1) == NULL);
    EXPECT(rg_safetensors_bytes(file, 1) == 0 && rg_safetensors_metadata_count(file) == 0);
    EXPECT_FAILS(rg_safetensors_desc(file, 1, &desc), RG_INVALID_ARGUMENT,
                 "tensor 1 does not exist");
    EXPECT_FAILS(rg_safetensors_read(file, 0, data, 4), RG_INVALID_ARGUMENT,
                 "has 8 bytes, but the size given is 4");
    EXPECT_FAILS(rg_safetensors_read(file, 0, NULL, 8), RG_INVALID_ARGUMENT, "data is NULL");
    EXPECT_FAILS(rg_safetensors_load(file, 1, cpu, &none), RG_INVALID_ARGUMENT,
                 "tensor 1 does not exist");
    const rg_tensor_desc others[] = { rg_tensor_desc_dense(RG_F32, 1, (const int64_t[]){ 3 }),
                                      rg_tensor_desc_dense(RG_F32, 2, (const int64_t[]){ 2, 1 }),
                                      rg_tensor_desc_dense(RG_I32, 1, (const int64_t[]){ 2 }) };
    static const char *const words[] = { "is f32[2] in the file, but the tensor is f32[3]",
                                         "the tensor is f32[2, 1]", "the tensor is i32[2]" };
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(rg_tensor_create(cpu, &others[i], &tensor));
        EXPECT_FAILS(rg_safetensors_read_tensor(file, 0, tensor), RG_INVALID_ARGUMENT, words[i]);
        rg_tensor_destroy(tensor);
    }
    EXPECT_FAILS(rg_safetensors_read_tensor(file, 0, NULL), RG_INVALID_ARGUMENT, "tensor is NULL");
    EXPECT_FAILS(rg_safetensors_load(file, 0, NULL, &none), RG_INVALID_ARGUMENT, "device is NULL");
    rg_safetensors_close(file);
    rg_safetensors_close(NULL);
    EXPECT(rg_safetensors_count(NULL) == 0 && rg_safetensors_metadata(NULL, "a") == NULL);
    EXPECT_FAILS(rg_safetensors_read(NULL, 0, data, 8), RG_INVALID_ARGUMENT, "file is NULL");
    EXPECT_FAILS(rg_safetensors_open(NULL, &file), RG_INVALID_ARGUMENT, "path is NULL");
    EXPECT_FAILS(rg_safetensors_open("x", NULL), RG_INVALID_ARGUMENT, "file is NULL");
    EXPECT_FAILS(rg_safetensors_open(scratch("none"), &file), RG_IO, "none: cannot be opened");
    EXPECT_FAILS(rg_safetensors_open(scratch_folder, &file), RG_IO, "directory");
    EXPECT_FAILS(rg_safetensors_open("/dev/zero", &file), RG_MALFORMED, "regular file");
}

/* A file that somebody cuts while it is open. */
static void test_cut_while_open(void)
{
    const made_file made = make_file(SHAPE("[2]"), 8);
    rg_safetensors *file = NULL;
    float data[2];
    scratch_write("x.safetensors", made.bytes, made.size);
    EXPECT_OK(rg_safetensors_open(scratch("x.safetensors"), &file));
    EXPECT(truncate(scratch("x.safetensors"), (off_t)made.size - 3) == 0);
    EXPECT_FAILS(rg_safetensors_read(file, 0, data, 8), RG_IO,
                 "\"a\": cannot be read: the file was truncated");
    rg_safetensors_close(file);
    scratch_remove("x.safetensors");
}

/* ---- writing that fails ---- */

static rg_status write_one(const char *path, const char *name, const char *key, const char *value)
{
    const rg_safetensors_entry entries[] = {
        { name, NULL, "12345678", rg_tensor_desc_dense(RG_U8, 1, (const int64_t[]){ 8 }) },
        { "last", NULL, "1234", rg_tensor_desc_dense(RG_F32, 0, NULL) },
    };
    const rg_safetensors_text texts[] = { { key, value }, { "z", "" } };
    return rg_safetensors_write(path, entries, 2, texts, 2);
}

static void test_write_refuses(void)
{
    const char *path = scratch("x.safetensors");
    EXPECT_FAILS(write_one(path, "last", "a", ""), RG_INVALID_ARGUMENT, "\"last\" is given twice");
    EXPECT_FAILS(write_one(path, NULL, "a", ""), RG_INVALID_ARGUMENT, "name 0 is NULL");
    EXPECT_FAILS(write_one(path, "\xff", "a", ""), RG_INVALID_ARGUMENT, "is not UTF-8");
    EXPECT_FAILS(write_one(path, "__metadata__", "a", ""), RG_INVALID_ARGUMENT, "__metadata__");
    EXPECT_FAILS(write_one(path, "a", "z", ""), RG_INVALID_ARGUMENT, "key \"z\" is given twice");
    EXPECT_FAILS(write_one(path, "a", NULL, ""), RG_INVALID_ARGUMENT, "key 0 is NULL");
    EXPECT_FAILS(write_one(path, "a", "b", NULL), RG_INVALID_ARGUMENT, "text of \"b\" is NULL");
    EXPECT_FAILS(write_one(path, "a", "b", "\xc3"), RG_INVALID_ARGUMENT, "is not UTF-8");
    EXPECT_FAILS(write_one(NULL, "a", "b", ""), RG_INVALID_ARGUMENT, "path is NULL");
    EXPECT_FAILS(rg_safetensors_write(path, NULL, 1, NULL, 0), RG_INVALID_ARGUMENT, "entries");
    EXPECT_FAILS(rg_safetensors_write(path, NULL, 0, NULL, 1), RG_INVALID_ARGUMENT, "metadata");

    rg_safetensors_entry entry = { "x", NULL, NULL, rg_tensor_desc_dense(RG_F32, 0, NULL) };
    EXPECT_FAILS(rg_safetensors_write(path, &entry, 1, NULL, 0), RG_INVALID_ARGUMENT,
                 "\"x\": rg_safetensors_write: data is NULL");
    entry.desc.rank = 9;
    EXPECT_FAILS(rg_safetensors_write(path, &entry, 1, NULL, 0), RG_INVALID_ARGUMENT, "rank is 9");
    rg_queue *queue = NULL;
    rg_commands *commands = NULL;
    rg_tensor *temporary = NULL;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 0, NULL);
    EXPECT_OK(rg_queue_create(cpu, &queue));
    EXPECT_OK(rg_commands_create(queue, &commands));
    EXPECT_OK(rg_tensor_create_temporary(commands, &desc, &temporary));
    entry.tensor = temporary;
    EXPECT_FAILS(rg_safetensors_write(path, &entry, 1, NULL, 0), RG_INVALID_ARGUMENT, "temporary");
    rg_tensor_destroy(temporary);
    rg_commands_destroy(commands);
    rg_queue_destroy(queue);

    char *text = malloc((32 << 20) + 1);
    memset(text, 'x', 32 << 20);
    text[32 << 20] = 0;
    EXPECT_FAILS(write_one(path, "a", "b", text), RG_INVALID_ARGUMENT, "at most 33554432");
    free(text);
    EXPECT(access(path, F_OK) != 0);
}

static void test_old_file_survives(void)
{
    const char old[] = "what was there before";
    EXPECT_FAILS(write_one("/dev/full", "a", "b", ""), RG_IO, "/dev/full: cannot be written");
    EXPECT_FAILS(write_one(scratch("none/x"), "a", "b", ""), RG_IO, "none/x: cannot be created");
    EXPECT_OK(write_one("/dev/null", "a", "b", ""));

    /* a disk that is full, played by a limit on the size of files */
    struct stat whole;
    EXPECT_OK(write_one(scratch("x.safetensors"), "a", "b", ""));
    EXPECT(stat(scratch("x.safetensors"), &whole) == 0);
    scratch_write("x.safetensors", old, sizeof old);
    struct rlimit limit;
    EXPECT(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t most = 0; most < (rlim_t)whole.st_size; most++) {
        EXPECT(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ most, limit.rlim_max }) == 0);
        const rg_status status = write_one(scratch("x.safetensors"), "a", "b", "");
        EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        char got[64];
        EXPECT(status == RG_IO &&
               strstr(rg_error_text(), "x.safetensors: cannot be written: ") != NULL);
        EXPECT(scratch_read("x.safetensors", got, sizeof got) == sizeof old);
        EXPECT(memcmp(got, old, sizeof old) == 0);
    }
    signal(SIGXFSZ, SIG_DFL);

    if (geteuid() != 0) { /* root may write everywhere */
        EXPECT(chmod(scratch_folder, 0555) == 0);
        EXPECT_FAILS(write_one(scratch("x.safetensors"), "a", "b", ""), RG_IO, "cannot be created");
        EXPECT(chmod(scratch_folder, 0755) == 0);
    }
    EXPECT_OK(write_one(scratch("x.safetensors"), "a", "b", ""));
    scratch_remove("x.safetensors"); /* scratch_end sees whether a temporary file is left */
}

/* ---- a writer that is killed ---- */

enum { KILLED_ELEMENTS = 30000 };

/* Generation g has g in its metadata and in all elements of both tensors. */
static rg_status write_generation(const char *path, int32_t g)
{
    static int32_t data[KILLED_ELEMENTS];
    for (int i = 0; i < KILLED_ELEMENTS; i++)
        data[i] = g;
    char step[16];
    snprintf(step, sizeof step, "%d", (int)g);
    const int64_t dims[] = { KILLED_ELEMENTS };
    const rg_safetensors_entry entries[] = {
        { "a", NULL, data, rg_tensor_desc_dense(RG_I32, 1, dims) },
        { "b", NULL, data, rg_tensor_desc_dense(RG_I32, 1, dims) },
    };
    return rg_safetensors_write(path, entries, 2, &(rg_safetensors_text){ "step", step }, 1);
}

/* The generation of a whole file; -1 for any other. */
static int32_t read_generation(const char *path)
{
    static int32_t data[KILLED_ELEMENTS];
    rg_safetensors *file = NULL;
    EXPECT_OK(rg_safetensors_open(path, &file));
    const char *step = rg_safetensors_metadata(file, "step");
    const int32_t g = step != NULL ? (int32_t)atoi(step) : -1;
    bool same = g >= 0 && rg_safetensors_count(file) == 2;
    for (size_t t = 0; t < 2 && same; t++) {
        same = rg_safetensors_read(file, t, data, sizeof data) == RG_OK;
        for (int i = 0; i < KILLED_ELEMENTS && same; i++)
            same = data[i] == g;
    }
    rg_safetensors_close(file);
    return same ? g : -1;
}

static void test_killed_writer(void)
{
    const char *path = scratch("x.safetensors");
    uint64_t seed = 20250301;
    int32_t last = 0;
    int changed = 0;
    EXPECT_OK(write_generation(path, last));
    for (int round = 0; round < 50; round++) {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            for (int32_t g = last + 1;; g++) {
                if (write_generation(path, g) != RG_OK)
                    _exit(1);
            }
        }
        EXPECT(child > 0);
        usleep((useconds_t)(scratch_random(&seed) % 8000));
        int status = 0;
        EXPECT(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
        EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        const int32_t now = read_generation(path);
        EXPECT(now >= last);
        changed += now > last;
        last = now;
        char left[512]; /* what a killed writer could not remove */
        snprintf(left, sizeof left, "%s/.retrograde-%ld-0", scratch_folder, (long)child);
        unlink(left);
    }
    EXPECT(changed > 0);
    scratch_remove("x.safetensors");
}

/* ---- failing memory ---- */

/* Writes and reads a view, with memory from the device's allocator. */
static rg_status write_and_read(rg_device *device)
{
    rg_tensor *tensor = NULL, *view = NULL;
    rg_safetensors *file = NULL;
    const rg_allocator *allocator = &device->allocator;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 2, (const int64_t[]){ 3, 2 });
    rg_status status = rg_tensor_create(device, &desc, &tensor);
    if (status == RG_OK)
        status = rg_tensor_permute(tensor, (const int32_t[]){ 1, 0 }, &view);
    const rg_safetensors_entry entries[] = { { "a", view, NULL, { 0 } },
                                             { "b", tensor, NULL, { 0 } } };
    const rg_safetensors_text text = { "key", "value" };
    if (status == RG_OK)
        status =
            rg_safetensors_write_with(allocator, scratch("x.safetensors"), entries, 2, &text, 1);
    EXPECT((status == RG_OK) == (access(scratch("x.safetensors"), F_OK) == 0));
    if (status == RG_OK) {
        status = rg_safetensors_open_with(allocator, scratch("x.safetensors"), &file);
        scratch_remove("x.safetensors");
    }
    if (status == RG_OK)
        status = rg_safetensors_read_tensor(file, 0, view);
    rg_safetensors_close(file);
    rg_tensor_destroy(view);
    rg_tensor_destroy(tensor);
    return status;
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
    test_bad_headers();
    test_lengths();
    test_memory_follows_the_header();
    test_every_truncation();
    test_every_flip();
    test_unsupported();
    test_wrong_calls();
    test_cut_while_open();
    test_write_refuses();
    test_old_file_survives();
    test_killed_writer();
    fail_at_every_call(write_and_read);
    rg_device_destroy(cpu);
    scratch_end();
    return rg_test_report();
}
