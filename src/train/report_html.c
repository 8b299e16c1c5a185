/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The page around the parts: head, summary, navigation, options. It is well-formed XML as well. */
#include "train/report_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Options at most. */
enum { MOST_OPTIONS = 200 };

static bool has(const char *text)
{
    return text != NULL && text[0] != 0;
}

void rg_section_begin(rg_page *page, const char *id, const char *heading)
{
    rg_page_put(page, "<section id=\"%s\">\n<h2>%s</h2>\n", id, heading);
}

void rg_section_end(rg_page *page)
{
    rg_page_put(page, "</section>\n");
}

/* ---- the summary ---- */

/* A figure in the band; `note` is our own text. */
static void add_figure(rg_page *page, const char *name, const char *value, const char *note)
{
    rg_page_put(page, "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>\n", name, value, note);
}

/* "test images, epoch 4" */
enum { NOTE = 128 };
static void describe_test(const rg_report *r, char note[NOTE])
{
    char epoch[64] = "";
    const bool validated = r->test_part != NULL && strcmp(r->test_part, "validation") == 0;
    if (r->test_epoch > 0)
        snprintf(epoch, sizeof epoch, ", epoch %s", rg_count(r->test_epoch).text);
    snprintf(note, NOTE, "%s images%s", validated ? "validation" : "test", epoch);
}

static void add_quality(rg_page *page, const rg_report *r)
{
    const int64_t best = rg_best_epoch(r);
    const rg_report_epoch *e = best >= 0            ? &r->epochs[best]
                               : r->epoch_count > 0 ? &r->epochs[r->epoch_count - 1]
                                                    : NULL;
    char note[NOTE];
    double accuracy = r->test_accuracy, loss = r->test_loss;
    describe_test(r, note);
    if (!isfinite(accuracy) && !isfinite(loss)) { /* nothing was tested */
        const bool validated = e != NULL && e->validated;
        snprintf(note, sizeof note, "%s", validated ? "validation" : "training");
        accuracy = e == NULL ? NAN : validated ? e->validation_accuracy : e->train_accuracy;
        loss = e == NULL ? NAN : validated ? e->validation_loss : e->train_loss;
    }
    const char *metric = r->metric != NULL ? r->metric : "Accuracy";
    if (isfinite(accuracy))
        add_figure(page, metric, rg_percent(accuracy, 2).text, note);
    else if (r->metric != NULL && isfinite(r->test_score) && isfinite(r->test_loss))
        add_figure(page, metric, rg_significant(r->test_score, 4).text, note);
    if (isfinite(r->test_iou) && r->test_iou > 0)
        add_figure(page, "Mean intersection over union", rg_percent(r->test_iou, 2).text, note);
    if (e != NULL || isfinite(loss))
        add_figure(page, "Loss", rg_significant(loss, 4).text, note);
}

static void add_speed(rg_page *page, const rg_report *r)
{
    double seconds = 0, images = 0, timed = 0;
    for (int64_t i = 0; i < r->epoch_count; i++) {
        const rg_report_epoch *e = &r->epochs[i];
        if (isfinite(e->seconds) && e->seconds > 0)
            seconds += e->seconds;
        if (isfinite(e->images_per_second) && e->images_per_second > 0) {
            images += 1 / e->images_per_second; /* the harmonic mean: epochs are equally long */
            timed += 1;
        }
    }
    char note[96];
    snprintf(note, sizeof note, "%s epoch%s", rg_count(r->epoch_count).text,
             r->epoch_count == 1 ? "" : "s");
    add_figure(page, "Time", rg_duration(r->epoch_count > 0 ? seconds : NAN).text, note);
    if (timed > 0 && images > 1e-15)
        add_figure(page, "Images per second", rg_count(llround(timed / images)).text,
                   "in training");
}

static void add_size(rg_page *page, const rg_report *r)
{
    double parameters = 0;
    for (int64_t i = 0; i < r->layer_count; i++)
        parameters += (double)r->layers[i].parameters;
    if (r->layer_count <= 0 || !(parameters < 9e18))
        return;
    char note[96];
    snprintf(note, sizeof note, "%s layer%s", rg_count(r->layer_count).text,
             r->layer_count == 1 ? "" : "s");
    add_figure(page, "Parameters", rg_count((int64_t)parameters).text, note);
}

/* ---- what went wrong ---- */

static void add_alarm(rg_page *page, const rg_report *r)
{
    if (r->epoch_count <= 0 && r->step_count <= 0)
        rg_page_put(page, "<p class=\"alarm\" role=\"note\">No epoch was completed.</p>\n");
    for (int64_t i = 0; i < r->epoch_count; i++) {
        const rg_report_epoch *e = &r->epochs[i];
        if (isfinite(e->train_loss) && (!e->validated || isfinite(e->validation_loss)))
            continue;
        rg_page_put(page,
                    "<p class=\"alarm\" role=\"note\">Training diverged: the loss is not finite "
                    "from epoch %s on. A lower learning rate may help.</p>\n",
                    rg_count(e->epoch).text);
        return;
    }
    for (int64_t i = 0; i < r->step_count; i++) {
        if (!isfinite(r->steps[i].loss)) {
            rg_page_put(page,
                        "<p class=\"alarm\" role=\"note\">The loss is not finite at step %s."
                        "</p>\n",
                        rg_count(r->steps[i].step).text);
            return;
        }
    }
}

