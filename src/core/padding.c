/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Padding: policies to numbers, one axis after the other. */
#include "core/integer.h"
#include "core/status.h"

#include <retrograde/padding.h>

/* Sizes up to here can be added and doubled without a thought. */
static const int64_t MOST = INT64_C(1) << 48;

static const char *const axis_names[2] = { "rows", "columns" };

/* One axis: the letters of the header. */
typedef struct axis {
    int64_t n, K, s, output; /* output 0: by the policy */
    int64_t before, after;   /* given, then found */
    bool to_front;           /* the odd pixel goes before the image */
} axis;

/* ---- checks ---- */

static rg_status check_padding(const rg_padding *p)
{
    RG_CHECK((int)p->policy >= RG_PADDING_EXPLICIT && (int)p->policy <= RG_PADDING_SAME_LOWER,
             RG_INVALID_ARGUMENT, "padding: unknown policy %d", (int)p->policy);
    RG_CHECK((int)p->align >= RG_PADDING_CENTERED && (int)p->align <= RG_PADDING_BOTTOM_RIGHT,
             RG_INVALID_ARGUMENT, "padding: unknown align %d", (int)p->align);
    RG_CHECK((int)p->remainder >= RG_REMAINDER_TOP_LEFT &&
                 (int)p->remainder <= RG_REMAINDER_BOTTOM_RIGHT,
             RG_INVALID_ARGUMENT, "padding: unknown remainder %d", (int)p->remainder);
    return RG_OK;
}

static rg_status check_window(const rg_window *w, int i)
{
    const char *name = axis_names[i];
    RG_CHECK(w->source[i] >= 0 && w->source[i] <= MOST, RG_INVALID_ARGUMENT,
             "padding: the image has %lld %s; it must have between 0 and 2^48",
             (long long)w->source[i], name);
    RG_CHECK(w->output[i] >= 0 && w->output[i] <= MOST, RG_INVALID_ARGUMENT,
             "padding: the output has %lld %s; it must have between 0 and 2^48",
             (long long)w->output[i], name);
    RG_CHECK(w->window[i] >= 1, RG_INVALID_ARGUMENT,
             "padding: the window has %d %s; it must have at least 1", w->window[i], name);
    RG_CHECK(w->stride[i] >= 1, RG_INVALID_ARGUMENT,
             "padding: the stride is %d %s; it must be at least 1", w->stride[i], name);
    RG_CHECK(w->dilation[i] >= 1, RG_INVALID_ARGUMENT,
             "padding: the dilation is %d %s; it must be at least 1", w->dilation[i], name);
    RG_CHECK((int64_t)(w->window[i] - 1) * w->dilation[i] < MOST, RG_INVALID_ARGUMENT,
             "padding: a window of %d %s with a dilation of %d covers more than 2^48", w->window[i],
             name, w->dilation[i]);
    return RG_OK;
}

/* (count - 1) s + K, or false where that is beyond all images. */
static bool spans(int64_t count, int64_t s, int64_t K, int64_t *span)
{
    return !__builtin_mul_overflow(count - 1, s, span) && *span <= 4 * MOST && (*span += K, true);
}

/* ---- one axis ---- */

static int64_t style_of(rg_padding_policy policy)
{
    return policy == RG_PADDING_VALID ? -1 : policy == RG_PADDING_FULL ? 1 : 0;
}

/* The share of `extra` that goes before the image, by MPS's rules. */
static int64_t share(const rg_padding *p, int64_t extra, bool to_front)
{
    if (p->align == RG_PADDING_CENTERED)
        return (extra + to_front) / 2;
    return p->align == RG_PADDING_TOP_LEFT ? extra : 0;
}

static bool is_auto(rg_padding_policy policy)
{
    return policy == RG_PADDING_SAME_UPPER || policy == RG_PADDING_SAME_LOWER;
}

static int64_t auto_share(rg_padding_policy policy, int64_t extra)
{
    const int64_t missing = extra > 0 ? extra : 0;
    return (missing + (policy == RG_PADDING_SAME_LOWER)) / 2;
}

/* How many windows there are, if the caller does not say. */
static int64_t count_windows(const rg_padding *p, const axis *a, bool ceil_mode)
{
    if (p->policy != RG_PADDING_EXPLICIT)
        return rg_ceil_div(a->n + style_of(p->policy) * (a->K - 1), a->s);
    const int64_t span = a->before + a->n + a->after - a->K;
    if (span < 0)
        return 0;
    int64_t count = span / a->s + 1;
    if (ceil_mode && span % a->s > 0 && count * a->s < a->before + a->n)
        count++;
    return count;
}

