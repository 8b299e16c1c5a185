/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Loaders: threads that fill a ring of batches.
 *
 *  Batches are numbered since the start or the last seek. Number n lies in slot n % buffers.
 * Threads take images of the newest batch, `begun` - 1, until it is given out, then begin the next
 * one if its slot is free: begun - released < buffers. The caller holds slot released % buffers
 * once it has taken a batch. What an image becomes depends on its epoch and its number in the set
 * alone, so that batches do not depend on who makes them. */
#include "train/loader.h"
#include "train/random.h"
#include "core/dtype.h"
#include "core/thread.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const rg_allocator *const memory = &rg_default_allocator;

/* ---- one batch ---- */

static void order_epoch(rg_loader *loader, int64_t epoch)
{
    if (loader->order == NULL || loader->ordered == epoch)
        return;
    const uint64_t key = rg_random_key(rg_random_key(loader->desc.seed, 1), (uint64_t)epoch);
    rg_random_order(key, loader->order, loader->set->info.count);
    loader->ordered = epoch;
}

/* Whether no batch of an epoch is left at a position: none at all, or none that is full. */
static bool epoch_ended(const rg_loader *loader, int64_t position)
{
    const int64_t left = loader->set->info.count - position;
    return left < (loader->desc.drop_last ? loader->desc.batch : 1);
}

static void move_on(rg_loader *loader, int64_t epoch, int64_t position)
{
    const bool over = epoch_ended(loader, position);
    loader->epoch = over ? epoch + 1 : epoch;
    loader->position = over ? 0 : position;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A batch never holds more images than there are, or than its part has. */
static int64_t batch_capacity(const rg_loader *loader)
{
    const int64_t most = loader->desc.most > 0 ? loader->desc.most : loader->desc.batch;
    return smaller(smaller(loader->desc.batch, most), loader->set->info.count);
}

/* The targets of an image become number i of a batch. */
static void take_targets(const rg_loader *loader, int64_t index, int64_t i, rg_loader_slot *to)
{
    const rg_dataset *set = loader->set;
    const int64_t count = set->info.targets;
    const float *values = rg_dataset_values(set, index);
    const int32_t *mask = rg_dataset_mask(set, index);
    if (set->info.target == RG_TARGET_MASK && mask == NULL)
        return; /* it is decoded with its image */
    if (mask != NULL)
        memcpy(to->labels + i * count, mask, (size_t)count * sizeof *mask);
    else
        to->labels[i] = values != NULL ? 0 : rg_dataset_label(set, index);
    for (int64_t k = 0; values != NULL && k < count; k++) {
        rg_element_set(to->values, loader->desc.dtype, i * count + k, (double)values[k]);
        to->exact[i * count + k] = values[k];
    }
}

/* Begins a batch: which images it has. */
static void begin_batch(rg_loader *loader)
{
    rg_loader_slot *const to = &loader->ring[loader->begun % (uint64_t)loader->desc.buffers];
    const int64_t epoch = loader->epoch, position = loader->position;
    const int64_t left = loader->set->info.count - position;
    const int64_t whole = smaller(left, loader->desc.batch);
    const int64_t first = smaller(loader->desc.first, whole);
    const int64_t count = smaller(whole - first, batch_capacity(loader));
    order_epoch(loader, epoch);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = position + first + i;
        const int64_t index = loader->order != NULL ? loader->order[at] : at;
        to->indices[i] = index;
        take_targets(loader, index, i, to);
    }
    to->batch = (rg_batch){ .images = to->images,
                            .labels = to->labels,
                            .values = to->values,
                            .indices = to->indices,
                            .count = count,
                            .epoch = epoch,
                            .position = position,
                            .last = epoch_ended(loader, position + whole) };
    to->given = to->done = 0;
    to->bad = -1;
    to->status = RG_OK;
    loader->begun++;
    move_on(loader, epoch, position + whole);
}

/* The newest batch, if it has images that no thread has taken; else a new one, if there is memory
 * for it; else NULL. */
static rg_loader_slot *find_work(rg_loader *loader)
{
    const uint64_t buffers = (uint64_t)loader->desc.buffers;
    if (loader->hurry)
        return NULL;
    if (loader->begun > 0) {
        rg_loader_slot *newest = &loader->ring[(loader->begun - 1) % buffers];
        if (loader->begun > loader->released && newest->given < newest->batch.count)
            return newest;
    }
    if (loader->begun - loader->released >= buffers)
        return NULL;
    begin_batch(loader);
    return &loader->ring[(loader->begun - 1) % buffers];
}

