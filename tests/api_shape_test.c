/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Shapes, overlap and walks of core, against the enumeration of every element. */
#include "api.h"
#include "core/shape.h"
#include "core/walk.h"

enum { SPAN = 256 };

/* Calls for every element: its offset in elements, in row-major order. */
static int64_t list_offsets(const rg_tensor_desc *desc, int64_t offsets[], int64_t most)
{
    int64_t index[RG_MAX_RANK] = { 0 }, listed = 0;
    const int64_t count = rg_shape_count(desc);
    for (int64_t i = 0; i < count && i < most; i++) {
        int64_t offset = 0;
        for (int32_t d = 0; d < desc->rank; d++)
            offset += index[d] * desc->strides[d];
        offsets[listed++] = offset;
        for (int32_t d = desc->rank - 1; d >= 0 && ++index[d] == desc->dims[d]; d--)
            index[d] = 0;
    }
    return listed;
}

static rg_tensor_desc draw_desc(uint64_t *seed)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_U8 };
    rg_tensor_desc desc = { .dtype = dtypes[draw_from(seed, 0, 3)] };
    desc.rank = (int32_t)draw_from(seed, 0, 4);
    for (int32_t d = 0; d < desc.rank; d++) {
        desc.dims[d] = draw_from(seed, 0, 9) == 0 ? 0 : draw_from(seed, 1, 4);
        desc.strides[d] = draw_from(seed, 0, draw_from(seed, 0, 1) ? 4 : 16);
    }
    return desc;
}

static void test_self_overlap(void)
{
    uint64_t seed = 11;
    int wrong = 0, met = 0;
    for (int i = 0; i < 50000; i++) {
        const rg_tensor_desc desc = draw_desc(&seed);
        int64_t offsets[SPAN];
        const int64_t count = list_offsets(&desc, offsets, SPAN);
        bool twice = false;
        bool taken[SPAN] = { false };
        for (int64_t k = 0; k < count; k++) {
            twice |= taken[offsets[k]];
            taken[offsets[k]] = true;
        }
        wrong += rg_shape_overlaps_itself(&desc) != twice;
        met += twice;
    }
    EXPECT(wrong == 0);
    EXPECT(met > 1000 && met < 49000);
}

/* Bytes of both, by enumeration. */
static bool share_a_byte(const rg_tensor_desc *a, const rg_tensor_desc *b, int64_t distance)
{
    enum { BYTES = 8 * SPAN, MIDDLE = BYTES };
    static unsigned char used[3 * BYTES];
    memset(used, 0, sizeof used);
    int64_t offsets[SPAN];
    int64_t size = (int64_t)rg_dtype_size(a->dtype), count = list_offsets(a, offsets, SPAN);
    for (int64_t i = 0; i < count; i++)
        memset(used + MIDDLE + offsets[i] * size, 1, (size_t)size);
    size = (int64_t)rg_dtype_size(b->dtype);
    count = list_offsets(b, offsets, SPAN);
    for (int64_t i = 0; i < count; i++) {
        for (int64_t k = 0; k < size; k++) {
            if (used[MIDDLE + distance + offsets[i] * size + k])
                return true;
        }
    }
    return false;
}

/* `exact`: neither answer may be wrong; otherwise "apart" must be true. */
static void test_overlap_of(rg_tensor_desc (*second)(const rg_tensor_desc *, uint64_t *),
                            bool exact)
{
    uint64_t seed = 13;
    int missed = 0, invented = 0, met = 0;
    for (int i = 0; i < 30000; i++) {
        const rg_tensor_desc a = draw_desc(&seed), b = second(&a, &seed);
        const int64_t size = (int64_t)rg_dtype_size(a.dtype);
        int64_t distance = draw_from(&seed, -60, 60) * size;
        if (!exact && i % 4 == 0)
            distance += draw_from(&seed, -size, size);
        const bool wanted = share_a_byte(&a, &b, distance);
        const bool got = rg_shape_overlaps(&a, &b, distance);
        missed += wanted && !got;
        invented += got && !wanted;
        met += wanted;
    }
    EXPECT(missed == 0);
    EXPECT(!exact || invented == 0);
    EXPECT(met > 500);
}

