/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Passes over all images of a list, by several threads; those that cannot be used are named at
 * once. */
#include "train/image_pass.h"

#include "core/thread.h"

#include <sched.h>
#include <stdio.h>

static const rg_allocator *const memory = &rg_default_allocator;

enum { SENTENCE = 400, KEPT = 100 };

/* An image that cannot be used. */
typedef struct bad_image {
    size_t index;
    rg_status status;
    char text[SENTENCE];
} bad_image;

typedef struct pass {
    rg_image_pass *of;
    _Atomic size_t next;
    _Atomic bool is_over;  /* the rest need not be looked at */
    _Atomic bool is_ended; /* by the caller */
    pthread_t caller;
    const rg_dataset_options *options;
    pthread_mutex_t lock; /* of what follows */
    bad_image *bad;       /* (KEPT), by index */
    size_t kept, found;   /* of bad images: those in the list, all of them */
    size_t resizable;     /* of these: those that only have another size; the first one is: */
    bad_image other_size;
    rg_decode_budget budget;
} pass;

static void set_bad(bad_image *bad, size_t index, rg_status status)
{
    *bad = (bad_image){ .index = index, .status = status };
    snprintf(bad->text, SENTENCE, "%s", rg_error_text());
}

/* Keeps those that come first, in their order, whichever thread finds them. Of those that only have
 * another size, of which there may be very many, one is enough. */
static void keep_bad(pass *p, size_t index, rg_status status, bool is_resizable)
{
    pthread_mutex_lock(&p->lock);
    p->found++;
    size_t at = p->kept;
    if (is_resizable) {
        if (p->resizable++ == 0 || index < p->other_size.index)
            set_bad(&p->other_size, index, status);
        at = KEPT;
    } else if (at < KEPT) {
        p->kept++;
    } else if (index < p->bad[KEPT - 1].index) {
        at = KEPT - 1;
    }
    if (at < KEPT) {
        for (; at > 0 && p->bad[at - 1].index > index; at--)
            p->bad[at] = p->bad[at - 1];
        set_bad(&p->bad[at], index, status);
    }
    pthread_mutex_unlock(&p->lock);
}

/* Looks for an image with colours; those that cannot be read are reported later. */
static void look_for_colour(pass *p, size_t i, rg_decoder *decoder)
{
    rg_image_header header = { 0 };
    if (rg_items_read_header(p->of->items, i, decoder, &header) == RG_OK && header.channels == 3)
        p->is_over = true;
}

/* Decodes or checks one image and its mask. */
static rg_status pass_item(pass *p, size_t i, rg_decoder *decoder, rg_mask_classes *present)
{
    const rg_image_pass *of = p->of;
    if (of->kind == RG_PASS_COLOURS) {
        look_for_colour(p, i, decoder);
        return RG_OK;
    }
    if (of->kind != RG_PASS_MASKS)
        RG_TRY(of->pixels != NULL
                   ? rg_items_decode(of->items, i, decoder, of->pixels + i * of->image_bytes)
                   : rg_items_check(of->items, i, decoder));
    if (!of->items->has_masks)
        return RG_OK;
    return rg_items_check_mask(of->items, i, decoder, decoder->was, present,
                               of->classes != NULL ? of->classes + (int64_t)i * of->targets : NULL);
}

static bool is_other_size(const rg_image_pass *of, rg_extent size)
{
    const rg_image_form *form = &of->items->form;
    return of->kind != RG_PASS_MASKS && !form->resize && size.height > 0 &&
           (size.height != form->size.height || size.width != form->size.width);
}

/* The caller's own thread asks whether to go on. */
static bool goes_on(pass *p)
{
    const rg_dataset_options *o = p->options;
    if (o->watch != NULL && pthread_equal(pthread_self(), p->caller) && !p->is_ended) {
        const size_t next = p->next, count = p->of->items->count;
        if (!o->watch(o->context, (int64_t)(next < count ? next : count), (int64_t)count))
            p->is_ended = true;
    }
    return !p->is_over && !p->is_ended;
}

static void *pass_main(void *context)
{
    pass *p = context;
    rg_decoder decoder = { .budget = &p->budget };
    rg_mask_classes present = { .largest = -1 };
    for (size_t i; goes_on(p) && (i = atomic_fetch_add(&p->next, 1)) < p->of->items->count;) {
        decoder.was = (rg_extent){ 0, 0 };
        const rg_status status = pass_item(p, i, &decoder, &present);
        if (status != RG_OK)
            keep_bad(p, i, status, is_other_size(p->of, decoder.was));
    }
    pthread_mutex_lock(&p->lock);
    rg_mask_classes_join(&p->of->present, &present);
    pthread_mutex_unlock(&p->lock);
    rg_decoder_release(&decoder);
    return NULL;
}

int32_t rg_decoder_threads(int32_t asked)
{
    enum { MOST = 16 };
    cpu_set_t allowed;
    if (asked > 0)
        return asked < 64 ? asked : 64;
    const int count = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    return count < MOST ? count : MOST;
}

/* Names the bad images, and fails with one sentence. */
static rg_status tell_bad(const pass *p, const rg_dataset_options *options)
{
    const size_t others = p->found - p->resizable;
    if (p->found == 0)
        return RG_OK;
    const bool is_size = others == 0 || (p->resizable > 0 && p->other_size.index < p->bad[0].index);
    const bad_image *first = is_size ? &p->other_size : &p->bad[0];
    if (p->found == 1)
        return rg_fail(first->status, "%s", first->text);
    for (size_t i = 0; i < p->kept; i++)
        rg_dataset_say(options, "%s", p->bad[i].text);
    if (others > p->kept)
        rg_dataset_say(options, "… and %zu more", others - p->kept);
    if (others > 0 && p->resizable > 0)
        rg_dataset_say(options, "%zu images have another size than the first one", p->resizable);
    return rg_fail(first->status, "%zu of %zu images cannot be used; the first is %s", p->found,
                   p->of->items->count, first->text);
}

static void run_threads(pass *p, int32_t wanted)
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    int32_t started = 0;
    pthread_mutex_init(&p->lock, NULL);
    rg_decode_budget_begin(&p->budget);
    while (started < wanted - 1 && started + 1 < (int64_t)p->of->items->count &&
           rg_thread_start(&threads[started], pass_main, p))
        started++;
    (void)pass_main(p);
    for (int32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    rg_decode_budget_end(&p->budget);
    pthread_mutex_destroy(&p->lock);
}

rg_status rg_image_pass_over(rg_image_pass *of, const rg_dataset_options *options)
{
    pass p = { .of = of, .options = options, .caller = pthread_self() };
    of->present.largest = -1;
    RG_TRY(rg_allocate_array(KEPT, sizeof *p.bad, &p.bad));
    run_threads(&p, rg_decoder_threads(options->threads));
    of->has_colours = p.is_over;
    const rg_status status = p.is_ended
                                 ? rg_fail(RG_INVALID_STATE, "reading the images was interrupted")
                                 : tell_bad(&p, options);
    rg_release(memory, p.bad, KEPT * sizeof *p.bad);
    return status;
}
