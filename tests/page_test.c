/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What report.html is made of: figures, escaped text, images as PNG in base64. */
#include "tests/markup.h"
#include "train/figures.h"
#include "train/page.h"
#include "train/png_uri.h"

#include <locale.h>
#include <math.h>

/* ---- figures and text ---- */

static bool is(rg_figure figure, const char *text)
{
    if (strcmp(figure.text, text) != 0)
        printf("%s instead of %s\n", figure.text, text);
    return strcmp(figure.text, text) == 0;
}

static void test_figures(void)
{
    EXPECT(is(rg_fixed(1.25, 1), "1.3") && is(rg_fixed(-0.004, 2), "0.00"));
    EXPECT(is(rg_fixed(-12.5, 3), "-12.500") && is(rg_fixed(1e17, 2), "100000000000000000"));
    EXPECT(is(rg_fixed(1e300, 2), "1e+300") && is(rg_fixed(NAN, 2), "NaN"));
    EXPECT(is(rg_fixed(-INFINITY, 2), "−∞"));
    EXPECT(is(rg_significant(0.123456, 4), "0.1235") &&
           is(rg_significant(1.2345e-7, 3), "1.23e-7"));
    EXPECT(is(rg_significant(0, 4), "0") && is(rg_significant(123456, 3), "123456"));
    EXPECT(is(rg_significant(4e-320, 2), "4.0e-320") && is(rg_significant(INFINITY, 2), "∞"));
    EXPECT(is(rg_percent(0.9158, 1), "91.6\u00a0%") && is(rg_percent(NAN, 1), "–"));
    EXPECT(is(rg_count(0), "0") && is(rg_count(999), "999") && is(rg_count(-1000), "-1\u202f000"));
    EXPECT(is(rg_count(INT64_MIN), "-9\u202f223\u202f372\u202f036\u202f854\u202f775\u202f808"));
    EXPECT(is(rg_byte_count(17), "17\u00a0bytes") &&
           is(rg_byte_count(3.1 * 1048576), "3.10\u00a0MiB"));
    EXPECT(is(rg_byte_count(5e15), "4547\u00a0TiB"));
    EXPECT(is(rg_duration(0.000038), "38\u00a0µs") && is(rg_duration(0.0042), "4.20\u00a0ms"));
    EXPECT(is(rg_duration(12.34), "12.3\u00a0s") && is(rg_duration(245), "4\u00a0min 05\u00a0s"));
    EXPECT(is(rg_duration(7800), "2\u00a0h 10\u00a0min") && is(rg_duration(INFINITY), "–"));
}

static bool shows(const char *text, size_t most, const char *wanted)
{
    rg_page page = { 0 };
    rg_page_text(&page, text, most);
    const bool same = page.length == 0 ? wanted[0] == 0 : strcmp(page.text, wanted) == 0;
    if (!same)
        printf("%s instead of %s\n", page.text, wanted);
    rg_page_clear(&page);
    return same;
}

static void test_text(void)
{
    EXPECT(shows("a<b>&\"'", 99, "a&lt;b&gt;&amp;&quot;&#39;"));
    EXPECT(shows("größe 図 😀", 99, "größe 図 😀") && shows("größe", 3, "grö…"));
    EXPECT(shows(NULL, 9, "") && shows("", 9, "") && shows("a\tb\nc", 9, "a b c"));
    EXPECT(shows("\x01\x1f\x7f\xc2\x85", 9, "\ufffd\ufffd\ufffd\ufffd"));
    EXPECT(shows("\xff\xc3(\xe2\x82", 9, "\ufffd\ufffd(\ufffd"));     /* cut short */
    EXPECT(shows("\xc0\xaf\xed\xa0\x80", 9, "\ufffd\ufffd\ufffd"));   /* overlong, surrogate */
    EXPECT(shows("\xf4\x90\x80\x80\xef\xbf\xbf", 9, "\ufffd\ufffd")); /* beyond Unicode */
    EXPECT(shows("\xe2\x80\xaeolleh\xe2\x81\xa6", 9, "\ufffdolleh\ufffd")); /* turns the text */
}

/* ---- images ---- */

