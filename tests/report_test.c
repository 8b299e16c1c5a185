/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* report.html: a plausible run, hostile text, runs that went wrong, empty and huge lists.
 *
 *      report_test            checks
 *      report_test FOLDER     writes pages there, for a browser to look at */
#include "tests/markup.h"
#include "tests/report_sample.h"
#include "train/report_parts.h"
#include "train/figures.h"
#include "train/page.h"
#include "train/png_uri.h"

#include <locale.h>
#include <math.h>

static const char *const hostile = "</title></style><script>alert(1)</script> \" onload='x' & "
                                   "\x01\x7f \xff\xfe \xe2\x80\xae ]]> %s %n";

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

/* ---- pages ---- */

/* Writes the page, checks what holds for every page, returns its text. */
static char *page_of(const rg_report *report, int *tags)
{
    size_t size = 0;
    EXPECT_OK(rg_report_write_html(report, scratch("report.html")));
    char *text = markup_take("report.html", &size);
    EXPECT(strlen(text) == size && size > 5000 && size < 1000000);
    EXPECT(markup_check(text, tags));
    EXPECT(strstr(text, "<script") == NULL && strstr(text, "http:") == NULL);
    EXPECT(strstr(text, "https:") == NULL && strstr(text, "@import") == NULL);
    EXPECT(markup_count(text, "url(") == markup_count(text, "url(#end-"));
    EXPECT(markup_count(text, "<h1>") == 1 && strstr(text, "\"NaN\"") == NULL);
    EXPECT(strstr(text, "=\"\xe2\x88\x9e") == NULL);
    return text;
}

static void test_sample(sample *s)
{
    char *text = page_of(&s->report, NULL);
    static const char *const sections[] = { "curves", "confusion", "worst", "network",
                                            "time",   "memory",    "run" };
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        char words[64];
        snprintf(words, sizeof words, "<section id=\"%s\">", sections[i]);
        EXPECT(markup_count(text, words) == 1);
    }
    EXPECT(strstr(text, "91.58\u00a0%") && strstr(text, "0.2431") && strstr(text, "215\u202f370"));
    EXPECT(markup_count(text, "<figure class=\"chart\">") == 5);
    EXPECT(markup_count(text, "<td class=\"v") == 100 && strstr(text, "Ankle boot"));
    EXPECT(markup_count(text, "<img ") == SAMPLE_IMAGES);
    EXPECT(markup_count(text, "class=\"t m") == s->report.memory_count);
    EXPECT(markup_count(text, "<tr class=\"best\">") == 1);
    EXPECT(strstr(text, "prefers-color-scheme:dark") && strstr(text, "@media print"));
    free(text);
}

static void test_hostile(sample *s)
{
    static const char *const names[SAMPLE_CLASSES] = { "", NULL };
    const char *classes[SAMPLE_CLASSES];
    rg_report_layer layers[SAMPLE_LAYERS];
    rg_report_timing timings[SAMPLE_LAYERS];
    rg_report_pair option = { hostile, hostile };
    rg_draw_node *nodes = calloc(SAMPLE_NODES, sizeof *nodes);
    rg_draw_edge *edges = calloc(SAMPLE_EDGES, sizeof *edges);
    rg_report_memory *memory = calloc(SAMPLE_TENSORS, sizeof *memory);
    rg_report r = s->report;
    int tags, other_tags;
    r.options = &option;
    r.option_count = 1;
    for (int pass = 0; pass < 2; pass++) { /* the same page, once with plain words */
        const char *word = pass == 0 ? "word" : hostile;
        option = (rg_report_pair){ word, word };
        r.title = r.model = r.dataset = r.device = r.date = r.command = word;
        for (int i = 0; i < SAMPLE_CLASSES; i++)
            classes[i] = word;
        for (int i = 0; i < SAMPLE_LAYERS; i++) {
            layers[i] = (rg_report_layer){ word, word, word, word, 1 };
            timings[i] = (rg_report_timing){ word, word, 1, 1, 1 };
        }
        for (int i = 0; i < r.drawing.node_count; i++) {
            nodes[i] = s->nodes[i];
            nodes[i].label = nodes[i].op = nodes[i].text = word;
        }
        for (int i = 0; i < r.drawing.edge_count; i++) {
            edges[i] = s->edges[i];
            edges[i].text = word;
        }
        for (int64_t i = 0; i < r.memory_count; i++) {
            memory[i] = s->memory[i];
            memory[i].label = word;
        }
        for (int i = 0; i < SAMPLE_IMAGES; i++)
            s->images[i].name = word;
        r.class_names = classes;
        r.layers = layers;
        r.timings = timings;
        r.memory = memory;
        r.drawing.title = word;
        r.drawing.nodes = nodes;
        r.drawing.edges = edges;
        free(page_of(&r, pass == 0 ? &tags : &other_tags));
    }
    EXPECT(tags == other_tags);
    r.class_names = names; /* classes without names are numbered */
    char *text = page_of(&r, NULL);
    EXPECT(strstr(text, "class 0") && strstr(text, "class 9"));
    free(text);
    for (int i = 0; i < SAMPLE_IMAGES; i++)
        s->images[i].name = "test image";
    free(nodes);
    free(edges);
    free(memory);
}

