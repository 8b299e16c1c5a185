/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* JSON text, and descriptors as JSON with fields of every type. */
#include "files/json.h"
#include "files/kernel_json.h"
#include "runtime/op.h"
#include "tests/test.h"

#include <retrograde/files.h>

#include <math.h>
#include <stdlib.h>

/* ---- JSON ---- */

static void test_json_values(void)
{
    static const char text[] = " { \"a\" : [ 1 , -0.5e+3, 0 ] ,\n\"b\":{},\"c\":[],"
                               "\"d\":\"\\u00e9\\ud83d\\ude00\\n\\/\\\\\\\"\\t\xc3\xa9\","
                               "\"\":null,\"t\":true,\"f\":false}\r\n\t ";
    rg_json json;
    EXPECT_OK(rg_json_read(&json, &rg_default_allocator, text, sizeof text - 1));
    const rg_json_value *root = json.root, *a = rg_json_find(root, "a");
    EXPECT(root->type == RG_JSON_OBJECT && root->count == 7 && root->at == 1);
    EXPECT(a->type == RG_JSON_ARRAY && a->count == 3);
    EXPECT(strcmp(a->first->text, "1") == 0 && strcmp(a->first->next->text, "-0.5e+3") == 0);
    EXPECT(strcmp(a->first->next->next->text, "0") == 0);
    EXPECT(rg_json_find(root, "b")->type == RG_JSON_OBJECT && rg_json_find(root, "b")->count == 0);
    EXPECT(rg_json_find(root, "c")->type == RG_JSON_ARRAY);
    EXPECT(strcmp(rg_json_find(root, "d")->text, "\xc3\xa9\xf0\x9f\x98\x80\n/\\\"\t\xc3\xa9") == 0);
    EXPECT(rg_json_find(root, "")->type == RG_JSON_NULL);
    EXPECT(rg_json_find(root, "t")->type == RG_JSON_TRUE);
    EXPECT(rg_json_find(root, "f")->type == RG_JSON_FALSE);
    EXPECT(rg_json_find(root, "none") == NULL && rg_json_find(a, "a") == NULL);
    rg_json_clear(&json);
}

static void test_json_refuses(void)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        { "", "line 1, column 1: expected a value, but the text ends" },
        { " \n ", "line 2, column 2: expected a value" },
        { "nul", "expected a value, not 'n'" },
        { "NaN", "expected a value" },
        { "True", "expected a value" },
        { "{", "expected a string" },
        { "{}}", "line 1, column 3: expected the end of the text, not '}'" },
        { "1 2", "expected the end" },
        { "[1,]", "expected a value, not ']'" },
        { "[1 2]", "expected ',' or ']', not '2'" },
        { "[1", "expected ',' or ']', but the text ends" },
        { "{\"a\":1,}", "expected a string, not '}'" },
        { "{\"a\" 1}", "expected ':'" },
        { "{a:1}", "expected a string, not 'a'" },
        { "{\"a\":1;\"b\":2}", "expected ',' or '}'" },
        { "{\"a\":1,\n \"b\":2, \"a\":3}", "line 2, column 13: the object has this key twice" },
        { "{\"a\":1,\"\\u0061\":2}", "twice" },
        { "01", "expected the end" },
        { "+1", "expected a value, not '+'" },
        { ".5", "expected a value" },
        { "1.", "expected a digit" },
        { "-", "expected a digit" },
        { "1e", "expected a digit" },
        { "1e+", "expected a digit" },
        { "0x10", "expected the end" },
        { "'a'", "expected a value" },
        { "\"a", "expected the end of a string" },
        { "\"a\nb\"", "control character" },
        { "\"\\x\"", "expected one of" },
        { "\"\\u12g4\"", "four hexadecimal digits, not 'g'" },
        { "\"\\u12", "four hexadecimal digits" },
        { "\"\\u0000\"", "character 0" },
        { "\"\\ud800\"", "surrogate" },
        { "\"\\ud800\\n\"", "surrogate" },
        { "\"\\ud800\\u0041\"", "surrogate" },
        { "\"\\udc00\"", "surrogate" },
        { "\"\xff\"", "not UTF-8" },
        { "\"\xc3\xa9\xc0\x80\"", "line 1, column 3: the text is not UTF-8" },
        { "\"\xed\xa0\x80\"", "not UTF-8" },
        { "\"\xe0\x80\x80\"", "not UTF-8" },
        { "\"\xf4\x90\x80\x80\"", "not UTF-8" },
        { "\"\xf0\x8f\xbf\xbf\"", "not UTF-8" },
        { "\"\xc3", "not UTF-8" },
        { "\xef\xbb\xbf{}", "expected a value, not the byte 0xef" },
        { "// no\n1", "expected a value, not '/'" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rg_json json;
        EXPECT_FAILS(
            rg_json_read(&json, &rg_default_allocator, cases[i].text, strlen(cases[i].text)),
            RG_MALFORMED, cases[i].words);
    }
    rg_json json;
    EXPECT_FAILS(rg_json_read(&json, &rg_default_allocator, "1\0", 2), RG_MALFORMED, "byte 0x00");
}

