/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The images the network is most wrong about. */
#include "train/png_uri.h"
#include "train/report_parts.h"

/* Images, and pixels of a side, at most: 24 in colour are 300 KB of text. */
enum { MOST_IMAGES = 24, MOST_PIXELS = 56 };

static void add_image(rg_page *page, const rg_report *r, const rg_report_image *image)
{
    rg_page_put(page, "<li><img alt=\"");
    rg_class_name(page, r, image->label, RG_NAME);
    rg_page_put(page, ", predicted as ");
    rg_class_name(page, r, image->predicted, RG_NAME);
    rg_page_put(page, "\"");
    if (image->name != NULL) {
        rg_page_put(page, " title=\"");
        rg_page_text(page, image->name, RG_TIP);
        rg_page_put(page, "\"");
    }
    rg_page_put(page, " src=\"");
    if (page->status == RG_OK)
        page->status = rg_png_uri(page, image->pixels, image->height, image->width, image->channels,
                                  MOST_PIXELS);
    rg_page_put(page, "\"/><p><span class=\"said\">");
    rg_class_name(page, r, image->predicted, RG_NAME);
    rg_page_put(page, "</span><br/><span class=\"true\">%s, true class: ",
                rg_percent(image->probability, 1).text);
    rg_class_name(page, r, image->label, RG_NAME);
    rg_page_put(page, "</span></p></li>\n");
}

static bool can_show(const rg_report_image *image)
{
    const int64_t height = image->height, width = image->width;
    return image->pixels != NULL && height > 0 && width > 0 && image->channels > 0 &&
           height <= 16 * width && width <= 16 * height; /* no strips */
}

rg_status rg_report_worst(rg_page *page, const rg_report *r)
{
    int shown = 0;
    for (int64_t i = 0; i < r->worst_count && shown < MOST_IMAGES; i++) {
        if (!can_show(&r->worst[i]))
            continue;
        if (shown++ == 0) {
            rg_section_begin(page, "worst", "Worst predictions");
            rg_page_put(page, "<p class=\"note\">Test images with the highest loss: predicted "
                              "class, its probability, true class.</p>\n"
                              "<ul class=\"worst\">\n");
        }
        add_image(page, r, &r->worst[i]);
    }
    if (shown > 0) {
        rg_page_put(page, "</ul>\n");
        rg_section_end(page);
    }
    return page->status;
}