static void test_bad_runs(sample *s)
{
    rg_report r = { .test_loss = NAN, .test_accuracy = NAN };
    char *text = page_of(&r, NULL);
    EXPECT(strstr(text, "No epoch was completed") && strstr(text, "Training run"));
    EXPECT(strstr(text, "<section id=\"run\">") && strstr(text, "<section id=\"curves\">") == NULL);
    free(text);

    r = s->report;
    r.epoch_count = 1; /* a curve of one point */
    free(page_of(&r, NULL));
    r.step_count = 1;
    r.epoch_count = 0;
    free(page_of(&r, NULL));
    r.step_count = 0;
    free(page_of(&r, NULL));

    rg_report_epoch epochs[4] = { s->epochs[0], s->epochs[1], s->epochs[2], s->epochs[3] };
    r = s->report;
    r.epochs = epochs;
    r.epoch_count = 4;
    epochs[2].train_loss = epochs[3].train_loss = NAN;
    epochs[3].validation_loss = INFINITY;
    text = page_of(&r, NULL);
    EXPECT(strstr(text, "not finite from epoch 3 on") && markup_count(text, "class=\"bad\"") >= 3);
    free(text);
    for (int i = 0; i < 4; i++)
        epochs[i] = (rg_report_epoch){ i, NAN, NAN, true, -INFINITY, NAN, NAN, INFINITY, NAN };
    r.test_loss = r.test_accuracy = NAN;
    free(page_of(&r, NULL));
    for (int i = 0; i < 4; i++) /* far apart, and far from 0 */
        epochs[i] = (rg_report_epoch){ i * INT64_C(1000000000000),
                                       pow(10, 90 * i - 150),
                                       0,
                                       i == 2,
                                       -1e300,
                                       1,
                                       1e300,
                                       1e-300,
                                       1e300 };
    free(page_of(&r, NULL));
}

static void test_classes(sample *s)
{
    rg_report r = s->report;
    const rg_confusion_cell one = { 0, 0, 7 };
    r.classes = 1;
    r.confusion = &one;
    r.confusion_count = 1;
    char *text = page_of(&r, NULL);
    EXPECT(strstr(text, "7 of 7 images are classified correctly") &&
           strstr(text, "Most frequent confusion") == NULL);
    free(text);

    rg_confusion_cell many[1002];
    for (int32_t i = 0; i < 1000; i++)
        many[i] = (rg_confusion_cell){ i, i, 50 };
    many[1000] = (rg_confusion_cell){ 123, 456, 31 };
    many[1001] = (rg_confusion_cell){ 1, 2, 30 };
    r.classes = 1000;
    r.confusion = many;
    r.confusion_count = 1002;
    r.class_names = NULL;
    text = page_of(&r, NULL);
    EXPECT(strstr(text, "<td>class 123</td><td>class 456</td><td class=\"n\">31</td>") != NULL);
    EXPECT(strstr(text, "class=\"matrix\"") == NULL && strstr(text, "class 1</td><td>class 2<"));
    free(text);
    r.confusion_count = 0; /* nothing was predicted */
    free(page_of(&r, NULL));
    r.classes = 24;
    free(page_of(&r, NULL));
}