static rg_status read_repeated(const char *piece, size_t times, const char *end)
{
    const size_t length = strlen(piece), size = times * length + strlen(end);
    char *text = malloc(size + 1);
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * length, piece, length);
    memcpy(text + times * length, end, strlen(end) + 1);
    rg_json json;
    const rg_status status = rg_json_read(&json, &rg_default_allocator, text, size);
    if (status == RG_OK)
        rg_json_clear(&json);
    free(text);
    return status;
}

static void test_json_depth(void)
{
    char closing[RG_JSON_DEPTH + 1];
    memset(closing, ']', sizeof closing);
    closing[RG_JSON_DEPTH] = 0;
    EXPECT_OK(read_repeated("[", RG_JSON_DEPTH, closing));
    EXPECT_FAILS(read_repeated("[", RG_JSON_DEPTH + 1, closing), RG_MALFORMED, "64 levels");
    EXPECT_FAILS(read_repeated("[", 1000000, ""), RG_MALFORMED, "64 levels");
    EXPECT_FAILS(read_repeated("{\"a\":", 1000000, ""), RG_MALFORMED, "64 levels");
}

/* An object with very many members takes no longer than sorting them. */
static void test_json_many_keys(void)
{
    enum { COUNT = 200000, SIZE = 14 };
    char *text = malloc(COUNT * SIZE + 2);
    size_t used = 1;
    text[0] = '{';
    for (int i = 0; i < COUNT; i++)
        used += (size_t)snprintf(text + used, SIZE + 1, "\"%08d\":1,", i);
    text[used - 1] = '}';
    rg_json json;
    EXPECT_OK(rg_json_read(&json, &rg_default_allocator, text, used));
    EXPECT(json.root->count == COUNT);
    rg_json_clear(&json);
    text[2] = '9'; /* "90000000" is still unlike the others */
    EXPECT_OK(rg_json_read(&json, &rg_default_allocator, text, used));
    rg_json_clear(&json);
    memcpy(text + 2, "00199999", 8);
    EXPECT_FAILS(rg_json_read(&json, &rg_default_allocator, text, used), RG_MALFORMED, "twice");
    free(text);
}

static void test_json_strings_written(void)
{
    char text[64];
    rg_text to;
    rg_text_begin(&to, text, sizeof text);
    rg_text_add_string(&to, "a\"\\\n\x7f\xc3\xa9\xff/");
    EXPECT(strcmp(text, "\"a\\\"\\\\\\u000a\\u007f\xc3\xa9\\ufffd/\"") == 0);
    EXPECT(to.length == strlen(text));
    rg_text_begin(&to, text, 4); /* cut, and the whole length counted */
    rg_text_add_string(&to, "abcdef");
    EXPECT(strcmp(text, "\"ab") == 0 && to.length == 8);
    rg_text_begin(&to, NULL, 0);
    rg_text_add_string(&to, "abcdef");
    EXPECT(to.length == 8);
}

/* ---- descriptors, of all types of fields ---- */

typedef struct inner_desc {
    int32_t a;
    double b;
} inner_desc;

typedef struct outer_desc {
    inner_desc inner;
    bool on;
} outer_desc;

typedef struct made_up_desc {
    uint32_t size;
    int kind, kinds[2];
    bool flag;
    int32_t window[2];
    int32_t list_count;
    int64_t list[4];
    double scale, scales[2];
    bool has_limit;
    int64_t limit;
    outer_desc outer, other;
    bool has_pair;
    double pair[2];
} made_up_desc;

static const made_up_desc made_up_defaults = {
    .size = sizeof(made_up_desc), .window = { 2, 2 }, .scale = 1, .scales = { 1, 1 }
};
static const char *const made_up_kinds[] = { "plain", "log", "none", NULL };

