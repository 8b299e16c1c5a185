/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* NPY files: magic, version, length of the header, a Python dictionary, the elements.
 *
 *      \x93NUMPY 1 0 76 0 {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }    \n …
 *
 *  Nothing is allocated because the header says so: sizes are compared with the file first. */
#include "files/npy.h"
#include "core/dtype.h"
#include "core/private_api.h"
#include "files/whole_file.h"
#include "runtime/objects.h"

#include <retrograde/files.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The elements begin at a multiple of this. */
enum { HEADER_STEP = 64 };

static const char magic[] = "\x93NUMPY"; /* 6 bytes */

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static const char native_order = '<';
#else
static const char native_order = '>';
#endif

static const struct element_type {
    char name[3];
    rg_dtype dtype;
} element_types[] = {
    { "f2", RG_F16 }, { "f4", RG_F32 }, { "f8", RG_F64 }, { "u1", RG_U8 },
    { "i4", RG_I32 }, { "i8", RG_I64 }, { "b1", RG_U8 }, /* truth values, 0 or 1: read alone,
                                                            written as u1 */
};
enum { ELEMENT_TYPES = sizeof element_types / sizeof element_types[0] };

/* Those that become i64 where the caller wants them. */
static const struct integer_type {
    char name[3];
    int32_t narrow;
} integer_types[] = { { "i1", -1 }, { "i2", -2 }, { "u2", 2 }, { "u4", 4 }, { "u8", 8 } };
enum { INTEGER_TYPES = sizeof integer_types / sizeof integer_types[0] };

/* ---- the dictionary ---- */

typedef struct scanner {
    const char *at, *end;
    bool all_integers;
} scanner;

typedef rg_npy_header header;

static void skip_space(scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
}

static bool accept(scanner *s, const char *word)
{
    skip_space(s);
    const size_t length = strlen(word);
    if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0)
        return false;
    s->at += length;
    return true;
}

/* A string without escapes, in either kind of quotes. */
static rg_status scan_string(scanner *s, char *to, size_t capacity)
{
    const char *quote = accept(s, "'") ? "'" : accept(s, "\"") ? "\"" : NULL;
    RG_CHECK(quote != NULL, RG_MALFORMED, "the NPY header lacks a string where one is required");
    size_t length = 0;
    for (; s->at < s->end && *s->at != *quote; s->at++) {
        RG_CHECK(*s->at > ' ' && *s->at < 0x7f && length + 1 < capacity, RG_MALFORMED,
                 "the NPY header contains an unknown string");
        to[length++] = *s->at;
    }
    RG_CHECK(s->at < s->end, RG_MALFORMED, "the NPY header ends inside a string");
    s->at++;
    to[length] = 0;
    return RG_OK;
}

static rg_status scan_descr(scanner *s, header *h)
{
    char text[16];
    RG_TRY(scan_string(s, text, sizeof text));
    const char order = text[0];
    const bool known = order == '<' || order == '>' || order == '=' || order == '|';
    for (int i = 0; known && i < ELEMENT_TYPES; i++) {
        if (strcmp(text + 1, element_types[i].name) != 0)
            continue;
        h->dtype = element_types[i].dtype;
        h->swapped = (order == '<' || order == '>') && order != native_order;
        return RG_OK;
    }
    for (int i = 0; known && s->all_integers && i < INTEGER_TYPES; i++) {
        if (strcmp(text + 1, integer_types[i].name) != 0)
            continue;
        h->dtype = RG_I64;
        h->narrow = integer_types[i].narrow;
        h->swapped = (order == '<' || order == '>') && order != native_order;
        return RG_OK;
    }
    const bool a_type = known && strlen(text) > 2 && text[2 + strspn(text + 2, "0123456789")] == 0;
    return rg_fail(a_type ? RG_UNSUPPORTED : RG_MALFORMED,
                   "the element type is '%s'; f2, f4, f8, %s are supported", text,
                   s->all_integers ? "b1 and integers of 1 to 8 bytes" : "u1, b1, i4 and i8");
}

