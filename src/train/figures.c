/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Numbers as readable text. Decimals are made from whole numbers: printf's point depends on the
 * locale.
 */
#include "train/figures.h"
#include "core/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The most digits after the point; 10 to this power times a value below LARGE fits in 64 bits. */
enum { MOST_DECIMALS = 9 };
static const double large = 9e8;

static const char no_value[] = "\xe2\x80\x93"; /* an en dash */

rg_figure rg_shortest(double value)
{
    rg_figure figure;
    if (isnan(value))
        snprintf(figure.text, sizeof figure.text, "NaN");
    else if (isinf(value))
        snprintf(figure.text, sizeof figure.text,
                 value > 0 ? "\xe2\x88\x9e" : "\xe2\x88\x92\xe2\x88\x9e");
    else
        rg_number_text(value, figure.text, sizeof figure.text);
    return figure;
}

rg_figure rg_fixed(double value, int decimals)
{
    const int most = fabs(value) < large ? MOST_DECIMALS : 0;
    if (!isfinite(value) || fabs(value) >= large * 1e9)
        return rg_shortest(value);
    decimals = decimals < 0 ? 0 : decimals > most ? most : decimals;
    long long one = 1;
    for (int i = 0; i < decimals; i++)
        one *= 10;
    const long long scaled = llround(fabs(value) * (double)one);
    const char *sign = value < 0 && scaled > 0 ? "-" : "";
    rg_figure figure;
    if (decimals == 0)
        snprintf(figure.text, sizeof figure.text, "%s%lld", sign, scaled);
    else
        snprintf(figure.text, sizeof figure.text, "%s%lld.%0*lld", sign, scaled / one, decimals,
                 scaled % one);
    return figure;
}

rg_figure rg_significant(double value, int digits)
{
    if (!isfinite(value) || value == 0)
        return value == 0 ? rg_fixed(0, 0) : rg_shortest(value);
    const int power = (int)floor(log10(fabs(value)));
    if (power >= -4 && power < 7)
        return rg_fixed(value, digits - 1 - power);
    const double unit = pow(10, power);
    rg_figure figure = rg_fixed(unit > 0 ? value / unit : 0, digits - 1);
    const size_t used = strlen(figure.text);
    snprintf(figure.text + used, sizeof figure.text - used, "e%d", power);
    return figure;
}

/* Puts a unit after a figure, with a space that does not break. */
static rg_figure with_unit(rg_figure figure, const char *unit)
{
    const size_t used = strlen(figure.text);
    snprintf(figure.text + used, sizeof figure.text - used, "\xc2\xa0%s", unit);
    return figure;
}

static rg_figure none(void)
{
    rg_figure figure;
    memcpy(figure.text, no_value, sizeof no_value);
    return figure;
}

rg_figure rg_percent(double fraction, int decimals)
{
    return isfinite(fraction) ? with_unit(rg_fixed(fraction * 100, decimals), "%") : none();
}

rg_figure rg_count(int64_t count)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)count);
    const size_t length = strlen(digits), sign = digits[0] == '-';
    rg_figure figure;
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        if (i > sign && (length - i) % 3 == 0) { /* a narrow space that does not break */
            memcpy(figure.text + used, "\xe2\x80\xaf", 3);
            used += 3;
        }
        figure.text[used++] = digits[i];
    }
    figure.text[used] = 0;
    return figure;
}

rg_figure rg_byte_count(double bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    int unit = 0;
    for (; unit < 4 && bytes >= 1000; unit++)
        bytes /= 1024;
    const int decimals = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
    return with_unit(rg_fixed(bytes, decimals), units[unit]);
}

rg_figure rg_duration(double seconds)
{
    if (!isfinite(seconds))
        return none();
    if (seconds < 1e-3)
        return with_unit(rg_significant(seconds * 1e6, 2), "\xc2\xb5s");
    if (seconds < 1)
        return with_unit(rg_significant(seconds * 1e3, 3), "ms");
    if (seconds < 60)
        return with_unit(rg_significant(seconds, 3), "s");
    rg_figure figure;
    const double minutes = floor(seconds / 60), hours = floor(minutes / 60);
    if (hours >= 1)
        snprintf(figure.text, sizeof figure.text, "%.0f\xc2\xa0h %02.0f\xc2\xa0min", hours,
                 minutes - hours * 60);
    else
        snprintf(figure.text, sizeof figure.text, "%.0f\xc2\xa0min %02.0f\xc2\xa0s", minutes,
                 floor(seconds - minutes * 60));
    return figure;
}
