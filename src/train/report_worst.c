/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The images the network is most wrong about. */
#include "train/png_uri.h"
#include "train/report_parts.h"

#include <string.h>

/* Images, and pixels of a side, at most: 24 in colour are 300 KB of text. */
enum { MOST_IMAGES = 24, MOST_PIXELS = 56 };

static void add_mask(rg_page *page, const rg_report_image *image, const uint8_t *mask,
                     const char *name)
{
    rg_page_put(page, "<img alt=\"%s\" src=\"", name);
    if (page->status == RG_OK)
        page->status =
            rg_png_uri(page, mask, image->mask_height, image->mask_width, 3, RG_MASK_PIXELS);
    rg_page_put(page, "\"/>");
}

/* What was predicted, and what is true. */
static void add_answer(rg_page *page, const rg_report *r, const rg_report_image *image)
{
    rg_page_put(page, "<p><span class=\"said\">");
    if (r->target == RG_TARGET_CLASS) {
        rg_class_name(page, r, image->predicted, RG_NAME);
        rg_page_put(page, "</span><br/><span class=\"true\">%s, true class: ",
                    rg_percent(image->probability, 1).text);
        rg_class_name(page, r, image->label, RG_NAME);
    } else {
        rg_page_text(page, image->said, RG_TIP);
        rg_page_put(page, "</span><br/><span class=\"true\">");
        rg_page_text(page, image->wanted, RG_TIP);
    }
    rg_page_put(page, "</span></p>");
}

static void add_alternative(rg_page *page, const rg_report *r, const rg_report_image *image)
{
    if (r->target != RG_TARGET_CLASS) {
        rg_page_put(page, "image");
        return;
    }
    rg_class_name(page, r, image->label, RG_NAME);
    rg_page_put(page, ", predicted as ");
    rg_class_name(page, r, image->predicted, RG_NAME);
}

static void add_image(rg_page *page, const rg_report *r, const rg_report_image *image)
{
    const bool masks = image->said_mask != NULL && image->true_mask != NULL;
    rg_page_put(page, "<li>%s<img alt=\"", masks ? "<div class=\"three\">" : "");
    add_alternative(page, r, image);
    rg_page_put(page, "\"");
    if (image->name != NULL) {
        rg_page_put(page, " title=\"");
        rg_page_text(page, image->name, RG_TIP);
        rg_page_put(page, "\"");
    }
    rg_page_put(page, " src=\"");
    if (page->status == RG_OK)
        page->status = rg_png_uri(page, image->pixels, image->height, image->width, image->channels,
                                  masks ? RG_MASK_PIXELS : MOST_PIXELS);
    rg_page_put(page, "\"/>");
    if (masks) {
        add_mask(page, image, image->said_mask, "predicted mask");
        add_mask(page, image, image->true_mask, "true mask");
        rg_page_put(page, "</div>");
    }
    add_answer(page, r, image);
    rg_page_put(page, "</li>\n");
}

static bool can_show(const rg_report_image *image)
{
    const int64_t height = image->height, width = image->width;
    return image->pixels != NULL && height > 0 && width > 0 && image->channels > 0 &&
           height <= 16 * width && width <= 16 * height; /* no strips */
}

rg_status rg_report_worst(rg_page *page, const rg_report *r)
{
    static const char *const notes[] = {
        "the highest loss: predicted class, its probability, true class.",
        "the lowest probability of the right labels: predicted labels, true ones.",
        "the largest mean absolute error: predicted values, true values.",
        "the most wrong pixels: image, predicted mask, true mask."
    };
    int shown = 0;
    if ((unsigned)r->target > RG_TARGET_MASK)
        return RG_OK;
    for (int64_t i = 0; i < r->worst_count && shown < MOST_IMAGES; i++) {
        if (!can_show(&r->worst[i]))
            continue;
        if (shown++ == 0) {
            rg_section_begin(page, "worst", "Worst predictions");
            const bool validated = r->test_part != NULL && strcmp(r->test_part, "validation") == 0;
            rg_page_put(page, "<p class=\"note\">%s images with %s</p>\n<ul class=\"worst%s\">\n",
                        validated ? "Validation" : "Test", notes[r->target],
                        r->target == RG_TARGET_MASK ? " masks" : "");
        }
        add_image(page, r, &r->worst[i]);
    }
    if (shown > 0) {
        rg_page_put(page, "</ul>\n");
        rg_section_end(page);
    }
    return page->status;
}
