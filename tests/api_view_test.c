/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Views of views, each against a list of the elements that it must show. */
#include "api.h"

enum { MOST = 4096 };

/* A tensor and, in row-major order, the numbers of the elements it shows. */
typedef struct model {
    rg_tensor *tensor;
    int32_t rank;
    int64_t dims[RG_MAX_RANK];
    int64_t count;
    int32_t at[MOST];
} model;

static bool shows(const model *m)
{
    static int32_t values[MOST];
    rg_tensor_desc desc;
    if (rg_tensor_get_desc(m->tensor, &desc) != RG_OK || desc.rank != m->rank)
        return false;
    for (int32_t d = 0; d < m->rank; d++) {
        if (desc.dims[d] != m->dims[d] || desc.strides[d] < 0)
            return false;
    }
    const size_t bytes = (size_t)m->count * sizeof values[0];
    return rg_tensor_read(m->tensor, values, bytes, RG_LAYOUT_SAME) == RG_OK &&
           memcmp(values, m->at, bytes) == 0;
}

/* The view replaces the tensor. */
static void step_to(model *m, rg_tensor *view, const model *shape)
{
    rg_tensor_destroy(m->tensor);
    *m = *shape;
    m->tensor = view;
}

static void draw_slice(model *m, uint64_t *seed)
{
    static model next;
    next = *m;
    int64_t start[RG_MAX_RANK], length[RG_MAX_RANK], step[RG_MAX_RANK];
    for (int32_t d = 0; d < m->rank; d++) {
        start[d] = draw_from(seed, 0, m->dims[d] - 1);
        step[d] = draw_from(seed, 1, 3);
        length[d] = draw_from(seed, 1, (m->dims[d] - 1 - start[d]) / step[d] + 1);
        next.dims[d] = length[d];
    }
    next.count = 0;
    for (int64_t i = 0; i < m->count; i++) {
        bool inside = true;
        int64_t rest = i;
        for (int32_t d = m->rank - 1; d >= 0; rest /= m->dims[d], d--) {
            const int64_t from = rest % m->dims[d] - start[d];
            inside &= from >= 0 && from % step[d] == 0 && from / step[d] < length[d];
        }
        if (inside)
            next.at[next.count++] = m->at[i];
    }
    rg_tensor *view = NULL;
    EXPECT_OK(rg_tensor_slice(m->tensor, start, length, step, &view));
    step_to(m, view, &next);
}

static void draw_permutation(model *m, uint64_t *seed)
{
    static model next;
    next = *m;
    int32_t order[RG_MAX_RANK];
    for (int32_t d = 0; d < m->rank; d++) {
        const int32_t k = (int32_t)draw_from(seed, 0, d);
        order[d] = order[k];
        order[k] = d;
    }
    for (int32_t d = 0; d < m->rank; d++)
        next.dims[d] = m->dims[order[d]];
    for (int64_t i = 0; i < m->count; i++) {
        int64_t index[RG_MAX_RANK], rest = i, at = 0;
        for (int32_t d = m->rank - 1; d >= 0; rest /= next.dims[d], d--)
            index[order[d]] = rest % next.dims[d];
        for (int32_t d = 0; d < m->rank; d++)
            at = at * m->dims[d] + index[d];
        next.at[i] = m->at[at];
    }
    rg_tensor *view = NULL;
    EXPECT_OK(rg_tensor_permute(m->tensor, order, &view));
    step_to(m, view, &next);
}

/* A random shape with as many elements. */
static void draw_shape(model *next, uint64_t *seed)
{
    int64_t rest = next->count;
    next->rank = 0;
    while (next->rank < RG_MAX_RANK - 1 && (rest > 1 || draw_from(seed, 0, 1))) {
        int64_t part = draw_from(seed, 1, 6);
        part = rest % part == 0 ? part : 1;
        if (part == 1 && draw_from(seed, 0, 3) > 0)
            part = rest % 2 == 0 ? 2 : rest % 3 == 0 ? 3 : rest;
        next->dims[next->rank++] = part;
        rest /= part;
    }
    if (rest > 1)
        next->dims[next->rank++] = rest;
}

/* Whether one stride per dimension reaches all elements in order: where the elements of the
 * storage are numbered by address, the numbers tell. */