/* Makes image i of a batch, and its mask unless that is in memory. */
static rg_status make_image(rg_loader_worker *w, rg_loader_slot *to, int64_t i)
{
    const rg_dataset *set = w->loader->set;
    const int64_t index = to->indices[i];
    RG_TRY(rg_loader_write_image(w, to->batch.epoch, index,
                                 to->images + (size_t)i * w->loader->image_bytes));
    if (set->info.target != RG_TARGET_MASK || rg_dataset_mask(set, index) != NULL)
        return RG_OK;
    return rg_dataset_fetch_mask(set, index, &w->decoder, to->labels + i * set->info.targets);
}

/* Makes images `first` to `end` of a batch. The sentence of the first bad one is kept. */
static void make_images(rg_loader_worker *w, rg_loader_slot *to, int64_t first, int64_t end)
{
    rg_loader *loader = w->loader;
    for (int64_t i = first; i < end && !atomic_load_explicit(&loader->hurry, memory_order_relaxed);
         i++) {
        const rg_status status = make_image(w, to, i);
        if (status == RG_OK)
            continue;
        pthread_mutex_lock(&loader->lock);
        if (to->bad < 0 || i < to->bad) {
            to->bad = i;
            to->status = status;
            snprintf(to->text, sizeof to->text, "%s", rg_error_text());
        }
        pthread_mutex_unlock(&loader->lock);
    }
}