#define AT(type, member) .name = #member, .offset = offsetof(type, member)
static const rg_field inner_fields[] = {
    { AT(inner_desc, a), .type = RG_FIELD_I32 },
    { AT(inner_desc, b), .type = RG_FIELD_F64 },
    { .name = NULL },
};
static const rg_field outer_fields[] = {
    { AT(outer_desc, inner), .type = RG_FIELD_GROUP, .fields = inner_fields },
    { AT(outer_desc, on), .type = RG_FIELD_BOOL },
    { .name = NULL },
};
static const rg_field made_up_fields[] = {
    { AT(made_up_desc, kind), .type = RG_FIELD_ENUM, .names = made_up_kinds },
    { AT(made_up_desc, kinds), .type = RG_FIELD_ENUM, .length = 2, .names = made_up_kinds },
    { AT(made_up_desc, flag), .type = RG_FIELD_BOOL },
    { AT(made_up_desc, window), .type = RG_FIELD_I32, .length = 2, .low = 1, .high = 100 },
    { AT(made_up_desc, outer), .type = RG_FIELD_GROUP, .fields = outer_fields },
    { AT(made_up_desc, other), .type = RG_FIELD_GROUP, .fields = outer_fields },
    { AT(made_up_desc, list), .type = RG_FIELD_I64, .length = 4,
      .count = offsetof(made_up_desc, list_count) },
    { AT(made_up_desc, scale), .type = RG_FIELD_F64 },
    { AT(made_up_desc, scales), .type = RG_FIELD_F64, .length = 2 },
    { AT(made_up_desc, limit), .type = RG_FIELD_I64, .present = offsetof(made_up_desc, has_limit) },
    { AT(made_up_desc, pair), .type = RG_FIELD_F64, .length = 2,
      .present = offsetof(made_up_desc, has_pair) },
    { .name = NULL },
};
static const rg_fields made_up = { made_up_fields, &made_up_defaults, sizeof(made_up_desc) };

/* Reads a descriptor on top of the defaults. */
static rg_status read_desc(const char *text, made_up_desc *desc)
{
    rg_json json;
    *desc = made_up_defaults;
    EXPECT_OK(rg_json_read(&json, &rg_default_allocator, text, strlen(text)));
    const rg_status status = rg_fields_from_json(&made_up, "made_up", &json, json.root, desc);
    rg_json_clear(&json);
    return status;
}

static void expect_desc(const made_up_desc *desc, const char *wanted)
{
    char text[1024];
    rg_text to;
    rg_text_begin(&to, text, sizeof text);
    rg_fields_to_json(&made_up, desc, &to);
    EXPECT(strcmp(text, wanted) == 0);
    made_up_desc again;
    EXPECT_OK(read_desc(text, &again));
    EXPECT(rg_fields_equal(&made_up, desc, &again));
}

static void test_desc_round_trips(void)
{
    made_up_desc desc = made_up_defaults;
    expect_desc(&desc,
                "{\"kind\": \"plain\", \"kinds\": [\"plain\", \"plain\"], \"flag\": false, "
                "\"window\": [2, 2], \"outer\": {\"inner\": {\"a\": 0, \"b\": 0}, \"on\": false}, "
                "\"other\": {\"inner\": {\"a\": 0, \"b\": 0}, \"on\": false}, \"list\": [], "
                "\"scale\": 1, \"scales\": [1, 1], \"limit\": null, \"pair\": null}");
    desc.kind = 2;
    desc.kinds[1] = 1;
    desc.flag = desc.has_limit = desc.has_pair = desc.other.on = true;
    desc.list_count = 3;
    desc.list[0] = INT64_MIN;
    desc.list[1] = INT64_MAX;
    desc.window[0] = 100;
    desc.scale = 0.1;
    desc.scales[0] = -1.7976931348623157e308;
    desc.scales[1] = 5e-324;
    desc.outer.inner = (inner_desc){ INT32_MIN, 1e22 };
    desc.limit = -1;
    desc.pair[1] = 2.5;
    expect_desc(&desc,
                "{\"kind\": \"none\", \"kinds\": [\"plain\", \"log\"], \"flag\": true, "
                "\"window\": [100, 2], \"outer\": {\"inner\": {\"a\": -2147483648, "
                "\"b\": 1e+22}, \"on\": false}, \"other\": {\"inner\": {\"a\": 0, \"b\": 0}, "
                "\"on\": true}, \"list\": [-9223372036854775808, 9223372036854775807, 0], "
                "\"scale\": 0.1, \"scales\": [-1.7976931348623157e+308, 5e-324], \"limit\": -1, "
                "\"pair\": [0, 2.5]}");
}