static rg_status scan_order(scanner *s, header *h)
{
    h->fortran = accept(s, "True");
    RG_CHECK(h->fortran || accept(s, "False"), RG_MALFORMED,
             "fortran_order in the NPY header is neither True nor False");
    return RG_OK;
}

static rg_status scan_size(scanner *s, int64_t *size)
{
    *size = 0;
    const char *start = s->at;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        RG_CHECK(!__builtin_mul_overflow(*size, 10, size) &&
                     !__builtin_add_overflow(*size, *s->at - '0', size),
                 RG_MALFORMED, "a dimension in the NPY header is too large");
    }
    RG_CHECK(s->at > start && (*start != '0' || s->at == start + 1), RG_MALFORMED,
             "the shape in the NPY header must consist of whole numbers of at least 0");
    if (s->at < s->end && *s->at == 'L') /* written by Python 2 */
        s->at++;
    return RG_OK;
}

/* (), (3,), (3, 4) or (3, 4,); but (3) is a number in Python. */
static rg_status scan_shape(scanner *s, header *h)
{
    RG_CHECK(accept(s, "("), RG_MALFORMED, "the shape in the NPY header is not a tuple");
    bool comma = true;
    while (!accept(s, ")")) {
        RG_CHECK(comma, RG_MALFORMED, "the shape in the NPY header lacks ',' or ')'");
        RG_CHECK(h->rank < RG_MAX_RANK, RG_UNSUPPORTED, "the tensor has more than %d dimensions",
                 RG_MAX_RANK);
        RG_TRY(scan_size(s, &h->dims[h->rank++]));
        comma = accept(s, ",");
    }
    RG_CHECK(h->rank != 1 || comma, RG_MALFORMED, "the shape in the NPY header is not a tuple");
    return RG_OK;
}

static rg_status scan_dictionary(scanner *s, header *h)
{
    static const char *const keys[] = { "descr", "fortran_order", "shape" };
    static rg_status (*const scan[])(scanner *, header *) = { scan_descr, scan_order, scan_shape };
    bool seen[3] = { false }, comma = true;
    RG_CHECK(accept(s, "{"), RG_MALFORMED, "the NPY header is not a dictionary");
    while (!accept(s, "}")) {
        char key[16];
        RG_CHECK(comma, RG_MALFORMED, "the NPY header lacks ',' or '}'");
        RG_TRY(scan_string(s, key, sizeof key));
        int i = 0;
        while (i < 3 && strcmp(key, keys[i]) != 0)
            i++;
        RG_CHECK(i < 3, RG_MALFORMED, "the NPY header has an unknown key '%s'", key);
        RG_CHECK(!seen[i], RG_MALFORMED, "the NPY header has %s twice", key);
        RG_CHECK(accept(s, ":"), RG_MALFORMED, "the NPY header lacks ':' after %s", key);
        RG_TRY(scan[i](s, h));
        seen[i] = true;
        comma = accept(s, ",");
    }
    skip_space(s);
    RG_CHECK(s->at == s->end, RG_MALFORMED, "the NPY header has text after its dictionary");
    for (int i = 0; i < 3; i++)
        RG_CHECK(seen[i], RG_MALFORMED, "the NPY header lacks %s", keys[i]);
    return RG_OK;
}

RG_PRIVATE_API rg_status rg_npy_header_parse(const char *text, size_t length, bool all_integers,
                                             rg_npy_header *h)
{
    *h = (header){ 0 };
    scanner s = { text, text + length, all_integers };
    RG_TRY(scan_dictionary(&s, h));
    const rg_tensor_desc desc = rg_tensor_desc_dense(h->dtype, h->rank, h->dims);
    RG_CHECK(rg_shape_check(&desc, "NPY", &h->bytes) == RG_OK, RG_MALFORMED, "%s", rg_error_text());
    if (h->narrow != 0)
        h->bytes = h->bytes / 8 * (size_t)abs(h->narrow);
    return RG_OK;
}

/* ---- reading ---- */

static rg_status take(rg_input *input, void *to, size_t size)
{
    size_t got;
    RG_TRY(rg_input_read(input, to, size, &got));
    RG_CHECK(got == size, RG_MALFORMED, "the file ends inside its NPY header");
    return RG_OK;
}

