/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Where the time of a step goes: every op, forward, gradient and update. */
#include "train/report_parts.h"

#include <math.h>

/* Rows at most; the others become one. */
enum { MOST_ROWS = 80 };

/* What can be added: 0 for a time that was not measured. */
static double time_or_0(double value)
{
    return isfinite(value) && value > 0 ? value : 0;
}

static double sum_of(const rg_report_timing *t)
{
    return time_or_0(t->forward) + time_or_0(t->gradient) + time_or_0(t->update);
}

static void add_time(rg_page *page, double ms)
{
    rg_page_put(page, "<td class=\"n\">%s</td>",
                time_or_0(ms) > 0 ? rg_duration(ms / 1000).text : "\xe2\x80\x93");
}

static void add_span(rg_page *page, const char *colour, double value, double longest)
{
    if (time_or_0(value) > 0 && longest > 0)
        rg_page_put(page, "<span class=\"%s\" style=\"width:%s%%\"></span>", colour,
                    rg_fixed(value * 100 / longest, 2).text);
}

static void add_row(rg_page *page, const rg_report_timing *t, double longest, double total)
{
    rg_page_put(page, "<tr><th scope=\"row\">");
    rg_page_text(page, t->label, RG_NAME);
    rg_page_put(page, "</th><td>");
    rg_page_text(page, t->op, RG_NAME);
    rg_page_put(page, "</td>");
    add_time(page, t->forward);
    add_time(page, t->gradient);
    add_time(page, t->update);
    rg_page_put(page, "<td class=\"n\">%s</td><td class=\"bar\"><span class=\"track\">",
                rg_percent(total > 0 ? sum_of(t) / total : NAN, 1).text);
    add_span(page, "b1", t->forward, longest);
    add_span(page, "b2", t->gradient, longest);
    add_span(page, "b3", t->update, longest);
    rg_page_put(page, "</span></td></tr>\n");
}

static void add_to(rg_report_timing *sum, const rg_report_timing *t)
{
    sum->forward += time_or_0(t->forward);
    sum->gradient += time_or_0(t->gradient);
    sum->update += time_or_0(t->update);
}

rg_status rg_report_time(rg_page *page, const rg_report *r)
{
    if (r->timing_count <= 0)
        return RG_OK;
    rg_report_timing all = { 0 }, others = { .label = "other layers" };
    double longest = 0;
    for (int64_t i = 0; i < r->timing_count; i++) {
        add_to(i < MOST_ROWS ? &all : &others, &r->timings[i]);
        longest = fmax(longest, sum_of(&r->timings[i]));
    }
    longest = fmax(longest, sum_of(&others));
    add_to(&all, &others);
    const double total = sum_of(&all);
    rg_section_begin(page, "time", "Time per op");
    rg_page_put(page,
                "<p class=\"note\">One training step takes %s: forward %s, gradients %s, "
                "updates %s.</p>\n",
                rg_duration(total / 1000).text, rg_duration(all.forward / 1000).text,
                rg_duration(all.gradient / 1000).text, rg_duration(all.update / 1000).text);
    rg_page_put(page,
                "<div class=\"scroll\"><table><caption><span class=\"key\"><i class=\"k1\"></i>"
                "forward</span> &#160; <span class=\"key\"><i class=\"k2\"></i>gradient</span> "
                "&#160; <span class=\"key\"><i class=\"k3\"></i>update</span></caption>\n"
                "<thead><tr><th scope=\"col\">Layer</th><th scope=\"col\">Op</th>");
    rg_page_put(page, "<th scope=\"col\" class=\"n\">Forward</th><th scope=\"col\" class=\"n\">"
                      "Gradient</th><th scope=\"col\" class=\"n\">Update</th><th scope=\"col\" "
                      "class=\"n\">Share</th><td></td></tr></thead>\n<tbody>\n");
    for (int64_t i = 0; i < r->timing_count && i < MOST_ROWS; i++)
        add_row(page, &r->timings[i], longest, total);
    if (r->timing_count > MOST_ROWS)
        add_row(page, &others, longest, total);
    rg_page_put(page, "</tbody></table></div>\n");
    rg_section_end(page);
    return page->status;
}