static void test_desc_refuses(void)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        { "[]", "expected an object of fields" },
        { "{\"other\": 3}", "expected an object of fields" },
        { "{\"colour\": 3}", "column 12: made_up has no field \"colour\"" },
        { "{\"a\\u001b\": 3}", "made_up has no field \"a\\u001b\"" },
        { "{\"outer.on\": true}", "has no field \"outer.on\"" },
        { "{\"outer\": {\"inner\": {\"c\": 1}}}", "has no field \"c\"" },
        { "{\"kind\": 1}", "line 1, column 10: made_up: kind must be one of its names" },
        { "{\"kind\": \"lo\"}", "line 1, column 10: made_up: kind must be one of its names" },
        { "{\"kind\": null}", "line 1, column 10: made_up: kind must be one of its names" },
        { "{\"kinds\": [\"plain,log\"]}",
          "line 1, column 12: made_up: kinds must be one of its names" },
        { "{\"kinds\": [\"log\"]}", "needs 2 values, not 1" },
        { "{\"flag\": \"true\"}", "line 1, column 10: made_up: flag must be true or false" },
        { "{\"flag\": 1}", "line 1, column 10: made_up: flag must be true or false" },
        { "{\"window\": 3}", "line 1, column 12: made_up: window must be an array" },
        { "{\"window\": \"3,3\"}", "line 1, column 12: made_up: window must be an array" },
        { "{\"window\": [3]}", "needs 2 values, not 1" },
        { "{\"window\": [3, 3, 3]}", "at most 2 values, not 3" },
        { "{\"window\": [3, [3]]}", "line 1, column 16: made_up: window must be a whole number" },
        { "{\"window\": [3, 3000000000]}", "too large" },
        { "{\"window\": null}", "line 1, column 12: made_up: window must be an array" },
        { "{\"list\": [1, 2.0]}", "column 14: made_up: list must be a whole number" },
        { "{\"list\": [9223372036854775808]}", "too large" },
        { "{\"list\": [1, 2, 3, 4, 5]}", "at most 4 values, not 5" },
        { "{\"limit\": 1.5}", "line 1, column 11: made_up: limit must be a whole number, or null" },
        { "{\"limit\": 1e3}", "line 1, column 11: made_up: limit must be a whole number, or null" },
        { "{\"limit\": \"none\"}",
          "line 1, column 11: made_up: limit must be a whole number, or null" },
        { "{\"scale\": \"1\"}", "scale must be a number" },
        { "{\"scale\": 1e999}", "scale must be a number" },
        { "{\"scale\": {}}", "scale must be a number" },
        { "{\"scale\": 0.00000000000000000000000000000000000000000000000000000000000000001}",
          "longer than 63" },
        { "{\"outer\": {\"inner\": {\"a\": \"1\"}}}",
          "line 1, column 27: made_up: outer.inner.a must be a whole number" },
    };
    made_up_desc desc;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        EXPECT_FAILS(read_desc(cases[i].text, &desc), RG_MALFORMED, cases[i].words);
}

static void test_made_up_kernel(void)
{
    static const char *const names[] = { "x", NULL };
    const rg_op op = { .name = "made_up", .desc = made_up, .inputs = names, .outputs = names };
    made_up_desc desc = made_up_defaults;
    desc.scale = INFINITY;
    rg_device *cpu = NULL;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_device_create("cpu", NULL, &cpu));
    EXPECT_OK(rg_kernel_create(cpu, &op, &desc, &kernel));
    char text[1024];
    EXPECT(rg_kernel_to_json(kernel, text, sizeof text) == strlen(text));
    EXPECT(strstr(text, "\"op\": \"made_up\"") && strstr(text, "\"scale\": \"inf\", "));
    rg_json json; /* valid JSON all the same */
    EXPECT_OK(rg_json_read(&json, &rg_default_allocator, text, strlen(text)));
    rg_json_clear(&json);
    rg_kernel_destroy(kernel);
    rg_device_destroy(cpu);
}

int main(void)
{
    test_json_values();
    test_json_refuses();
    test_json_depth();
    test_json_many_keys();
    test_json_strings_written();
    test_desc_round_trips();
    test_desc_refuses();
    test_made_up_kernel();
    return rg_test_report();
}