static bool has_strides(const model *m)
{
    int64_t strides[RG_MAX_RANK], span = m->count;
    for (int32_t d = 0; d < m->rank; d++) {
        span /= m->dims[d];
        strides[d] = m->dims[d] > 1 ? m->at[span] - m->at[0] : 0;
        if (strides[d] < 0)
            return false;
    }
    for (int64_t i = 0; i < m->count; i++) {
        int64_t rest = i, at = m->at[0];
        for (int32_t d = m->rank - 1; d >= 0; rest /= m->dims[d], d--)
            at += rest % m->dims[d] * strides[d];
        if (at != m->at[i])
            return false;
    }
    return true;
}

static void draw_reshape(model *m, uint64_t *seed, int *refused)
{
    static model next;
    next = *m;
    draw_shape(&next, seed);
    rg_tensor *view = (rg_tensor *)1;
    const rg_status status = rg_tensor_reshape(m->tensor, next.rank, next.dims, &view);
    EXPECT(status == (has_strides(&next) ? RG_OK : RG_INVALID_ARGUMENT));
    if (status == RG_OK) {
        step_to(m, view, &next);
    } else {
        EXPECT(view == NULL && strstr(rg_error_text(), "without a copy") != NULL);
        ++*refused;
    }
}

static void draw_expand(model *m, uint64_t *seed)
{
    static model next;
    next = *m;
    const int32_t added = m->rank < 6 ? (int32_t)draw_from(seed, 0, 1) : 0;
    next.rank = m->rank + added;
    next.count = 1;
    for (int32_t d = 0; d < next.rank; d++) {
        const int64_t old = d < added ? 1 : m->dims[d - added];
        next.dims[d] = old == 1 && m->count < 200 ? draw_from(seed, 1, 2) : old;
        next.count *= next.dims[d];
    }
    for (int64_t i = 0; i < next.count; i++) {
        int64_t rest = i, at = 0, size = 1;
        for (int32_t d = next.rank - 1; d >= added; rest /= next.dims[d], d--) {
            const int64_t old = m->dims[d - added];
            at += (old == 1 ? 0 : rest % next.dims[d]) * size;
            size *= old;
        }
        next.at[i] = m->at[at];
    }
    rg_tensor *view = NULL;
    EXPECT_OK(rg_tensor_expand(m->tensor, next.rank, next.dims, &view));
    step_to(m, view, &next);
}

static void test_chains(rg_device *device)
{
    static model m;
    uint64_t seed = 23;
    int refused = 0, wrong = 0;
    for (int i = 0; i < 3000; i++) {
        m.count = draw_from(&seed, 1, 5) * 120;
        draw_shape(&m, &seed);
        m.tensor = tensor_of(device, RG_I32, m.rank, m.dims);
        for (int32_t k = 0; k < m.count; k++)
            m.at[k] = k;
        EXPECT_OK(rg_tensor_write(m.tensor, m.at, (size_t)m.count * 4, RG_LAYOUT_SAME));
        for (int k = 0; k < 6; k++) {
            const int64_t kind = draw_from(&seed, 0, 3);
            if (kind == 0)
                draw_slice(&m, &seed);
            else if (kind == 1)
                draw_permutation(&m, &seed);
            else if (kind == 2)
                draw_reshape(&m, &seed, &refused);
            else
                draw_expand(&m, &seed);
            wrong += !shows(&m);
        }
        EXPECT(rg_tensor_bytes(m.tensor) == 0);
        rg_tensor_destroy(m.tensor);
    }
    EXPECT(wrong == 0);
    EXPECT(refused > 100);
}

/* ---- writing through views ---- */