/* As many of everything as a run can bring. */
static void test_large(sample *s)
{
    enum { MANY = 3000, SIDE = 300 };
    rg_report r = s->report;
    rg_report_epoch *epochs = calloc(MANY, sizeof *epochs);
    rg_report_step *steps = calloc(100 * MANY, sizeof *steps);
    rg_report_layer *layers = calloc(MANY, sizeof *layers);
    rg_report_timing *timings = calloc(MANY, sizeof *timings);
    rg_report_memory *memory = calloc(MANY, sizeof *memory);
    rg_report_image *images = calloc(MANY, sizeof *images);
    rg_draw_node *nodes = calloc(MANY, sizeof *nodes);
    rg_draw_edge *edges = calloc(MANY, sizeof *edges);
    uint8_t *pixels = calloc(SIDE * SIDE, 3);
    const char *label = "a label of some length, as they are made by tools";
    for (int i = 0; i < MANY; i++) {
        epochs[i] = s->epochs[i % SAMPLE_EPOCHS];
        epochs[i].epoch = i + 1;
        layers[i] = (rg_report_layer){ label, "conv", "1×2×3×4", label, INT64_MAX / 2 };
        timings[i] = (rg_report_timing){ label, "conv", 1, 2, 3 };
        memory[i] = (rg_report_memory){ label, (size_t)i * 100, 100, i, i + 5 };
        images[i] = (rg_report_image){ pixels, SIDE, SIDE, 3, 12345, -7, 0.5, label };
        nodes[i] = (rg_draw_node){ .label = label, .op = "conv", .text = label, .of = -1 };
        edges[i] = (rg_draw_edge){ i / 2, i / 2 + 1, "1×2×3×4", RG_DRAW_DATA };
    }
    for (int i = 0; i < 100 * MANY; i++)
        steps[i] = (rg_report_step){ i, 1 + 1.0 / (i + 1) };
    r.epochs = epochs;
    r.steps = steps;
    r.layers = layers;
    r.timings = timings;
    r.memory = memory;
    r.worst = images;
    r.drawing = (rg_drawing){ NULL, nodes, 320, edges, 636 };
    r.epoch_count = r.layer_count = r.timing_count = r.memory_count = r.worst_count = MANY;
    r.step_count = 100 * MANY;
    r.memory_steps = MANY + 5;
    char *text = page_of(&r, NULL);
    EXPECT(strstr(text, "and 2\u202f700 more") && strstr(text, "other layers"));
    EXPECT(strstr(text, "800 largest of 3\u202f000 tensors") && markup_count(text, "<img ") == 24);
    free(text);
    r.drawing.node_count = MANY;
    text = page_of(&r, NULL);
    EXPECT(strstr(text, "The drawing has 3\u202f000 nodes, too many") != NULL);
    free(text);
    free(epochs);
    free(steps);
    free(layers);
    free(timings);
    free(memory);
    free(images);
    free(nodes);
    free(edges);
    free(pixels);
}

/* Values that a plan or an image cannot have are left out. */
static void test_nonsense(sample *s)
{
    rg_report r = s->report;
    rg_report_memory memory[] = { { "a", 0, 100, 0, 1 },       { "b", SIZE_MAX, SIZE_MAX, 0, 0 },
                                  { "c", 0, 0, 0, 0 },         { "d", 0, 1, -5, 0 },
                                  { "e", 0, 1, 0, INT32_MAX }, { "f", 0, 1, 2, 1 } };
    rg_report_image images[] = { { NULL, 5, 5, 1, 0, 0, 0, NULL },
                                 { s->pixels[0], 0, 5, 1, 0, 0, 0, NULL },
                                 { s->pixels[0], 5, -5, 1, 0, 0, 0, NULL },
                                 { s->pixels[0], 5, 5, 0, 0, 0, 0, NULL } };
    rg_report_timing timings[] = { { NULL, NULL, NAN, INFINITY, -1 } };
    r.memory = memory;
    r.memory_count = 6;
    r.memory_steps = 2;
    r.worst = images;
    r.worst_count = 4;
    r.timings = timings;
    r.timing_count = 1;
    char *text = page_of(&r, NULL);
    EXPECT(markup_count(text, "class=\"t m") == 2 && strstr(text, "<img ") == NULL);
    free(text);
}

static void test_files(sample *s)
{
    EXPECT_FAILS(rg_report_write_html(&s->report, "/nonexistent/report.html"), RG_IO,
                 "nonexistent");
    EXPECT_FAILS(rg_report_write_html(&s->report, "/dev/full"), RG_IO, "No space");
    EXPECT_FAILS(rg_report_write_html(NULL, "x"), RG_INVALID_ARGUMENT, "report is NULL");
    EXPECT_FAILS(rg_report_write_html(&s->report, NULL), RG_INVALID_ARGUMENT, "path is NULL");
}

/* The same page where the decimal point is a comma. */
static void test_locale(sample *s)
{
    char *text = page_of(&s->report, NULL);
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "de_DE.utf8") == NULL) {
        printf("skipped: there is no German locale\n");
    } else {
        char *other = page_of(&s->report, NULL);
        EXPECT(strcmp(text, other) == 0);
        free(other);
        setlocale(LC_ALL, "C");
    }
    free(text);
}

/* ---- other targets than one class ---- */

