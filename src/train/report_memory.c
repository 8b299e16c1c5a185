/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The memory plan over time: a rectangle for every tensor, from its first to its last step. */
#include "core/memory.h"
#include "train/chart.h"
#include "train/report_parts.h"

#include <math.h>
#include <stdlib.h>

/* Rectangles at most, the largest, and colours. */
enum { MOST_TENSORS = 800, COLOURS = 8 };

enum { WIDTH = 1040, HEIGHT = 360, LEFT = 72, RIGHT = 8, TOP = 10, BOTTOM = 34 };

typedef struct plan {
    const rg_report *report;
    double steps, top; /* of the axes */
} plan;

static double x_of(const plan *p, double step)
{
    return LEFT + step / p->steps * (WIDTH - LEFT - RIGHT);
}

static double y_of(const plan *p, double bytes)
{
    return HEIGHT - BOTTOM - bytes / p->top * (HEIGHT - BOTTOM - TOP);
}

static bool can_show(const plan *p, const rg_report_memory *m)
{
    return m->bytes > 0 && m->first >= 0 && m->first <= m->last && m->last < p->steps;
}

static int compare_sizes(const void *a, const void *b)
{
    const rg_report_memory *p = *(const rg_report_memory *const *)a;
    const rg_report_memory *q = *(const rg_report_memory *const *)b;
    return p->bytes > q->bytes ? -1 : p->bytes < q->bytes ? 1 : (p > q) - (p < q);
}

static void add_axes(rg_page *page, const plan *p)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    double unit = 1;
    int name = 0;
    for (; unit * 1024 <= p->top && name < 4; name++)
        unit *= 1024;
    const double step = rg_chart_step(p->top / unit, 5) * unit;
    for (int i = 0; i * step <= p->top && i < 20; i++)
        rg_page_put(page,
                    "<path class=\"grid\" d=\"M%d %sH%d\"/><text class=\"ty\" x=\"%d\" "
                    "y=\"%s\">%s&#160;%s</text>\n",
                    LEFT, rg_fixed(y_of(p, i * step), 1).text, WIDTH - RIGHT, LEFT - 8,
                    rg_fixed(y_of(p, i * step), 1).text,
                    rg_fixed(i * step / unit, step < unit ? 1 : 0).text, units[name]);
    const double tick = fmax(1, rg_chart_step(p->steps, 10));
    for (int i = 0; i * tick < p->steps && i < 40; i++)
        rg_page_put(page, "<text class=\"tx\" x=\"%s\" y=\"%d\">%s</text>\n",
                    rg_fixed(x_of(p, i * tick + 0.5), 1).text, HEIGHT - BOTTOM + 16,
                    rg_count((int64_t)(i * tick)).text);
    rg_page_put(page,
                "<path class=\"base\" d=\"M%d %dH%d\"/><text class=\"tx tn\" x=\"%d\" "
                "y=\"%d\">plan step</text>\n",
                LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, WIDTH - RIGHT, HEIGHT - 4);
}

static void add_tensor(rg_page *page, const plan *p, const rg_report_memory *m)
{
    const double x = x_of(p, m->first), y = y_of(p, (double)m->offset + (double)m->bytes);
    const int64_t index = m - p->report->memory;
    rg_page_put(
        page,
        "<rect class=\"t m%d\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" rx=\"1.5\"><title>",
        (int)(index % COLOURS), rg_fixed(x, 1).text, rg_fixed(y, 1).text,
        rg_fixed(x_of(p, m->last + 1.0) - x, 1).text,
        rg_fixed(fmax(y_of(p, (double)m->offset) - y, 0.5), 1).text);
    rg_page_text(page, m->label, RG_NAME);
    rg_page_put(page, "\n%s at %s, steps %d to %d</title></rect>\n",
                rg_byte_count((double)m->bytes).text, rg_byte_count((double)m->offset).text,
                m->first, m->last);
}

