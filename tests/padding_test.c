/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Padding: MPS's published numbers, ONNX's auto_pad, and bad arguments. */
#include "api.h"

#include <retrograde/padding.h>

static rg_window window_of(int64_t n, int32_t k, int32_t s)
{
    return (rg_window){
        .source = { n, n }, .window = { k, k }, .stride = { s, s }, .dilation = { 1, 1 }
    };
}

static rg_placement resolved(rg_padding padding, rg_window window)
{
    rg_placement placement = { 0 };
    EXPECT_OK(rg_padding_resolve(&padding, &window, &placement));
    return placement;
}

/* n, K, s; valid, same, full: windows, offset with the remainder at the top left and at the bottom
 * right; sizes of the reverse. */
static const int published[][15] = {
    { 5, 2, 1, 4, 1, 1, 5, 0, 1, 6, 0, 0, 4, 5, 6 },
    { 5, 2, 2, 2, 1, 1, 3, 0, 1, 3, 0, 1, 8, 9, 10 },
    { 5, 3, 1, 3, 1, 1, 5, 0, 0, 7, -1, -1, 3, 5, 7 },
    { 5, 3, 2, 2, 1, 1, 3, 0, 0, 4, -1, -1, 7, 9, 11 },
    { 5, 3, 3, 1, 1, 2, 2, 0, 1, 3, -1, -1, 11, 13, 15 },
    { 8, 2, 2, 4, 1, 1, 4, 1, 1, 5, 0, 0, 14, 15, 16 },
    { 8, 3, 1, 6, 1, 1, 8, 0, 0, 10, -1, -1, 6, 8, 10 },
    { 8, 3, 2, 3, 1, 1, 4, 0, 1, 5, -1, 0, 13, 15, 17 },
    { 8, 5, 2, 2, 2, 2, 4, 0, 1, 6, -2, -1, 11, 15, 19 },
    { 28, 5, 1, 24, 2, 2, 28, 0, 0, 32, -2, -2, 24, 28, 32 },
    { 28, 2, 2, 14, 1, 1, 14, 1, 1, 15, 0, 0, 54, 55, 56 },
    { 28, 3, 2, 13, 1, 1, 14, 0, 1, 15, -1, 0, 53, 55, 57 },
};

static void test_published(void)
{
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        const int *row = published[i];
        rg_window window = window_of(row[0], row[1], row[2]);
        for (int size = 0; size < 3; size++) {
            rg_padding padding = { .policy = (rg_padding_policy)(RG_PADDING_VALID + size) };
            const rg_placement front = resolved(padding, window);
            padding.remainder = RG_REMAINDER_BOTTOM_RIGHT;
            const rg_placement back = resolved(padding, window);
            for (int axis = 0; axis < 2; axis++) {
                EXPECT(front.output[axis] == row[3 + 3 * size]);
                EXPECT(front.offset[axis] == row[4 + 3 * size]);
                EXPECT(back.output[axis] == row[3 + 3 * size]);
                EXPECT(back.offset[axis] == row[5 + 3 * size]);
                EXPECT(front.before[axis] + row[0] + front.after[axis] ==
                       (front.output[axis] - 1) * row[2] + row[1]);
            }
            window.transposed = true;
            EXPECT(resolved(padding, window).output[0] == row[12 + size]);
            window.transposed = false;
        }
    }
}

static void test_sides(void)
{
    const rg_window window = window_of(8, 3, 2); /* same: one pixel is missing */
    static const int before[4][2] = { { 1, 1 }, { 1, 0 }, { 0, 1 }, { 0, 0 } };
    for (int i = 0; i < 4; i++) {
        const rg_padding padding = { .policy = RG_PADDING_SAME,
                                     .remainder = (rg_padding_remainder)i };
        const rg_placement at = resolved(padding, window);
        EXPECT(at.before[0] == before[i][0] && at.before[1] == before[i][1]);
        EXPECT(at.after[0] == 1 - before[i][0] && at.after[1] == 1 - before[i][1]);
    }
    const rg_padding first = { .policy = RG_PADDING_FULL, .align = RG_PADDING_TOP_LEFT };
    const rg_padding last = { .policy = RG_PADDING_FULL, .align = RG_PADDING_BOTTOM_RIGHT };
    EXPECT(resolved(first, window).before[0] == 3 && resolved(first, window).after[1] == 0);
    EXPECT(resolved(last, window).before[0] == 0 && resolved(last, window).after[1] == 3);
}