static void *worker_main(void *context)
{
    rg_loader_worker *w = context;
    rg_loader *loader = w->loader;
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop) {
        rg_loader_slot *const to = find_work(loader);
        if (to == NULL) {
            pthread_cond_wait(&loader->changed, &loader->lock);
            continue;
        }
        const int64_t first = to->given, left = to->batch.count - first;
        const int64_t count = left < loader->grain ? left : loader->grain;
        to->given += count;
        loader->busy++;
        pthread_mutex_unlock(&loader->lock);
        make_images(w, to, first, first + count);
        pthread_mutex_lock(&loader->lock);
        loader->busy--;
        to->done += count;
        if (to->done == to->batch.count || loader->hurry)
            pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

/* ---- taking batches ---- */

rg_status rg_loader_next(rg_loader *loader, rg_batch *batch)
{
    RG_CHECK_NOT_NULL(loader);
    RG_CHECK_NOT_NULL(batch);
    pthread_mutex_lock(&loader->lock);
    if (loader->held) {
        loader->released++;
        pthread_cond_broadcast(&loader->changed);
    }
    const rg_loader_slot *next = &loader->ring[loader->released % (uint64_t)loader->desc.buffers];
    while (loader->begun == loader->released || next->done < next->batch.count)
        pthread_cond_wait(&loader->changed, &loader->lock);
    loader->held = true;
    *batch = next->batch;
    const rg_status status = next->status;
    if (status != RG_OK)
        (void)rg_fail(status, "%s", next->text);
    pthread_mutex_unlock(&loader->lock);
    return status;
}

const float *rg_loader_exact(const rg_loader *loader)
{
    return loader->ring[loader->released % (uint64_t)loader->desc.buffers].exact;
}

rg_status rg_loader_seek(rg_loader *loader, int64_t epoch, int64_t position)
{
    RG_CHECK_NOT_NULL(loader);
    RG_CHECK(epoch >= 0 && epoch < INT64_MAX && position >= 0, RG_INVALID_ARGUMENT,
             "rg_loader_seek: position %lld of epoch %lld does not exist", (long long)position,
             (long long)epoch);
    RG_CHECK(position <= loader->set->info.count, RG_INVALID_ARGUMENT,
             "rg_loader_seek: position is %lld, but an epoch has %lld images", (long long)position,
             (long long)loader->set->info.count);
    pthread_mutex_lock(&loader->lock);
    loader->hurry = true;
    while (loader->busy > 0)
        pthread_cond_wait(&loader->changed, &loader->lock);
    loader->hurry = false;
    loader->begun = loader->released = 0;
    loader->held = false;
    move_on(loader, epoch, position);
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    return RG_OK;
}

int64_t rg_loader_batches(const rg_loader *loader)
{
    if (loader == NULL)
        return 0;
    const int64_t count = loader->set->info.count, batch = loader->desc.batch;
    return loader->desc.drop_last ? count / batch : (count - 1) / batch + 1;
}

/* ---- making and ending a loader ---- */

static size_t table_bytes(const rg_loader *loader)
{
    return (size_t)loader->set->info.channels * 256 * rg_dtype_size(loader->desc.dtype);
}

static rg_status make_table(rg_loader *loader)
{
    const rg_loader_desc *d = &loader->desc;
    void *table;
    RG_TRY(rg_allocate(memory, table_bytes(loader), &table));
    loader->table = table;
    for (int64_t i = 0; i < loader->set->info.channels * 256; i++)
        rg_element_set(table, d->dtype, i,
                       ((double)(i % 256) / 255 - d->mean[i / 256]) / d->deviation[i / 256]);
    return RG_OK;
}

/* Bytes of the labels and of the values of a batch. */
static size_t label_bytes(const rg_loader *loader)
{
    const rg_dataset_info *info = &loader->set->info;
    const size_t each = info->target == RG_TARGET_MASK ? (size_t)info->targets : 1;
    return (size_t)batch_capacity(loader) * each * sizeof(int32_t);
}

static size_t value_bytes(const rg_loader *loader, rg_dtype dtype)
{
    const rg_dataset_info *info = &loader->set->info;
    const bool dense = info->target == RG_TARGET_LABELS || info->target == RG_TARGET_VALUES;
    return dense ? (size_t)batch_capacity(loader) * (size_t)info->targets * rg_dtype_size(dtype)
                 : 0;
}

static rg_status make_values(const rg_loader *loader, rg_loader_slot *f)
{
    const rg_dtype dtype = loader->desc.dtype;
    if (value_bytes(loader, dtype) == 0)
        return RG_OK;
    RG_TRY(rg_allocate(memory, value_bytes(loader, dtype), (void **)&f->values));
    if (dtype == RG_F32) {
        f->exact = (float *)(void *)f->values;
        return RG_OK;
    }
    return rg_allocate(memory, value_bytes(loader, RG_F32), (void **)&f->exact);
}

static void release_values(const rg_loader *loader, const rg_loader_slot *f)
{
    if (loader->desc.dtype != RG_F32)
        rg_release(memory, f->exact, value_bytes(loader, RG_F32));
    rg_release(memory, f->values, value_bytes(loader, loader->desc.dtype));
}

static rg_status make_ring(rg_loader *loader)
{
    const size_t capacity = (size_t)batch_capacity(loader);
    size_t bytes;
    RG_CHECK(rg_multiply(capacity, loader->image_bytes, &bytes) && bytes <= INT64_MAX,
             RG_OUT_OF_MEMORY, "out of memory: batches of %lld images do not fit",
             (long long)capacity);
    RG_TRY(rg_allocate_zero(memory, (size_t)loader->desc.buffers * sizeof(rg_loader_slot),
                            (void **)&loader->ring));
    for (int32_t i = 0; i < loader->desc.buffers; i++) {
        rg_loader_slot *f = &loader->ring[i];
        RG_TRY(rg_allocate(memory, bytes, (void **)&f->images));
        RG_TRY(rg_allocate(memory, label_bytes(loader), (void **)&f->labels));
        RG_TRY(make_values(loader, f));
        RG_TRY(rg_allocate(memory, capacity * sizeof *f->indices, (void **)&f->indices));
    }
    return RG_OK;
}

static bool in_memory(const rg_dataset *set)
{
    return rg_dataset_whole(set)->pixels != NULL;
}

static int32_t thread_count(const rg_loader *loader)
{
    if (loader->desc.threads > 0)
        return loader->desc.threads;
    return in_memory(loader->set) ? 1 : rg_decoder_threads(0);
}

static rg_status make_worker(rg_loader *loader, rg_loader_worker *w)
{
    const rg_dataset *set = loader->set;
    w->loader = loader;
    w->decoder.budget = &loader->budget;
    RG_TRY(rg_allocate(memory, set->image_bytes, (void **)&w->changed));
    RG_TRY(rg_allocate(memory, (size_t)set->info.width * sizeof *w->columns, (void **)&w->columns));
    if (!in_memory(set))
        RG_TRY(rg_allocate(memory, set->image_bytes, (void **)&w->decoded));
    return RG_OK;
}

static void release_worker(const rg_loader *loader, rg_loader_worker *w)
{
    const rg_dataset *set = loader->set;
    rg_release(memory, w->changed, set->image_bytes);
    rg_release(memory, w->columns, (size_t)set->info.width * sizeof *w->columns);
    rg_release(memory, w->decoded, set->image_bytes);
    rg_decoder_release(&w->decoder);
}

static rg_status make_memory(rg_loader *loader)
{
    const rg_dataset *set = loader->set;
    RG_CHECK(rg_multiply((size_t)(loader->pixels * set->info.channels),
                         rg_dtype_size(loader->desc.dtype), &loader->image_bytes),
             RG_OUT_OF_MEMORY, "out of memory: an image does not fit");
    if (set->info.dtype == RG_U8)
        RG_TRY(make_table(loader));
    for (int32_t i = 0; i < thread_count(loader); i++)
        RG_TRY(make_worker(loader, &loader->workers[i]));
    if (loader->desc.shuffle)
        RG_TRY(rg_allocate(memory, (size_t)set->info.count * sizeof *loader->order,
                           (void **)&loader->order));
    return make_ring(loader);
}

/* Starts as many threads as there can be. They block signals: the threads of the program handle
 * them. */
static rg_status start_threads(rg_loader *loader)
{
    const int32_t count = thread_count(loader);
    sigset_t all, before;
    sigfillset(&all);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->changed, NULL);
    rg_decode_budget_begin(&loader->budget);
    loader->has_lock = true;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (loader->threads < count) {
        rg_loader_worker *w = &loader->workers[loader->threads];
        if (!rg_thread_start(&w->thread, worker_main, w))
            break;
        loader->threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    RG_CHECK(loader->threads > 0, RG_OUT_OF_MEMORY, "out of memory: cannot start a thread");
    return RG_OK;
}

rg_status rg_loader_create(const rg_dataset *set, const rg_loader_desc *desc, rg_loader **loader)
{
    RG_CHECK_NOT_NULL(loader);
    *loader = NULL;
    RG_CHECK_NOT_NULL(set);
    RG_CHECK_NOT_NULL(desc);
    rg_loader_desc all = rg_loader_desc_default();
    RG_CHECK(
        desc->size > sizeof desc->size && desc->size <= sizeof all, RG_INVALID_ARGUMENT,
        "rg_loader_create: the descriptor size is %u; initialize it with rg_loader_desc_default()",
        desc->size);
    memcpy(&all, desc, desc->size);
    RG_TRY(rg_loader_check_desc(set, &all));
    void *made;
    RG_TRY(rg_allocate_zero(memory, sizeof **loader, &made));
    rg_loader *l = made;
    l->set = rg_dataset_keep(set);
    l->desc = all;
    l->pixels = set->info.height * set->info.width;
    l->ordered = -1;
    l->grain = in_memory(set) ? all.batch : 1;
    rg_status status = make_memory(l);
    if (status == RG_OK)
        status = start_threads(l);
    if (status == RG_OK)
        *loader = l;
    else
        rg_loader_destroy(l);
    return status;
}

static void end_threads(rg_loader *loader)
{
    if (loader->threads > 0) {
        pthread_mutex_lock(&loader->lock);
        loader->stop = true;
        loader->hurry = true;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->lock);
    }
    for (int32_t i = 0; i < loader->threads; i++)
        pthread_join(loader->workers[i].thread, NULL);
    if (loader->has_lock) {
        pthread_mutex_destroy(&loader->lock);
        pthread_cond_destroy(&loader->changed);
        rg_decode_budget_end(&loader->budget);
    }
}

void rg_loader_destroy(rg_loader *loader)
{
    if (loader == NULL)
        return;
    end_threads(loader);
    const rg_dataset *set = loader->set;
    const size_t capacity = (size_t)batch_capacity(loader);
    for (int32_t i = 0; i < loader->desc.buffers && loader->ring != NULL; i++) {
        const rg_loader_slot *f = &loader->ring[i];
        rg_release(memory, f->images, capacity * loader->image_bytes);
        rg_release(memory, f->labels, label_bytes(loader));
        release_values(loader, f);
        rg_release(memory, f->indices, capacity * sizeof *f->indices);
    }
    for (int32_t i = 0; i < RG_LOADER_THREADS; i++)
        release_worker(loader, &loader->workers[i]);
    rg_release(memory, loader->ring, (size_t)loader->desc.buffers * sizeof *loader->ring);
    rg_release(memory, loader->order, (size_t)set->info.count * sizeof *loader->order);
    rg_release(memory, loader->table, table_bytes(loader));
    rg_dataset_destroy(loader->set);
    rg_release(memory, loader, sizeof *loader);
}
