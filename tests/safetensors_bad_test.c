/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Safetensors files that are wrong, cut or changed, and calls that are refused. */
#include "files/safetensors_format.h"
#include "tests/failing_allocator.h"
#include "tests/made_safetensors.h"
#include "tests/scratch_folder.h"

static rg_device *cpu;

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

#define ONE(rest) "{\"a\":{\"dtype\":\"F32\"," rest "}"
#define SHAPE(s)  ONE("\"shape\":" s ",\"data_offsets\":[0,8]}")
#define ENDS(s)   ONE("\"shape\":[2],\"data_offsets\":" s "}")
#define PAIR(a, b)                                                                            \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" a "},\"b\":{\"dtype\":\"U8\"," \
    "\"shape\":[4],\"data_offsets\":" b "}}"

/* All with 8 bytes of data. */
static const struct {
    const char *header, *words;
} bad_headers[] = {
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
    { "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", "twice" },
    { "{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}}", "twice" },
    { "{\"__metadata__\":[]}", "__metadata__ is an object" },
    { "{\"__metadata__\":{\"a\":1}}", "all values are strings" },
    { "{\"\xff\":1}", "not UTF-8" },
};

static void test_bad_headers(void)
{
    rg_safetensors *file = NULL;
    for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
        EXPECT_FAILS(open_header(bad_headers[i].header, 8, &file), RG_MALFORMED,
                     bad_headers[i].words);
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

/* Neither a file that declares a large size nor a large file takes memory. */
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
            changed.bytes[at] =
                (unsigned char)(k < 8 ? made.bytes[at] ^ 1u << k : (unsigned)others[k - 8]);
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

/* A file that is truncated while it is open. */
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

int main(void)
{
    EXPECT_OK(rg_device_create("cpu", NULL, &cpu));
    scratch_begin();
    test_bad_headers();
    test_lengths();
    test_memory_follows_the_header();
    test_every_truncation();
    test_every_flip();
    test_unsupported();
    test_wrong_calls();
    test_cut_while_open();
    rg_device_destroy(cpu);
    scratch_end();
    return rg_test_report();
}