static void test_inverse(void)
{
    rg_padding padding = { .policy = RG_PADDING_VALID, .remainder = RG_REMAINDER_TOP_RIGHT };
    rg_window window = window_of(9, 4, 1);
    window.dilation[0] = 2;
    const rg_placement there = resolved(padding, window);
    window.source[0] = there.output[0];
    window.source[1] = there.output[1];
    window.transposed = true;
    const rg_padding back = rg_padding_inverse(padding);
    EXPECT(back.policy == RG_PADDING_FULL && back.remainder == RG_REMAINDER_TOP_RIGHT);
    EXPECT(resolved(back, window).output[0] == 9 && resolved(back, window).output[1] == 9);
    EXPECT(resolved(back, window).offset[0] == -3); /* -floor((K - 1) / 2), K = 7 */
    EXPECT(resolved(back, window).before[0] == 0);
    EXPECT(rg_padding_inverse(back).policy == RG_PADDING_VALID);
    padding.policy = RG_PADDING_SAME;
    EXPECT(rg_padding_inverse(padding).policy == RG_PADDING_SAME);
}

static void test_onnx(void)
{
    const rg_padding upper = { .policy = RG_PADDING_SAME_UPPER };
    const rg_padding lower = { .policy = RG_PADDING_SAME_LOWER }, valid = { .top = 0 };
    const rg_window window = window_of(32, 3, 2);
    EXPECT(resolved(upper, window).output[0] == 16);
    EXPECT(resolved(upper, window).before[0] == 0 && resolved(upper, window).after[0] == 1);
    EXPECT(resolved(lower, window).before[1] == 1 && resolved(lower, window).after[1] == 0);
    EXPECT(resolved(valid, window).output[0] == 15);
    const rg_window sparse = window_of(9, 1, 5); /* nothing is missing: the first pixel is taken */
    EXPECT(resolved(upper, sparse).output[0] == 2 && resolved(upper, sparse).before[0] == 0);
    rg_window back = window_of(4, 3, 2);
    back.transposed = true;
    EXPECT(resolved(upper, back).output[0] == 8);
    EXPECT(resolved(upper, back).before[0] == 0 && resolved(upper, back).after[0] == 1);
    EXPECT(resolved(lower, back).before[0] == 1 && resolved(lower, back).after[0] == 0);
}

static void test_explicit(void)
{
    const rg_padding padding = { .top = 1, .left = -2, .bottom = 2, .right = 0 };
    rg_window window = window_of(10, 3, 2);
    EXPECT(resolved(padding, window).output[0] == 6 && resolved(padding, window).output[1] == 3);
    EXPECT(resolved(padding, window).offset[0] == 0 && resolved(padding, window).offset[1] == 3);
    window.ceil_mode = true;
    EXPECT(resolved(padding, window).output[1] == 4 && resolved(padding, window).after[1] == 1);
    const rg_padding wide = { .bottom = 3, .right = 3 };
    rg_window step = window_of(3, 2, 3);
    step.ceil_mode = true; /* a third window would begin behind the image */
    EXPECT(resolved(wide, step).output[0] == 2);
    window.ceil_mode = false;
    window.output[0] = 20;
    EXPECT(resolved(padding, window).output[0] == 20 && resolved(padding, window).after[0] == 30);
    window = window_of(4, 3, 2);
    window.transposed = true;
    EXPECT(resolved((rg_padding){ .top = 1, .bottom = 1 }, window).output[0] == 7);
    EXPECT(resolved((rg_padding){ .top = 1, .bottom = 1 }, window).output[1] == 9);
}

static void test_mps_methods(void)
{
    rg_padding padding;
    EXPECT_OK(rg_padding_from_mps(0x10, &padding));
    EXPECT(padding.policy == RG_PADDING_SAME && padding.align == RG_PADDING_CENTERED &&
           padding.remainder == RG_REMAINDER_TOP_LEFT);
    EXPECT_OK(rg_padding_from_mps(0x20 | 0xc | 1 | 0x8000 | 0x4000 | 0x2000, &padding));
    EXPECT(padding.policy == RG_PADDING_FULL && padding.align == RG_PADDING_TOP_LEFT &&
           padding.remainder == RG_REMAINDER_BOTTOM_RIGHT);
    static const uint64_t bad[] = { 3, 0x30, 0x40, 0x800, 0x10000, UINT64_MAX };
    for (int i = 0; i < 6; i++)
        EXPECT_FAILS(rg_padding_from_mps(bad[i], &padding), RG_INVALID_ARGUMENT, "Method");
    EXPECT_FAILS(rg_padding_from_mps(0, NULL), RG_INVALID_ARGUMENT, "padding is NULL");
}