static void test_values(sample *s)
{
    rg_report r = sample_of(s, RG_TARGET_VALUES);
    char *text = page_of(&r, NULL);
    EXPECT(markup_count(text, "<section id=\"targets\">") == 1);
    EXPECT(strstr(text, "<h2>Predicted and true values</h2>") && strstr(text, ">Values</a>"));
    EXPECT(markup_count(text, "<figure class=\"chart scatter\">") == SAMPLE_VALUES);
    EXPECT(markup_count(text, "h0") >= SAMPLE_VALUES * SAMPLE_POINTS);
    EXPECT(strstr(text, "<td class=\"n\">2.25</td><td class=\"n\">3</td><td class=\"n\">93.2") ||
           strstr(text, "<td class=\"n\">2.250</td><td class=\"n\">3.000</td>"));
    EXPECT(strstr(text, "12.5, -3.25") && strstr(text, "largest mean absolute error"));
    EXPECT(strstr(text, "true class") == NULL);
    free(text);
    s->points[0][0][0] = NAN;
    s->points[0][1][1] = INFINITY;
    for (int i = 0; i < SAMPLE_POINTS; i++)
        s->points[1][i][0] = s->points[1][i][1] = 1e30f;
    s->values[0].variance = 0;
    text = page_of(&r, NULL);
    EXPECT(markup_count(text, "<figure class=\"chart scatter\">") == SAMPLE_VALUES);
    free(text);
    r.value_count = 0;
    text = page_of(&r, NULL);
    EXPECT(strstr(text, "id=\"targets\"") == NULL);
    free(text);
}

static void test_labels(sample *s)
{
    rg_report r = sample_of(s, RG_TARGET_LABELS);
    char *text = page_of(&r, NULL);
    EXPECT(strstr(text, "<h2>Labels</h2>") && strstr(text, ">Labels</a>"));
    /* 1001 have label 1, 1099 are said to, 810 rightly: 480 of 10,000 are wrong */
    EXPECT(strstr(text, "<td>Trouser</td><td class=\"n\">1\u202f001</td><td class=\"n\">1\u202f099"
                        "</td><td class=\"n\">80.9\u00a0%</td><td class=\"n\">73.7\u00a0%</td>"
                        "<td class=\"n\">95.2\u00a0%</td>"));
    EXPECT(strstr(text, "Dress, Coat") && strstr(text, "predicted labels, true ones"));
    free(text);
}

static void test_masks(sample *s)
{
    rg_report r = sample_of(s, RG_TARGET_MASK);
    char *text = page_of(&r, NULL);
    EXPECT(strstr(text, "<h2>Classes of pixels</h2>") && strstr(text, "71.25\u00a0%"));
    EXPECT(markup_count(text, "class=\"swatch\"") == SAMPLE_CLASSES);
    /* 810 of 1001 + 1099 - 810 */
    EXPECT(strstr(text, "Trouser</td>") && strstr(text, "<td class=\"n\">62.8\u00a0%</td>"));
    EXPECT(markup_count(text, "<img ") == 3 * SAMPLE_IMAGES);
    EXPECT(markup_count(text, "alt=\"true mask\"") == SAMPLE_IMAGES);
    free(text);
    for (int32_t i = 0; i < 100; i++)
        EXPECT(rg_mask_colour(i) != rg_mask_colour(i + 1) && rg_mask_colour(i) <= 0xffffff);
    sample_of(s, RG_TARGET_CLASS); /* as it was */
}

/* ---- for a browser ---- */

static void write_page(const rg_report *report, const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    EXPECT_OK(rg_report_write_html(report, path));
}

static void write_pages(sample *s, const char *folder)
{
    char path[512];
    rg_report r = s->report;
    write_page(&r, folder, "report.html");
    snprintf(path, sizeof path, "%s/network.svg", folder);
    EXPECT_OK(rg_draw_svg(&r.drawing, path));
    snprintf(path, sizeof path, "%s/network.dot", folder);
    EXPECT_OK(rg_draw_dot(&r.drawing, path));
    r.title = r.model = r.dataset = r.command = hostile;
    write_page(&r, folder, "hostile.html");
    r = sample_of(s, RG_TARGET_VALUES);
    write_page(&r, folder, "values.html");
    r = sample_of(s, RG_TARGET_LABELS);
    write_page(&r, folder, "labels.html");
    r = sample_of(s, RG_TARGET_MASK);
    write_page(&r, folder, "masks.html");
    sample_of(s, RG_TARGET_CLASS);
    r = s->report;
    s->epochs[6].train_loss = s->epochs[7].train_loss = NAN;
    s->epochs[7].validation_loss = INFINITY;
    r.epoch_count = 8;
    r.test_loss = r.test_accuracy = NAN;
    write_page(&r, folder, "diverged.html");
    r = (rg_report){ .test_loss = NAN, .test_accuracy = NAN };
    write_page(&r, folder, "empty.html");
}

int main(int count, char **arguments)
{
    sample *s = sample_make();
    if (s == NULL)
        return 1;
    if (count > 1) {
        write_pages(s, arguments[1]);
        free(s);
        return rg_test_report();
    }
    scratch_begin();
    test_figures();
    test_text();
    test_images();
    test_sample(s);
    test_hostile(s);
    test_bad_runs(s);
    test_classes(s);
    test_large(s);
    test_nonsense(s);
    test_files(s);
    test_locale(s);
    test_values(s);
    test_labels(s);
    test_masks(s);
    scratch_end();
    free(s);
    return rg_test_report();
}