/* How many bytes are needed at each step, as a line above the rectangles. */
static rg_status add_live(rg_page *page, const plan *p)
{
    const rg_report *r = p->report;
    const size_t bytes = ((size_t)r->memory_steps + 1) * sizeof(double);
    void *memory;
    RG_TRY(rg_allocate_zero(&rg_default_allocator, bytes, &memory));
    double *change = memory, live = 0;
    for (int64_t i = 0; i < r->memory_count; i++) {
        if (can_show(p, &r->memory[i])) {
            change[r->memory[i].first] += (double)r->memory[i].bytes;
            change[r->memory[i].last + 1] -= (double)r->memory[i].bytes;
        }
    }
    rg_page_put(page, "<path class=\"live\" d=\"");
    const int32_t stride = r->memory_steps / 2000 + 1; /* of a long plan, each so many-th step */
    for (int32_t i = 0; i < r->memory_steps; i++) {
        live += change[i];
        if (i % stride == 0)
            rg_page_put(page, "%s%s %sH%s", i == 0 ? "M" : "L", rg_fixed(x_of(p, i), 1).text,
                        rg_fixed(y_of(p, fmin(fmax(live, 0), p->top)), 1).text,
                        rg_fixed(x_of(p, fmin(i + stride, p->steps)), 1).text);
    }
    rg_page_put(page, "\"/>\n");
    rg_release(&rg_default_allocator, memory, bytes);
    return page->status;
}

static rg_status add_plan(rg_page *page, const plan *p)
{
    const rg_report *r = p->report;
    size_t bytes;
    void *memory;
    RG_CHECK(rg_multiply((size_t)r->memory_count, sizeof(rg_report_memory *), &bytes),
             RG_OUT_OF_MEMORY, "%lld tensors do not fit in memory", (long long)r->memory_count);
    RG_TRY(rg_allocate(&rg_default_allocator, bytes, &memory));
    const rg_report_memory **tensors = memory;
    int64_t count = 0;
    for (int64_t i = 0; i < r->memory_count; i++) {
        if (can_show(p, &r->memory[i]))
            tensors[count++] = &r->memory[i];
    }
    qsort(tensors, (size_t)count, sizeof *tensors, compare_sizes);
    rg_page_put(page,
                "<figure class=\"plan\"><div class=\"scroll\"><svg role=\"img\" style=\"min-width:"
                "560px\" viewBox=\"0 0 %d %d\" aria-label=\"Memory plan: %s tensors over %d "
                "steps\">\n",
                WIDTH, HEIGHT, rg_count(count).text, r->memory_steps);
    add_axes(page, p);
    for (int64_t i = 0; i < count && i < MOST_TENSORS; i++)
        add_tensor(page, p, tensors[i]);
    rg_release(&rg_default_allocator, memory, bytes);
    RG_TRY(add_live(page, p));
    rg_page_put(page, "</svg></div></figure>\n");
    if (count > MOST_TENSORS)
        rg_page_put(page, "<p class=\"note\">Shown: the %d largest of %s tensors.</p>\n",
                    MOST_TENSORS, rg_count(count).text);
    return page->status;
}

static void add_sentence(rg_page *page, const rg_report *r)
{
    rg_page_put(page, "<p class=\"note\">Peak memory of the plan: %s",
                rg_byte_count((double)r->peak_bytes).text);
    if (r->separate_bytes > r->peak_bytes)
        rg_page_put(page, ", %s of the %s that separate buffers would need",
                    rg_percent((double)r->peak_bytes / (double)r->separate_bytes, 0).text,
                    rg_byte_count((double)r->separate_bytes).text);
    if (r->parameter_bytes > 0)
        rg_page_put(page, "; parameters and optimizer moments need another %s",
                    rg_byte_count((double)r->parameter_bytes).text);
    rg_page_put(page, ". Each block is a tensor, from its first to its last use; the line is the "
                      "memory in use at each step.</p>\n");
}

rg_status rg_report_memory_plan(rg_page *page, const rg_report *r)
{
    if (r->memory_count <= 0 || r->memory_steps <= 0)
        return RG_OK;
    plan p = { r, r->memory_steps, (double)r->peak_bytes };
    for (int64_t i = 0; i < r->memory_count; i++) {
        if (can_show(&p, &r->memory[i]))
            p.top = fmax(p.top, (double)r->memory[i].offset + (double)r->memory[i].bytes);
    }
    if (!(p.top > 0))
        return RG_OK;
    rg_section_begin(page, "memory", "Memory plan");
    add_sentence(page, r);
    RG_TRY(add_plan(page, &p));
    rg_section_end(page);
    return page->status;
}