static uint32_t big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static size_t decode_base64(const char *text, uint8_t *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    size_t size = 0, count = 0;
    for (; *text != 0 && *text != '='; text++) {
        bits = bits << 6 | (uint32_t)(strchr(digits, *text) - digits);
        if (++count % 4 != 1)
            to[size++] = (uint8_t)(bits >> (6 - 2 * ((count - 1) % 4)));
    }
    return size;
}

static uint32_t slow_crc(const uint8_t *data, size_t size)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < 8 * size; i++)
        crc = (crc >> 1) ^ (((crc ^ (uint32_t)(data[i / 8] >> i % 8)) & 1) * 0xedb88320u);
    return ~crc;
}

/* Reads what the encoder wrote: the sizes, and the pixels of the stored blocks. */
static bool png_holds(const char *uri, uint32_t height, uint32_t width, const uint8_t *pixels,
                      size_t row)
{
    static const char head[] = "data:image/png;base64,";
    static uint8_t png[1 << 20], raw[1 << 20];
    if (strncmp(uri, head, sizeof head - 1) != 0)
        return false;
    const size_t size = decode_base64(uri + sizeof head - 1, png);
    size_t at = 8, count = 0;
    bool good = size > 45 && memcmp(png, "\x89PNG\r\n\x1a\n", 8) == 0 &&
                big_endian(png + 16) == width && big_endian(png + 20) == height;
    while (good && at + 12 <= size) {
        const size_t length = big_endian(png + at);
        good = at + 12 + length <= size &&
               big_endian(png + at + 8 + length) == slow_crc(png + at + 4, length + 4);
        for (size_t k = at + 10; good && memcmp(png + at + 4, "IDAT", 4) == 0;) {
            const size_t block = png[k + 1] | (size_t)png[k + 2] << 8;
            memcpy(raw + count, png + k + 5, block);
            count += block;
            k += 5 + block;
            if (png[k - 5 - block] == 1) {
                good = k + 4 == at + 8 + length;
                break;
            }
        }
        at += 12 + length;
    }
    good = good && at == size && count == height * (row + 1);
    for (size_t y = 0; y < height && good; y++)
        good =
            raw[y * (row + 1)] == 0 && memcmp(raw + y * (row + 1) + 1, pixels + y * row, row) == 0;
    return good;
}

static void test_images(void)
{
    static uint8_t pixels[300 * 300 * 3];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 7 + i / 50);
    static const int32_t sizes[][3] = {
        { 28, 28, 1 }, { 1, 1, 1 }, { 32, 31, 3 }, { 255, 256, 3 }
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        rg_page page = { 0 };
        const int32_t h = sizes[i][0], w = sizes[i][1], c = sizes[i][2];
        EXPECT_OK(rg_png_uri(&page, pixels, h, w, c, 300));
        EXPECT(png_holds(page.text, (uint32_t)h, (uint32_t)w, pixels, (size_t)(w * c)));
        rg_page_clear(&page);
    }
    rg_page page = { 0 };
    const uint8_t four[16] = { 10, 20, 1, 2, 30, 40, 3, 5, 0, 0, 255, 255, 0, 1, 255, 254 };
    EXPECT_OK(rg_png_uri(&page, four, 4, 4, 1, 2)); /* each the mean of four */
    EXPECT(png_holds(page.text, 2, 2, (const uint8_t[]){ 25, 3, 0, 255 }, 2));
    rg_page_clear(&page);
    EXPECT_OK(
        rg_png_uri(&page, four, 2, 2, 4, 9)); /* red, green, blue, and one that is not shown */
    EXPECT(png_holds(page.text, 2, 2,
                     (const uint8_t[]){ 10, 20, 1, 30, 40, 3, 0, 0, 255, 0, 1, 255 }, 6));
    rg_page_clear(&page);
    EXPECT_FAILS(rg_png_uri(&page, four, 0, 4, 1, 2), RG_INVALID_ARGUMENT, "0 x 4 pixels");
    EXPECT_FAILS(rg_png_uri(&page, pixels, 1, 200000, 1, 9), RG_UNSUPPORTED, "too narrow");
    rg_page_clear(&page);
}

int main(void)
{
    test_figures();
    test_text();
    test_images();
    return rg_test_report();
}
