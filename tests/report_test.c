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