/* ---- head ---- */

static void add_words(rg_page *page, const char *const *words, int count)
{
    bool any = false;
    for (int i = 0; i < count; i++) {
        if (!has(words[i]))
            continue;
        if (any)
            rg_page_put(page, " \xc2\xb7 ");
        rg_page_text(page, words[i], RG_TIP);
        any = true;
    }
}

static void add_navigation(rg_page *page, const rg_report *r)
{
    const struct {
        const char *id, *name;
        bool there;
    } parts[] = {
        { "curves", "Learning curves", r->epoch_count > 0 || r->step_count > 0 },
        { "confusion", "Confusion", r->confusion != NULL && r->classes > 0 },
        { "targets",
          r->target == RG_TARGET_VALUES   ? "Values"
          : r->target == RG_TARGET_LABELS ? "Labels"
                                          : "Classes of pixels",
          rg_report_has_targets(r) },
        { "worst", "Worst predictions", r->worst_count > 0 },
        { "network", "Network", r->layer_count > 0 || r->drawing.node_count > 0 },
        { "time", "Time per op", r->timing_count > 0 },
        { "memory", "Memory plan", r->memory_count > 0 && r->memory_steps > 0 },
        { "run", "Command and options", true },
    };
    rg_page_put(page, "<nav aria-label=\"Sections of the report\">");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].there)
            rg_page_put(page, "<a href=\"#%s\">%s</a>", parts[i].id, parts[i].name);
    }
    rg_page_put(page, "</nav>\n");
}

static void add_head(rg_page *page, const rg_report *r)
{
    const char *title = has(r->title) ? r->title : "Training run";
    const char *const words[] = { r->model, r->dataset, r->device, r->date };
    rg_page_put(page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n"
                      "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
                      "<link rel=\"icon\" href=\"data:,\"/>\n<title>");
    rg_page_text(page, title, RG_TIP);
    rg_page_put(page, "</title>\n<style>\n");
    rg_report_style(page);
    rg_page_put(page, "</style>\n</head>\n<body>\n<header>\n<h1>");
    rg_page_text(page, title, RG_TIP);
    rg_page_put(page, "</h1>\n<p class=\"sub\">");
    add_words(page, words, 4);
    rg_page_put(page, "</p>\n");
    add_alarm(page, r);
    rg_page_put(page, "<dl class=\"band\">\n");
    add_quality(page, r);
    add_speed(page, r);
    add_size(page, r);
    rg_page_put(page, "</dl>\n");
    add_navigation(page, r);
    rg_page_put(page, "</header>\n<main>\n");
}

/* ---- the run ---- */

static void add_pair(rg_page *page, const char *name, const char *value)
{
    if (!has(value))
        return;
    rg_page_put(page, "<dt>");
    rg_page_text(page, name, RG_TIP);
    rg_page_put(page, "</dt><dd>");
    rg_page_text(page, value, RG_LONG);
    rg_page_put(page, "</dd>\n");
}

static void add_run(rg_page *page, const rg_report *r)
{
    rg_section_begin(page, "run", "Command and options");
    if (has(r->command)) {
        rg_page_put(page, "<p class=\"note\">Command</p>\n<pre><code>");
        rg_page_text(page, r->command, RG_LONG);
        rg_page_put(page, "</code></pre>\n<h3>Options</h3>\n");
    }
    rg_page_put(page, "<dl class=\"pairs\">\n");
    add_pair(page, "model", r->model);
    add_pair(page, "data", r->dataset);
    add_pair(page, "device", r->device);
    add_pair(page, "date", r->date);
    for (int64_t i = 0; i < r->option_count && i < MOST_OPTIONS; i++)
        add_pair(page, r->options[i].name, r->options[i].value);
    rg_page_put(page, "</dl>\n");
    rg_section_end(page);
}

static rg_status add_all(rg_page *page, const rg_report *r)
{
    add_head(page, r);
    RG_TRY(rg_report_curves(page, r));
    RG_TRY(rg_report_confusion(page, r));
    RG_TRY(rg_report_targets(page, r));
    RG_TRY(rg_report_worst(page, r));
    RG_TRY(rg_report_network(page, r));
    RG_TRY(rg_report_time(page, r));
    RG_TRY(rg_report_memory_plan(page, r));
    add_run(page, r);
    rg_page_put(page,
                "</main>\n"
                "<footer>Written by retrograde %s. This page is self-contained and uses no "
                "scripts.</footer>\n"
                "</body>\n"
                "</html>\n",
                rg_version());
    return page->status;
}

rg_status rg_report_write_html(const rg_report *report, const char *path)
{
    RG_CHECK_NOT_NULL(report);
    RG_CHECK_NOT_NULL(path);
    rg_page page = { 0 };
    const rg_status status = add_all(&page, report);
    if (status != RG_OK) {
        rg_page_clear(&page);
        return status;
    }
    return rg_page_save(&page, path);
}