static void test_writes(rg_device *device)
{
    rg_tensor *t = tensor_of(device, RG_I32, 2, DIMS(4, 6)), *view = NULL, *transposed = NULL;
    int32_t all[24] = { 0 };
    EXPECT_OK(rg_tensor_write(t, all, sizeof all, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_slice(t, DIMS(1, 1), DIMS(2, 3), DIMS(2, 2), &view));
    EXPECT_OK(rg_tensor_permute(view, (const int32_t[]){ 1, 0 }, &transposed));
    const int32_t six[6] = { 1, 2, 3, 4, 5, 6 };
    EXPECT_OK(rg_tensor_write(transposed, six, sizeof six, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(t, all, sizeof all, RG_LAYOUT_SAME));
    const int32_t wanted[24] = { 0, 0, 0, 0, 0, 0, 0, 1, 0, 3, 0, 5,
                                 0, 0, 0, 0, 0, 0, 0, 2, 0, 4, 0, 6 };
    EXPECT(memcmp(all, wanted, sizeof all) == 0);
    rg_tensor_destroy(t);
    rg_tensor_destroy(view);
    rg_tensor *wide = NULL;
    EXPECT_OK(rg_tensor_expand(transposed, 3, DIMS(2, 3, 2), &wide));
    int32_t twelve[12];
    EXPECT_OK(rg_tensor_read(wide, twelve, sizeof twelve, RG_LAYOUT_SAME));
    EXPECT(memcmp(twelve, six, sizeof six) == 0 && memcmp(twelve + 6, six, sizeof six) == 0);
    EXPECT_FAILS(rg_tensor_write(wide, twelve, sizeof twelve, RG_LAYOUT_SAME), RG_INVALID_ARGUMENT,
                 "cannot be written");
    rg_tensor_destroy(transposed);
    rg_tensor_destroy(wide);
}

/* ---- what is refused ---- */

static void test_bad_slices(rg_tensor *t)
{
    rg_tensor *view;
    static const int64_t bad[][3] = {
        { -1, 1, 1 },        { 0, -1, 1 },        { 0, 5, 1 },         { 4, 1, 1 },
        { 5, 0, 1 },         { 3, 2, 1 },         { 0, 2, 4 },         { 0, 2, 0 },
        { 0, 1, -1 },        { INT64_MAX, 1, 1 }, { 1, INT64_MAX, 1 }, { 0, 2, INT64_MAX },
        { INT64_MIN, 1, 1 }, { 0, INT64_MIN, 1 }, { 0, 1, INT64_MIN }, { 1, 3, INT64_MAX / 2 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        view = (rg_tensor *)1;
        EXPECT_FAILS(
            rg_tensor_slice(t, DIMS(0, bad[i][0]), DIMS(3, bad[i][1]), DIMS(1, bad[i][2]), &view),
            RG_INVALID_ARGUMENT, "rg_tensor_slice");
        EXPECT(view == NULL);
    }
    EXPECT_OK(rg_tensor_slice(t, DIMS(3, 4), DIMS(0, 0), DIMS(INT64_MAX, 1), &view)); /* empty */
    EXPECT(count_of(view) == 0);
    rg_tensor_destroy(view);
    EXPECT_FAILS(rg_tensor_slice(t, NULL, DIMS(1, 1), NULL, &view), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_tensor_slice(t, DIMS(0, 0), NULL, NULL, &view), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_tensor_slice(NULL, DIMS(0, 0), DIMS(1, 1), NULL, &view), RG_INVALID_ARGUMENT,
                 "tensor is NULL");
    EXPECT_FAILS(rg_tensor_slice(t, DIMS(0, 0), DIMS(1, 1), NULL, NULL), RG_INVALID_ARGUMENT,
                 "view is NULL");
}

static void test_bad_others(rg_tensor *t)
{
    rg_tensor *view;
    static const int32_t orders[][2] = { { 0, 0 },         { 1, 1 },         { -1, 0 }, { 0, 2 },
                                         { INT32_MAX, 0 }, { INT32_MIN, 1 }, { 32, 0 } };
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++)
        EXPECT_FAILS(rg_tensor_permute(t, orders[i], &view), RG_INVALID_ARGUMENT,
                     "must appear exactly once");
    EXPECT_FAILS(rg_tensor_permute(t, NULL, &view), RG_INVALID_ARGUMENT, "order is NULL");
    EXPECT_FAILS(rg_tensor_permute(NULL, orders[0], &view), RG_INVALID_ARGUMENT, "tensor is NULL");
    EXPECT_FAILS(rg_tensor_permute(t, orders[0], NULL), RG_INVALID_ARGUMENT, "view is NULL");

    typedef rg_status shaper(rg_tensor *, int32_t, const int64_t[], rg_tensor **);
    shaper *const shapers[] = { rg_tensor_reshape, rg_tensor_expand };
    for (int i = 0; i < 2; i++) {
        EXPECT_FAILS(shapers[i](t, 2, DIMS(-3, -4), &view), RG_INVALID_ARGUMENT,
                     "must be at least 0");
        EXPECT_FAILS(shapers[i](t, 3, DIMS(INT64_MAX, INT64_MAX, 2), &view), RG_INVALID_ARGUMENT,
                     "overflows");
        EXPECT_FAILS(shapers[i](t, 9, DIMS(1, 1, 1, 1, 1, 1, 1, 3, 4), &view), RG_INVALID_ARGUMENT,
                     "rank is 9");
        EXPECT_FAILS(shapers[i](t, -1, DIMS(1), &view), RG_INVALID_ARGUMENT, "rank");
        EXPECT_FAILS(shapers[i](t, 2, NULL, &view), RG_INVALID_ARGUMENT, "dims is NULL");
        EXPECT_FAILS(shapers[i](NULL, 1, DIMS(1), &view), RG_INVALID_ARGUMENT, "tensor is NULL");
        EXPECT_FAILS(shapers[i](t, 1, DIMS(1), NULL), RG_INVALID_ARGUMENT, "view is NULL");
    }
    EXPECT_FAILS(rg_tensor_reshape(t, 2, DIMS(3, 5), &view), RG_INVALID_ARGUMENT,
                 "have different numbers of elements");
    EXPECT_FAILS(rg_tensor_reshape(t, 0, NULL, &view), RG_INVALID_ARGUMENT,
                 "have different numbers of elements");
    EXPECT_FAILS(rg_tensor_expand(t, 2, DIMS(6, 4), &view), RG_INVALID_ARGUMENT,
                 "cannot be expanded to");
    EXPECT_FAILS(rg_tensor_expand(t, 1, DIMS(4), &view), RG_INVALID_ARGUMENT,
                 "cannot be expanded to");
    EXPECT_FAILS(rg_tensor_expand(t, 0, NULL, &view), RG_INVALID_ARGUMENT, "cannot be expanded to");
}

static void test_rank_zero(rg_device *device)
{
    rg_tensor *t = tensor_of(device, RG_F32, 0, NULL), *view = NULL, *same = NULL;
    EXPECT_OK(rg_tensor_slice(t, NULL, NULL, NULL, &same));
    rg_tensor_destroy(same);
    EXPECT_OK(rg_tensor_permute(t, NULL, &same));
    rg_tensor_destroy(same);
    EXPECT_OK(rg_tensor_reshape(t, 8, DIMS(1, 1, 1, 1, 1, 1, 1, 1), &view));
    EXPECT_OK(rg_tensor_reshape(view, 0, NULL, &same));
    rg_tensor_destroy(same);
    rg_tensor_destroy(view);
    EXPECT_OK(rg_tensor_expand(t, 2, DIMS(2, 3), &view));
    EXPECT(count_of(view) == 6);
    rg_tensor_destroy(view);
    rg_tensor_destroy(t);
    t = tensor_of(device, RG_F32, 3, DIMS(2, 0, 3)); /* empty */
    EXPECT_OK(rg_tensor_reshape(t, 2, DIMS(0, 7), &view));
    EXPECT_OK(rg_tensor_permute(t, (const int32_t[]){ 2, 0, 1 }, &same));
    rg_tensor_destroy(same);
    rg_tensor_destroy(view);
    EXPECT_OK(rg_tensor_slice(t, DIMS(1, 0, 2), DIMS(1, 0, 1), NULL, &view));
    EXPECT_OK(rg_tensor_read(view, NULL, 0, RG_LAYOUT_SAME));
    rg_tensor_destroy(view);
    rg_tensor_destroy(t);
}

int main(void)
{
    rig r = rig_open(1);
    test_chains(r.device);
    test_writes(r.device);
    rg_tensor *t = tensor_of(r.device, RG_F32, 2, DIMS(3, 4));
    test_bad_slices(t);
    test_bad_others(t);
    rg_tensor_destroy(t);
    test_rank_zero(r.device);
    rig_close(&r);
    return rg_test_report();
}
