/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Lists of readers and of gradients. */
#include "graph/links.h"

static const rg_allocator *const allocator = &rg_default_allocator;

static rg_status prepend(rg_links *links, int32_t *head, int32_t step)
{
    RG_CHECK(links->count < INT32_MAX, RG_OUT_OF_MEMORY,
             "out of memory: the plan has too many reads");
    RG_TRY(rg_grow(allocator, (void **)&links->pool, &links->capacity, links->count,
                   sizeof links->pool[0]));
    links->pool[links->count] = (rg_link){ step, *head };
    *head = (int32_t)links->count++;
    return RG_OK;
}

rg_status rg_links_add_reader(rg_links *links, int32_t value, int32_t step)
{
    int32_t *head = &links->readers[rg_sequence_root(links->sequence, value)];
    return *head >= 0 && links->pool[*head].step == step ? RG_OK : prepend(links, head, step);
}

rg_status rg_links_add_reads(rg_links *links, int32_t step)
{
    int32_t value;
    for (int32_t i = 0; rg_step_read(&links->sequence->steps[step], i, &value); i++) {
        if (value >= 0)
            RG_TRY(rg_links_add_reader(links, value, step));
    }
    return RG_OK;
}

rg_status rg_links_add_gradient(rg_links *links, int32_t step)
{
    const int32_t forward = links->sequence->steps[step].forward;
    return forward < 0 ? RG_OK : prepend(links, &links->gradients[forward], step);
}

static rg_status fill(rg_links *links)
{
    const rg_sequence *s = links->sequence;
    for (int32_t v = 0; v < s->slots_count; v++)
        links->readers[v] = -1;
    for (int32_t i = 0; i < s->steps_count; i++)
        links->gradients[i] = -1;
    for (int32_t i = 0; i < s->steps_count; i++) {
        RG_TRY(rg_links_add_reads(links, i));
        RG_TRY(rg_links_add_gradient(links, i));
    }
    return RG_OK;
}

rg_status rg_links_create(const rg_sequence *sequence, rg_links *links)
{
    *links = (rg_links){ .sequence = sequence,
                         .readers_capacity = (size_t)sequence->slots_count,
                         .gradients_capacity = (size_t)sequence->steps_count };
    rg_status status =
        rg_allocate_array(links->readers_capacity, sizeof *links->readers, &links->readers);
    if (status == RG_OK)
        status = rg_allocate_array(links->gradients_capacity, sizeof *links->gradients,
                                   &links->gradients);
    if (status == RG_OK)
        status = fill(links);
    if (status != RG_OK)
        rg_links_destroy(links);
    return status;
}

void rg_links_destroy(rg_links *links)
{
    rg_release(allocator, links->pool, links->capacity * sizeof *links->pool);
    rg_release(allocator, links->readers, links->readers_capacity * sizeof *links->readers);
    rg_release(allocator, links->gradients, links->gradients_capacity * sizeof *links->gradients);
    *links = (rg_links){ 0 };
}

/* ---- walks ---- */

/* Whether a step reads `value`, or what has its storage. */
static bool reads_root(const rg_sequence *s, const rg_step *step, int32_t value)
{
    int32_t read;
    for (int32_t i = 0; rg_step_read(step, i, &read); i++) {
        if (read >= 0 && rg_sequence_root(s, read) == value)
            return true;
    }
    return false;
}

int32_t rg_links_reader(rg_links *links, int32_t value, int32_t *at)
{
    const rg_sequence *s = links->sequence;
    const int32_t root = rg_sequence_root(s, value);
    int32_t *next = *at < 0 ? &links->readers[root] : &links->pool[*at].next;
    while (*next >= 0) {
        const rg_link *link = &links->pool[*next];
        if (!s->steps[link->step].gone && reads_root(s, &s->steps[link->step], root)) {
            *at = *next;
            return link->step;
        }
        *next = link->next;
    }
    return -1;
}

int32_t rg_links_gradient(rg_links *links, int32_t forward, int32_t *at)
{
    const rg_sequence *s = links->sequence;
    int32_t *next = *at < 0 ? &links->gradients[forward] : &links->pool[*at].next;
    while (*next >= 0) {
        const rg_link *link = &links->pool[*next];
        if (!s->steps[link->step].gone && s->steps[link->step].forward == forward) {
            *at = *next;
            return link->step;
        }
        *next = link->next;
    }
    return -1;
}