static rg_tensor_desc equal_desc(const rg_tensor_desc *a, uint64_t *seed)
{
    (void)seed;
    return *a;
}

static rg_tensor_desc equal_strides(const rg_tensor_desc *a, uint64_t *seed)
{
    rg_tensor_desc b = *a;
    for (int32_t d = 0; d < b.rank; d++)
        b.dims[d] = draw_from(seed, 1, 4);
    return b;
}

static rg_tensor_desc any_desc(const rg_tensor_desc *a, uint64_t *seed)
{
    (void)a;
    return draw_desc(seed);
}

/* Channel slices of different widths, as a concatenation uses them, lie between each other. */
static void test_channel_slices(void)
{
    rg_tensor_desc a = rg_tensor_desc_dense(RG_F32, 4, DIMS(2, 5, 5, 8));
    rg_tensor_desc b = a;
    a.dims[3] = 3;
    b.dims[3] = 5;
    EXPECT(!rg_shape_overlaps(&a, &b, 3 * 4));
    EXPECT(rg_shape_overlaps(&a, &b, 2 * 4));
    EXPECT(!rg_shape_overlaps(&b, &a, -3 * 4));
    a.dims[0] = 1; /* one image of both */
    EXPECT(!rg_shape_overlaps(&a, &b, 3 * 4));
    /* Long dimensions do not make it slow or wrong. */
    rg_tensor_desc c = rg_tensor_desc_dense(RG_F32, 3, DIMS(1000000, 1000, 1000));
    c.dims[2] = 500;
    EXPECT(!rg_shape_overlaps(&c, &c, 500 * 4));
    EXPECT(rg_shape_overlaps(&c, &c, 499 * 4));
    EXPECT(!rg_shape_overlaps_itself(&c));
    c.strides[1] = 499;
    EXPECT(rg_shape_overlaps_itself(&c));
}

/* ---- sizes ---- */

static void test_sizes(void)
{
    size_t reach;
    const int64_t big = INT64_C(1) << 62;
    rg_tensor_desc d = rg_tensor_desc_dense(RG_F32, 2, DIMS(3, 5));
    EXPECT_OK(rg_shape_check(&d, "here", &reach));
    EXPECT(reach == 60 && rg_shape_is_dense(&d));
    d.strides[0] = 7;
    EXPECT_OK(rg_shape_check(&d, "here", &reach));
    EXPECT(reach == (2 * 7 + 4 + 1) * 4 && !rg_shape_is_dense(&d));
    d = rg_tensor_desc_dense(RG_F64, 0, NULL);
    EXPECT_OK(rg_shape_check(&d, "here", &reach));
    EXPECT(reach == 8);
    d = rg_tensor_desc_dense(RG_U8, 1, DIMS(INT64_C(1) << 56)); /* the most there can be */
    EXPECT_OK(rg_shape_check(&d, "here", &reach));
    EXPECT(reach == (size_t)1 << 56);
    const rg_tensor_desc bad[] = {
        rg_tensor_desc_dense(RG_U8, 1, DIMS((INT64_C(1) << 56) + 1)),
        rg_tensor_desc_dense(RG_F32, 2, DIMS(0, INT64_C(1) << 60)),
        rg_tensor_desc_dense(RG_F16, 1, DIMS(INT64_MAX)),
        rg_tensor_desc_dense(RG_F32, 1, DIMS(INT64_C(1) << 61)),
        rg_tensor_desc_dense(RG_U8, 2, DIMS(INT64_C(1) << 32, INT64_C(1) << 31)),
        rg_tensor_desc_dense(RG_U8, 3, DIMS(big, 4, 0)),
        rg_tensor_desc_dense(RG_U8, 8, DIMS(256, 256, 256, 256, 256, 256, 256, 256)),
        rg_tensor_desc_dense(RG_F32, 1, DIMS(-1)),
        rg_tensor_desc_dense(RG_F32, 1, DIMS(INT64_MIN)),
        rg_tensor_desc_dense(RG_F32, 9, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1)),
        rg_tensor_desc_dense(RG_F32, -1, DIMS(1)),
        rg_tensor_desc_dense(RG_F32, INT32_MIN, NULL),
        rg_tensor_desc_dense(RG_F32, 2, NULL),
        rg_tensor_desc_dense((rg_dtype)7, 1, DIMS(1)),
        { .dtype = RG_F32, .rank = 1, .dims = { 2 }, .strides = { -1 } },
        { .dtype = RG_F32, .rank = 2, .dims = { 2, 2 }, .strides = { big, big } },
        { .dtype = RG_F32, .rank = 1, .dims = { 2 }, .strides = { INT64_MAX } },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        EXPECT_FAILS(rg_shape_check(&bad[i], "here", &reach), RG_INVALID_ARGUMENT, "here: ");
    char text[RG_SHAPE_TEXT];
    EXPECT(strcmp(rg_shape_text(&(rg_tensor_desc){ .dtype = RG_BF16, .rank = 2, .dims = { 3, 4 } },
                                text),
                  "bf16[3, 4]") == 0);
    d = (rg_tensor_desc){ .dtype = RG_F32, .rank = 8 };
    for (int i = 0; i < 8; i++)
        d.dims[i] = INT64_MIN;
    EXPECT(strlen(rg_shape_text(&d, text)) < RG_SHAPE_TEXT);
}

