/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Line charts. A y axis is linear, or logarithmic where values span more than two decades. */
#include "train/chart.h"

#include <math.h>
#include <string.h>

enum { LEFT = 48, RIGHT = 14, TOP = 12, BOTTOM = 30 };

/* The most tooltips, and the most points of a line: more would lie within one pixel. */
enum { MOST_TIPS = 80, MOST_POINTS = 700 };

typedef struct axis {
    double low, high, step;
    bool log; /* low and high are then powers of ten */
} axis;

typedef struct frame {
    const rg_chart *chart;
    double width, height; /* of the whole picture */
    axis x, y;
} frame;

/* ---- axes ---- */

double rg_chart_step(double span, int wanted)
{
    const double rough = span / (wanted > 0 ? wanted : 1);
    if (!(rough > 1e-300) || !isfinite(rough))
        return 1;
    const double power = pow(10, floor(log10(rough)));
    const double digit = rough / power;
    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

static axis y_axis(const rg_chart *chart)
{
    double low = INFINITY, high = -INFINITY;
    for (int k = 0; k < chart->line_count; k++) {
        for (int64_t i = 0; i < chart->count; i++) {
            const double y = chart->lines[k].y[i];
            if (isfinite(y)) {
                low = fmin(low, y);
                high = fmax(high, y);
            }
        }
    }
    if (!(low <= high))
        return (axis){ 0, 1, 0.5, false };
    if (low > 0 && high / low > 100 && chart->unit == RG_CHART_PLAIN && !chart->from_zero) {
        const double first = floor(log10(low)), last = ceil(log10(high));
        return (axis){ first, last > first ? last : first + 1,
                       fmax(1, rg_chart_step(last - first, 5)), true };
    }
    if (chart->unit == RG_CHART_PLAIN && low > 0 && (low < 0.6 * high || chart->from_zero))
        low = 0;
    double span = high - low;
    if (!(span > fabs(high) * 1e-6)) /* one value */
        span = high != 0 ? fabs(high) * 0.2 : 1;
    const double step = rg_chart_step(span, 4);
    axis y = { floor(low / step + 1e-9) * step, ceil(high / step - 1e-9) * step, step, false };
    if (!(y.high > y.low))
        y.high = y.low + step;
    if (chart->unit == RG_CHART_PERCENT)
        y.high = fmin(y.high, 1);
    return y;
}

static axis x_axis(const rg_chart *chart)
{
    double low = chart->count > 0 ? chart->x[0] : 0;
    double high = chart->count > 0 ? chart->x[chart->count - 1] : 1;
    if (!(high > low)) {
        low -= 1;
        high += 1;
    }
    return (axis){ low, high, fmax(1, rg_chart_step(high - low, chart->is_wide ? 8 : 5)), false };
}

static double x_of(const frame *f, double value)
{
    return LEFT + (value - f->x.low) / (f->x.high - f->x.low) * (f->width - LEFT - RIGHT);
}

static double y_of(const frame *f, double value)
{
    const double at = f->y.log ? log10(value) : value;
    const double share = (at - f->y.low) / (f->y.high - f->y.low);
    return f->height - BOTTOM - share * (f->height - BOTTOM - TOP);
}

/* ---- text ---- */

static int decimals_of(double step)
{
    return step >= 1 ? 0 : (int)ceil(-log10(step) - 1e-9);
}

static rg_figure tick_text(const frame *f, double value)
{
    if (f->y.log)
        return rg_shortest(value);
    if (f->chart->unit == RG_CHART_PERCENT)
        return rg_percent(value, decimals_of(f->y.step * 100));
    if (fabs(f->y.high) >= 1e5 || fabs(value) >= 1e5 || f->y.step < 1e-4)
        return value == 0 ? rg_fixed(0, 0) : rg_significant(value, 2);
    return f->y.step >= 1 ? rg_count((int64_t)value) : rg_fixed(value, decimals_of(f->y.step));
}

static rg_figure value_text(const frame *f, double value)
{
    return f->chart->unit == RG_CHART_PERCENT ? rg_percent(value, 2) : rg_significant(value, 4);
}

/* ---- parts ---- */

static void add_caption(rg_page *page, const rg_chart *chart)
{
    rg_page_put(page, "<figcaption><b>%s</b>", chart->title);
    int named = 0;
    for (int k = 0; k < chart->line_count; k++)
        named += !chart->lines[k].faint;
    for (int k = 0; k < chart->line_count && named > 1; k++) {
        if (!chart->lines[k].faint)
            rg_page_put(page, " <span class=\"key\"><i class=\"k%d\"></i>%s</span>",
                        chart->lines[k].colour, chart->lines[k].name);
    }
    rg_page_put(page, "</figcaption>\n");
}

static void add_grid(rg_page *page, const frame *f)
{
    const int count = (int)fmin(19, floor((f->y.high - f->y.low) / f->y.step + 1e-6));
    for (int i = 0; i <= count; i++) {
        const double at = f->y.low + i * f->y.step;
        const double value = f->y.log ? pow(10, at) : fabs(at) < f->y.step * 1e-6 ? 0 : at;
        const double y = y_of(f, value);
        rg_page_put(page,
                    "<path class=\"grid\" d=\"M%d %sH%s\"/><text class=\"ty\" x=\"%d\" "
                    "y=\"%s\">%s</text>\n",
                    LEFT, rg_fixed(y, 1).text, rg_fixed(f->width - RIGHT, 1).text, LEFT - 8,
                    rg_fixed(y, 1).text, tick_text(f, value).text);
    }
    const double first = ceil(f->x.low / f->x.step) * f->x.step;
    for (int i = 0; i < 20 && first + i * f->x.step <= f->x.high; i++) {
        const double value = first + i * f->x.step;
        const bool inside = f->chart->count > 0 && value >= f->chart->x[0] &&
                            value <= f->chart->x[f->chart->count - 1];
        if (inside)
            rg_page_put(page, "<text class=\"tx\" x=\"%s\" y=\"%s\">%s</text>\n",
                        rg_fixed(x_of(f, value), 1).text, rg_fixed(f->height - BOTTOM + 16, 1).text,
                        rg_count((int64_t)value).text);
    }
    rg_page_put(page,
                "<path class=\"base\" d=\"M%d %sH%s\"/>"
                "<text class=\"tx tn\" x=\"%s\" y=\"%s\">%s</text>\n",
                LEFT, rg_fixed(f->height - BOTTOM, 1).text, rg_fixed(f->width - RIGHT, 1).text,
                rg_fixed(f->width - RIGHT, 1).text, rg_fixed(f->height - 3, 1).text,
                f->chart->x_name);
}

/* Of each bucket of points the lowest and the highest, so that no spike is lost. */
static void add_path(rg_page *page, const frame *f, const rg_chart_line *line)
{
    const rg_chart *chart = f->chart;
    const int64_t bucket =
        chart->count > MOST_POINTS ? (2 * chart->count - 1) / MOST_POINTS + 1 : 1;
    bool down = false; /* whether the pen is */
    rg_page_put(page, "<path class=\"line c%d%s\" d=\"", line->colour, line->faint ? " faint" : "");
    for (int64_t i = 0; i < chart->count; i += bucket) {
        const int64_t end = i + bucket < chart->count ? i + bucket : chart->count;
        int64_t low = -1, high = -1;
        for (int64_t k = i; k < end; k++) {
            if (!isfinite(line->y[k]) || (f->y.log && line->y[k] <= 0))
                continue;
            low = low < 0 || line->y[k] < line->y[low] ? k : low;
            high = high < 0 || line->y[k] > line->y[high] ? k : high;
        }
        if (low < 0) {
            down = false;
            continue;
        }
        const int64_t points[2] = { low < high ? low : high, low < high ? high : low };
        for (int k = points[0] == points[1]; k < 2; k++) {
            rg_page_put(page, "%s%s %s", down ? "L" : "M",
                        rg_fixed(x_of(f, chart->x[points[k]]), 1).text,
                        rg_fixed(y_of(f, line->y[points[k]]), 1).text);
            down = true;
        }
    }
    rg_page_put(page, "\"/>\n");
}

/* Dots where there are only some points, and crosses at the upper border for what is not finite. */
static void add_dots(rg_page *page, const frame *f, const rg_chart_line *line)
{
    const rg_chart *chart = f->chart;
    const bool few = chart->count <= 40 && !line->faint;
    int crosses = 0;
    for (int64_t i = 0; i < chart->count; i++) {
        const double x = x_of(f, chart->x[i]);
        if (isfinite(line->y[i])) {
            if (few)
                rg_page_put(page, "<circle class=\"c%d\" cx=\"%s\" cy=\"%s\" r=\"2.4\"/>\n",
                            line->colour, rg_fixed(x, 1).text,
                            rg_fixed(y_of(f, line->y[i]), 1).text);
        } else if (!line->faint && (isinf(line->y[i]) || line->marks_losses) && crosses++ < 100) {
            rg_page_put(page, "<path class=\"bad\" d=\"M%s %dl6 6m0 -6l-6 6\"/>\n",
                        rg_fixed(x - 3, 1).text, TOP - 4);
        }
    }
}

/* A band for each x, up to half-way to its neighbours; the browser shows its title under the
 * pointer.
 */
static void add_tips(rg_page *page, const frame *f)
{
    const rg_chart *chart = f->chart;
    const int64_t step = (chart->count + MOST_TIPS - 1) / MOST_TIPS;
    const double width = f->width - LEFT - RIGHT;
    for (int64_t i = 0; i < chart->count; i += step) {
        const double x = x_of(f, chart->x[i]);
        const double before = i >= step ? x_of(f, chart->x[i - step]) : x - width;
        const double after = i + step < chart->count ? x_of(f, chart->x[i + step]) : x + width;
        const double from = fmax((before + x) / 2, LEFT), to = fmin((x + after) / 2, LEFT + width);
        rg_page_put(page,
                    "<rect class=\"hit\" x=\"%s\" y=\"%d\" width=\"%s\" height=\"%s\"><title>%s %s",
                    rg_fixed(from, 1).text, TOP, rg_fixed(fmax(to - from, 0), 1).text,
                    rg_fixed(f->height - BOTTOM - TOP, 1).text, chart->x_name,
                    rg_count((int64_t)chart->x[i]).text);
        for (int k = 0; k < chart->line_count; k++) {
            const double y = chart->lines[k].y[i];
            if (!isnan(y) || chart->lines[k].marks_losses)
                rg_page_put(page, "\n%s %s", chart->lines[k].name, value_text(f, y).text);
        }
        rg_page_put(page, "</title></rect>\n");
    }
}

static void add_mark(rg_page *page, const frame *f)
{
    const double mark = f->chart->mark;
    if (!isfinite(mark))
        return;
    rg_page_put(page, "<path class=\"mark\" d=\"M%s %dV%s\"/>\n", rg_fixed(x_of(f, mark), 1).text,
                TOP, rg_fixed(f->height - BOTTOM, 1).text);
}

/* The text for screen readers: the first and the last value of each line. */
static void add_label(rg_page *page, const frame *f)
{
    const rg_chart *chart = f->chart;
    rg_page_put(page, "%s", chart->title);
    for (int k = 0; k < chart->line_count && chart->count > 0; k++) {
        if (!chart->lines[k].faint)
            rg_page_put(page, "; %s from %s to %s", chart->lines[k].name,
                        value_text(f, chart->lines[k].y[0]).text,
                        value_text(f, chart->lines[k].y[chart->count - 1]).text);
    }
}

void rg_chart_add(rg_page *page, const rg_chart *chart)
{
    const frame f = { chart, chart->is_wide ? 470 : 320, chart->is_wide ? 260 : 170, x_axis(chart),
                      y_axis(chart) };
    rg_page_put(page, "<figure class=\"chart\">\n");
    add_caption(page, chart);
    rg_page_put(page, "<svg role=\"img\" viewBox=\"0 0 %d %d\" aria-label=\"", (int)f.width,
                (int)f.height);
    add_label(page, &f);
    rg_page_put(page, "\">\n");
    add_grid(page, &f);
    add_mark(page, &f);
    for (int faint = 1; faint >= 0; faint--) {
        for (int k = 0; k < chart->line_count; k++) {
            if (chart->lines[k].faint == (faint == 1)) {
                add_path(page, &f, &chart->lines[k]);
                add_dots(page, &f, &chart->lines[k]);
            }
        }
    }
    add_tips(page, &f);
    rg_page_put(page, "</svg>\n</figure>\n");
}