static void refused(rg_padding padding, rg_window window, const char *words)
{
    rg_placement placement = { .output = { 77, 78 } };
    EXPECT_FAILS(rg_padding_resolve(&padding, &window, &placement), RG_INVALID_ARGUMENT, words);
    EXPECT(placement.output[0] == 77 && placement.output[1] == 78);
}

static void test_bad_windows(void)
{
    const rg_padding none = { .top = 0 }, valid = { .policy = RG_PADDING_VALID };
    const rg_window good = window_of(8, 3, 2);
    static const int32_t sizes[] = { 0, -1, INT32_MIN };
    for (int i = 0; i < 3; i++) {
        rg_window bad = good;
        bad.window[1] = sizes[i];
        refused(none, bad, "columns; it must have at least 1");
        bad = good;
        bad.stride[0] = sizes[i];
        refused(valid, bad, "rows; it must be at least 1");
        bad = good;
        bad.dilation[0] = sizes[i];
        refused(none, bad, "dilation");
    }
    rg_window bad = good;
    bad.source[0] = -1;
    refused(none, bad, "must have between 0 and 2^48");
    bad.source[0] = INT64_MAX;
    refused(none, bad, "must have between 0 and 2^48");
    bad = good;
    bad.output[1] = -5;
    refused(none, bad, "must have between 0 and 2^48");
    bad = good;
    bad.window[0] = bad.dilation[0] = INT32_MAX;
    refused(
        none, bad,
        "padding: a window of 2147483647 rows with a dilation of 2147483647 covers more than 2^48");
    bad = good;
    bad.output[0] = INT64_C(1) << 48;
    bad.stride[0] = INT32_MAX;
    refused(none, bad, "cover more than 2^48");
    bad.transposed = true;
    bad.source[0] = INT64_C(1) << 48;
    refused(none, bad, "cover more than 2^48");
    refused(none, window_of(2, 3, 1), "does not fit");
    refused(valid, window_of(2, 3, 1), "does not fit");
    refused(none, window_of(0, 1, 1), "does not fit");
    refused((rg_padding){ .top = -6 }, good, "does not fit");
    refused((rg_padding){ .policy = RG_PADDING_SAME }, window_of(0, 3, 1), "does not fit");
    bad = window_of(3, 3, 1);
    bad.transposed = true;
    refused(valid, window_of(0, 3, 1), "does not fit");
    refused((rg_padding){ .top = 3, .bottom = 2 }, bad,
            "padding: cropping 5 of 5 rows leaves an empty output");
    bad.source[1] = 0;
    refused(none, bad, "are fewer than 1 or cover more than 2^48");
}

static void test_bad_paddings(void)
{
    const rg_window good = window_of(8, 3, 2);
    rg_padding padding = { .top = 0 };
    rg_placement placement;
    static const int numbers[] = { -1, 99, INT32_MAX, INT32_MIN };
    for (int i = 0; i < 4; i++) {
        rg_padding bad = padding;
        memcpy(&bad.policy, &numbers[i], sizeof bad.policy);
        refused(bad, good, "policy");
        bad = padding;
        memcpy(&bad.align, &numbers[i], sizeof bad.align);
        refused(bad, good, "align");
        bad = padding;
        memcpy(&bad.remainder, &numbers[i], sizeof bad.remainder);
        refused(bad, good, "remainder");
    }
    EXPECT_FAILS(rg_padding_resolve(NULL, &good, &placement), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_padding_resolve(&padding, NULL, &placement), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_padding_resolve(&padding, &good, NULL), RG_INVALID_ARGUMENT, "NULL");
    padding.top = padding.bottom = padding.left = padding.right = INT32_MAX; /* large, and fine */
    EXPECT(resolved(padding, good).before[0] == INT32_MAX);
}

int main(void)
{
    test_published();
    test_sides();
    test_inverse();
    test_onnx();
    test_explicit();
    test_mps_methods();
    test_bad_windows();
    test_bad_paddings();
    return rg_test_report();
}