static rg_status resolve_forward(const rg_padding *p, axis *a, bool ceil_mode, const char *name)
{
    if (a->output == 0)
        a->output = count_windows(p, a, ceil_mode);
    RG_CHECK(a->output > 0, RG_INVALID_ARGUMENT,
             "padding: a window that covers %lld %s does not fit in %lld with a padding of %lld "
             "and %lld",
             (long long)a->K, name, (long long)a->n, (long long)a->before, (long long)a->after);
    int64_t span;
    RG_CHECK(spans(a->output, a->s, a->K, &span), RG_INVALID_ARGUMENT,
             "padding: %lld windows with a stride of %lld %s cover more than 2^48",
             (long long)a->output, (long long)a->s, name);
    const int64_t extra = span - a->n;
    if (is_auto(p->policy))
        a->before = auto_share(p->policy, extra);
    else if (p->policy != RG_PADDING_EXPLICIT)
        a->before = share(p, extra, a->to_front);
    a->after = extra - a->before;
    return RG_OK;
}

/* `whole` is the image that all windows make together. MPS's policies look at its inside as at a
 * source with zeros between its pixels: what is missing there is K - 1 less what is cut off. */
static rg_status resolve_transposed(const rg_padding *p, axis *a, const char *name)
{
    int64_t whole;
    RG_CHECK(
        a->n > 0 && spans(a->n, a->s, a->K, &whole), RG_INVALID_ARGUMENT,
        "padding: %lld windows with a stride of %lld %s are fewer than 1 or cover more than 2^48",
        (long long)a->n, (long long)a->s, name);
    if (a->output == 0 && p->policy == RG_PADDING_EXPLICIT)
        a->output = whole - a->before - a->after;
    else if (a->output == 0 && is_auto(p->policy))
        a->output = a->n * a->s;
    else if (a->output == 0)
        a->output = whole - (1 - style_of(p->policy)) * (a->K - 1);
    RG_CHECK(a->output > 0, RG_INVALID_ARGUMENT,
             "padding: cropping %lld of %lld %s leaves an empty output",
             (long long)(whole - a->output), (long long)whole, name);
    const int64_t cut = whole - a->output;
    if (is_auto(p->policy))
        a->before = auto_share(p->policy, cut);
    else if (p->policy != RG_PADDING_EXPLICIT)
        a->before = a->K - 1 - share(p, 2 * (a->K - 1) - cut, a->to_front);
    a->after = cut - a->before;
    return RG_OK;
}

/* ---- public ---- */

rg_status rg_padding_resolve(const rg_padding *padding, const rg_window *window,
                             rg_placement *placement)
{
    RG_CHECK_NOT_NULL(padding);
    RG_CHECK_NOT_NULL(window);
    RG_CHECK_NOT_NULL(placement);
    RG_TRY(check_padding(padding));
    const bool explicitly = padding->policy == RG_PADDING_EXPLICIT;
    const int32_t before[2] = { padding->top, padding->left };
    const int32_t after[2] = { padding->bottom, padding->right };
    const bool to_front[2] = { padding->remainder <= RG_REMAINDER_TOP_RIGHT,
                               padding->remainder % 2 == 0 };
    rg_placement found;
    for (int i = 0; i < 2; i++) {
        RG_TRY(check_window(window, i));
        axis a = { .n = window->source[i],
                   .K = (int64_t)(window->window[i] - 1) * window->dilation[i] + 1,
                   .s = window->stride[i],
                   .output = window->output[i],
                   .before = explicitly ? before[i] : 0,
                   .after = explicitly ? after[i] : 0,
                   .to_front = to_front[i] };
        RG_TRY(window->transposed ? resolve_transposed(padding, &a, axis_names[i])
                                  : resolve_forward(padding, &a, window->ceil_mode, axis_names[i]));
        found.output[i] = a.output;
        found.before[i] = a.before;
        found.after[i] = a.after;
        found.offset[i] = window->transposed ? a.K / 2 - (a.K - 1) + a.before : a.K / 2 - a.before;
    }
    *placement = found;
    return RG_OK;
}

rg_padding rg_padding_inverse(rg_padding padding)
{
    if (padding.policy == RG_PADDING_VALID)
        padding.policy = RG_PADDING_FULL;
    else if (padding.policy == RG_PADDING_FULL)
        padding.policy = RG_PADDING_VALID;
    return padding;
}

rg_status rg_padding_from_mps(uint64_t method, rg_padding *padding)
{
    enum { ALIGN = 0x3, REMAINDER = 0xc, SIZE = 0x7f0, IGNORED = 0xe000 };
    RG_CHECK_NOT_NULL(padding);
    const uint64_t align = method & ALIGN, remainder = (method & REMAINDER) >> 2,
                   size = (method & SIZE) >> 4;
    RG_CHECK(align <= 2 && size <= 2 &&
                 (method & ~(uint64_t)(ALIGN | REMAINDER | SIZE | IGNORED)) == 0,
             RG_INVALID_ARGUMENT, "padding: 0x%llx is not a valid MPSNNPaddingMethod",
             (unsigned long long)method);
    *padding = (rg_padding){ .policy = (rg_padding_policy)(RG_PADDING_VALID + (int)size),
                             .align = (rg_padding_align)align,
                             .remainder = (rg_padding_remainder)remainder };
    return RG_OK;
}
