/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Scatter charts: both axes have the same range. */
#include "train/scatter.h"
#include "train/chart.h"

#include <math.h>

enum { SIDE = 300, LEFT = 56, RIGHT = 12, TOP = 8, BOTTOM = 40, MOST_TICKS = 12 };

typedef struct range {
    double low, high, step;
} range;

static bool is_shown(const float point[2])
{
    return isfinite(point[0]) && isfinite(point[1]);
}

static range range_of(const float points[][2], int64_t count)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        for (int k = 0; k < 2 && is_shown(points[i]); k++) {
            low = fmin(low, (double)points[i][k]);
            high = fmax(high, (double)points[i][k]);
        }
    }
    if (!(high >= low))
        low = high = 0;
    if (!(high - low > 1e-6 * fmax(fabs(low), fabs(high)))) {
        const double more = low != 0 ? 0.1 * fabs(low) : 1;
        low -= more;
        high += more;
    }
    return (range){ low, high, rg_chart_step(high - low, 4) };
}

static double x_of(const range *r, double value)
{
    return LEFT + (value - r->low) / (r->high - r->low) * (SIDE - LEFT - RIGHT);
}

static double y_of(const range *r, double value)
{
    return SIDE - BOTTOM - (value - r->low) / (r->high - r->low) * (SIDE - BOTTOM - TOP);
}

static rg_figure tick_text(const range *r, double value)
{
    const double largest = fmax(fabs(r->low), fabs(r->high));
    if (largest >= 1e5 || r->step < 1e-4)
        return value == 0 ? rg_fixed(0, 0) : rg_significant(value, 3);
    return rg_fixed(value, r->step >= 1 ? 0 : (int)ceil(-log10(r->step) - 1e-9));
}

static void add_axes(rg_page *page, const range *r)
{
    const double first = ceil(r->low / r->step) * r->step;
    for (int i = 0; i < MOST_TICKS && first + i * r->step <= r->high; i++) {
        const double at = first + i * r->step, value = fabs(at) < r->step * 1e-6 ? 0 : at;
        rg_page_put(page,
                    "<path class=\"grid\" d=\"M%d %sH%d\"/><text class=\"ty\" x=\"%d\" "
                    "y=\"%s\">%s</text>",
                    LEFT, rg_fixed(y_of(r, value), 1).text, SIDE - RIGHT, LEFT - 6,
                    rg_fixed(y_of(r, value), 1).text, tick_text(r, value).text);
        rg_page_put(page,
                    "<path class=\"grid\" d=\"M%s %dV%d\"/><text class=\"tx\" x=\"%s\" "
                    "y=\"%d\">%s</text>\n",
                    rg_fixed(x_of(r, value), 1).text, TOP, SIDE - BOTTOM,
                    rg_fixed(x_of(r, value), 1).text, SIDE - BOTTOM + 15, tick_text(r, value).text);
    }
    rg_page_put(page,
                "<path class=\"mark\" d=\"M%d %dL%d %d\"/>"
                "<text class=\"tx tn\" x=\"%d\" y=\"%d\">true value</text>\n",
                LEFT, SIDE - BOTTOM, SIDE - RIGHT, TOP, SIDE - RIGHT, SIDE - 6);
}

void rg_scatter_add(rg_page *page, const char *name, const float points[][2], int64_t count)
{
    const range r = range_of(points, count);
    rg_page_put(page, "<figure class=\"chart scatter\">\n<figcaption><b>");
    rg_page_text(page, name, 40);
    rg_page_put(page,
                "</b></figcaption>\n<svg role=\"img\" viewBox=\"0 0 %d %d\" aria-label=\"Predicted "
                "against true values\">\n",
                SIDE, SIDE);
    add_axes(page, &r);
    rg_page_put(page, "<path class=\"dots\" d=\"");
    for (int64_t i = 0; i < count; i++) {
        if (is_shown(points[i]))
            rg_page_put(page, "M%s %sh0", rg_fixed(x_of(&r, (double)points[i][0]), 1).text,
                        rg_fixed(y_of(&r, (double)points[i][1]), 1).text);
    }
    rg_page_put(page, "\"/>\n</svg>\n</figure>\n");
}