RG_PRIVATE_API rg_status rg_npy_start(const unsigned char start[RG_NPY_START], size_t *length_bytes)
{
    RG_CHECK(memcmp(start, magic, 6) == 0, RG_MALFORMED, "this is not an NPY file");
    const int major = start[6], minor = start[7];
    RG_CHECK(major >= 1 && major <= 3 && minor == 0, RG_UNSUPPORTED,
             "the NPY version is %d.%d; 1.0, 2.0 and 3.0 are supported", major, minor);
    *length_bytes = major == 1 ? 2 : 4;
    return RG_OK;
}

/* Reads what comes before the dictionary; `length` is that of the dictionary. */
static rg_status read_preamble(rg_input *input, size_t *length)
{
    unsigned char start[RG_NPY_START], size[4] = { 0 };
    size_t length_bytes = 0;
    RG_TRY(take(input, start, sizeof start));
    RG_TRY(rg_npy_start(start, &length_bytes));
    RG_TRY(take(input, size, length_bytes));
    *length =
        (size_t)size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16 | (size_t)size[3] << 24;
    RG_CHECK(!input->sized || *length <= input->left, RG_MALFORMED,
             "the NPY header has %zu bytes, but only %zu follow", *length, input->left);
    RG_CHECK(*length <= RG_NPY_HEADER, RG_MALFORMED,
             "the NPY header has %zu bytes; at most %d are supported", *length, RG_NPY_HEADER);
    return RG_OK;
}

static rg_status read_header(rg_input *input, const rg_allocator *allocator, header *h)
{
    size_t length = 0;
    void *text;
    RG_TRY(read_preamble(input, &length));
    RG_TRY(rg_allocate(allocator, length + 1, &text));
    rg_status status = take(input, text, length);
    if (status == RG_OK)
        status = rg_npy_header_parse(text, length, false, h);
    rg_release(allocator, text, length + 1);
    RG_TRY(status);
    RG_CHECK(!input->sized || h->bytes == input->left, RG_MALFORMED,
             "the NPY header declares %zu bytes of elements, but %zu follow", h->bytes,
             input->left);
    return RG_OK;
}

RG_PRIVATE_API void rg_npy_swap_bytes(char *data, size_t bytes, size_t element)
{
    for (size_t i = 0; i < bytes; i += element) {
        for (size_t k = 0; k < element / 2; k++) {
            const char byte = data[i + k];
            data[i + k] = data[i + element - 1 - k];
            data[i + element - 1 - k] = byte;
        }
    }
}

/* Elements in Fortran order are those of the reversed dimensions in C order, so they are written
 * through a view with the dimensions reversed. */
static rg_status write_fortran(rg_tensor *tensor, const header *h, const void *data)
{
    int32_t order[RG_MAX_RANK];
    for (int32_t d = 0; d < h->rank; d++)
        order[d] = h->rank - 1 - d;
    rg_tensor *view;
    RG_TRY(rg_tensor_permute(tensor, order, &view));
    const rg_status status = rg_tensor_write(view, data, h->bytes, RG_LAYOUT_SAME);
    rg_tensor_destroy(view);
    return status;
}

static rg_status make_tensor(rg_device *device, const header *h, const void *data,
                             rg_tensor **tensor)
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(h->dtype, h->rank, h->dims);
    rg_tensor *made;
    RG_TRY(rg_tensor_create(device, &desc, &made));
    const rg_status status = h->fortran && h->rank > 1
                                 ? write_fortran(made, h, data)
                                 : rg_tensor_write(made, data, h->bytes, RG_LAYOUT_SAME);
    if (status != RG_OK)
        rg_tensor_destroy(made);
    else
        *tensor = made;
    return status;
}