/* ---- walks ---- */

static void test_walks(void)
{
    uint64_t seed = 17;
    int wrong = 0, merged = 0;
    for (int i = 0; i < 20000; i++) {
        const rg_tensor_desc a = draw_desc(&seed);
        rg_tensor_desc b = rg_tensor_desc_dense(a.dtype, a.rank, a.dims);
        const rg_tensor_desc *const both[] = { i % 2 ? &a : &b, &b };
        rg_walk walk = rg_walk_make(both, 2, 0, a.rank);
        int64_t wanted[2][SPAN];
        const int64_t count = list_offsets(both[0], wanted[0], SPAN);
        list_offsets(both[1], wanted[1], SPAN);
        wrong += walk.count != count;
        merged += walk.rank < a.rank;
        for (int64_t k = 0; k < count; k++) {
            int64_t offsets[2];
            rg_walk_offsets(&walk, 2, k, offsets);
            wrong += offsets[0] != wanted[0][k] || offsets[1] != wanted[1][k];
        }
        int64_t step[2], seen = 0;
        const int64_t length = rg_walk_take_inner(&walk, 2, step);
        for (int64_t k = 0; count > 0 && k < walk.count; k++) {
            int64_t offsets[2];
            rg_walk_offsets(&walk, 2, k, offsets);
            for (int64_t j = 0; j < length; j++, seen++)
                wrong += offsets[0] + j * step[0] != wanted[0][seen];
        }
        wrong += seen != count;
        const int32_t cut = a.rank / 2; /* the same, put together from two halves */
        const rg_walk tail = rg_walk_make(both, 2, cut, a.rank);
        const rg_walk whole = rg_walk_around(both, 2, cut, &tail);
        wrong += whole.count != count;
        for (int64_t k = 0; k < count; k++) {
            int64_t offsets[2];
            rg_walk_offsets(&whole, 2, k, offsets);
            wrong += offsets[0] != wanted[0][k] || offsets[1] != wanted[1][k];
        }
    }
    EXPECT(wrong == 0);
    EXPECT(merged > 100);
}

int main(void)
{
    test_sizes();
    test_self_overlap();
    test_overlap_of(equal_desc, true);
    test_overlap_of(equal_strides, true);
    test_overlap_of(any_desc, false);
    test_channel_slices();
    test_walks();
    return rg_test_report();
}