static rg_status load(rg_input *input, rg_device *device, rg_tensor **tensor)
{
    header h = { 0 };
    rg_bytes bytes;
    RG_TRY(read_header(input, &device->allocator, &h));
    RG_TRY(rg_input_rest(input, &device->allocator, h.bytes + 1, &bytes));
    rg_status status = RG_OK;
    if (bytes.size != h.bytes)
        status =
            rg_fail(RG_MALFORMED, "the NPY header declares %zu bytes of elements, but %s follow",
                    h.bytes, bytes.size < h.bytes ? "fewer" : "more");
    if (status == RG_OK && h.swapped)
        rg_npy_swap_bytes(bytes.data, h.bytes, rg_dtype_size(h.dtype));
    if (status == RG_OK)
        status = make_tensor(device, &h, bytes.data, tensor);
    rg_bytes_release(&device->allocator, &bytes);
    return status;
}

rg_status rg_tensor_load_npy(rg_device *device, const char *path, rg_tensor **tensor)
{
    RG_CHECK_NOT_NULL(tensor);
    *tensor = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(path);
    rg_input input;
    rg_status status = rg_input_open(&input, path);
    if (status == RG_OK) {
        status = load(&input, device, tensor);
        rg_input_close(&input);
    }
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    return status;
}

/* ---- writing ---- */

/* The longest header: ten bytes, the dictionary with eight dimensions, and padding. */
enum { WRITTEN_HEADER = 384 };

static size_t write_header(const rg_tensor_desc *desc, rg_dtype dtype, char *to)
{
    const char *name = NULL;
    for (int i = 0; i < ELEMENT_TYPES; i++) {
        if (name == NULL && element_types[i].dtype == dtype)
            name = element_types[i].name;
    }
    char shape[RG_MAX_RANK * 24] = "";
    size_t used = 0;
    for (int32_t d = 0; d < desc->rank; d++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld%s", d > 0 ? " " : "",
                                 (long long)desc->dims[d], d + 1 < desc->rank || d == 0 ? "," : "");
    memset(to, ' ', WRITTEN_HEADER);
    memcpy(to, magic, 6);
    const int length = snprintf(to + 10, WRITTEN_HEADER - 10,
                                "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s), }",
                                dtype == RG_U8 ? '|' : native_order, name, shape);
    to[10 + length] = ' ';
    const size_t whole = (10 + (size_t)length + 1 + HEADER_STEP - 1) / HEADER_STEP * HEADER_STEP;
    to[6] = 1;
    to[7] = 0;
    to[8] = (char)((whole - 10) & 0xff);
    to[9] = (char)((whole - 10) >> 8);
    to[whole - 1] = '\n';
    return whole;
}

/* Widens `count` bf16 values at the end of `data` to f32 from its start. Writing never overtakes
 * reading: f32 i ends at 4 i + 4 <= 2 count + 2 i + 2, where bf16 i ends. */
static void widen(char *data, size_t count)
{
    const char *from = data + 2 * count;
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        const float value = rg_float_of_bf16(bits);
        memcpy(data + 4 * i, &value, sizeof value);
    }
}

rg_status rg_tensor_save_npy(const rg_tensor *tensor, const char *path)
{
    RG_CHECK_NOT_NULL(tensor);
    RG_CHECK_NOT_NULL(path);
    const rg_tensor_desc *desc = &tensor->desc;
    const rg_dtype dtype = desc->dtype == RG_BF16 ? RG_F32 : desc->dtype;
    const size_t count = (size_t)rg_shape_count(desc);
    const size_t read = count * rg_dtype_size(desc->dtype); /* fits: the tensor exists */
    size_t bytes;
    char head[WRITTEN_HEADER];
    const size_t start = write_header(desc, dtype, head);
    RG_CHECK(rg_multiply(count, rg_dtype_size(dtype), &bytes) && bytes <= SIZE_MAX - start,
             RG_OUT_OF_MEMORY, "%s: the tensor is too large for a file", path);

    const rg_allocator *allocator = &tensor->device->allocator;
    void *memory;
    RG_TRY(rg_allocate(allocator, start + bytes, &memory));
    char *data = (char *)memory + start;
    memcpy(memory, head, start);
    rg_status status = rg_tensor_read(tensor, data + (bytes - read), read, RG_LAYOUT_SAME);
    if (status == RG_OK && desc->dtype == RG_BF16)
        widen(data, count);
    if (status == RG_OK)
        status = rg_file_write(path, memory, start + bytes);
    rg_release(allocator, memory, start + bytes);
    return status;
}
