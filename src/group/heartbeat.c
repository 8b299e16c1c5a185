/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Heartbeats: every rank has a connection with rank 0, and a thread that sends a word twice a
 * second and listens. It does nothing else, so that a long step is not taken for a hang. A
 * connection that closes, or is silent for too long, is a lost rank; rank 0 tells all others. */
#include "group/heartbeat.h"

#include "core/clock.h"
#include "core/memory.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const rg_allocator *const allocator = &rg_default_allocator;

static const double beat_seconds = 0.5;

/* ---- sending ---- */

/* To all with a connection but rank `except`. */
static void send_frame(rg_heartbeat *h, const rg_frame *frame, int32_t except)
{
    pthread_mutex_lock(&h->lock);
    for (int32_t i = 0; i < h->count && h->connections != NULL; i++) {
        if (h->connections[i].rank != except)
            rg_connection_send(&h->connections[i], frame);
    }
    pthread_mutex_unlock(&h->lock);
}

static void flush_all(rg_heartbeat *h)
{
    pthread_mutex_lock(&h->lock);
    for (int32_t i = 0; i < h->count; i++)
        rg_connection_flush(&h->connections[i]);
    pthread_mutex_unlock(&h->lock);
}

static void send_all(rg_heartbeat *h, int32_t what, int32_t rank, const char *text, int32_t except)
{
    rg_frame frame = { .word = what, .rank = rank };
    snprintf(frame.text, sizeof frame.text, "%s", text);
    send_frame(h, &frame, except);
}

/* ---- losing ---- */

/* Tells the others first: `lost` may end this process. */
static void lose(rg_heartbeat *h, int32_t rank, const char *sentence)
{
    rg_group *group = h->group;
    if (group->rank == 0)
        send_all(h, RG_FAIL, rank, sentence, rank);
    rg_group_lose(group, sentence);
}

static void lose_connection(rg_heartbeat *h, rg_connection *c, const char *how)
{
    char sentence[RG_GROUP_TEXT];
    c->is_over = true;
    if (c->has_left || h->stop)
        return;
    const int length = snprintf(sentence, sizeof sentence, "rank %d on %s %s", c->rank,
                                h->group->hosts[c->rank], how);
    if (h->pause > 0)
        snprintf(sentence + length, sizeof sentence - (size_t)length,
                 "; rank %d itself was stopped for %.0f seconds", h->group->rank, h->pause);
    lose(h, c->rank, sentence);
}

static void lose_silent(rg_heartbeat *h, rg_connection *c, double seconds)
{
    char how[96];
    snprintf(how, sizeof how,
             "has given no sign of life for %.0f seconds: it hangs, or cannot be reached", seconds);
    lose_connection(h, c, how);
}

static void check_silence(rg_heartbeat *h, double now)
{
    const double timeout = h->group->desc.timeout;
    for (int32_t i = 0; i < h->count; i++) {
        rg_connection *c = &h->connections[i];
        if (!c->is_over && !c->has_left && now - c->seen >= timeout)
            lose_silent(h, c, now - c->seen);
    }
}

/* ---- receiving ---- */

/* Rank 0 passes it on. */
static void take_leave(rg_heartbeat *h, const rg_frame *frame)
{
    if (frame->rank < 0 || frame->rank >= h->group->size)
        return;
    rg_group_note_leaving(h->group, frame->rank, frame->jobs);
    if (h->group->rank == 0)
        send_frame(h, frame, frame->rank);
}

static void take_frame(rg_heartbeat *h, rg_connection *c)
{
    rg_frame *frame = c->frame;
    frame->text[sizeof frame->text - 1] = 0;
    const double now = rg_seconds(), silence = now - c->seen;
    c->seen = now;
    if (frame->word == RG_BYE)
        c->has_left = true;
    else if (frame->word == RG_LEAVE)
        take_leave(h, frame);
    else if (frame->word == RG_FAIL && silence > h->group->desc.timeout / 2)
        lose_silent(h, c, silence); /* others have ended because this one was stopped */
    else if (frame->word == RG_FAIL)
        lose(h, frame->rank, frame->text);
}

static void receive(rg_heartbeat *h, rg_connection *c)
{
    for (;;) {
        char *to = (char *)c->frame + c->filled;
        const ssize_t got = recv(c->socket, to, sizeof *c->frame - c->filled, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            lose_connection(h, c, "has ended or was killed");
            return;
        }
        c->filled += (size_t)got;
        if (c->filled == sizeof *c->frame) {
            c->filled = 0;
            take_frame(h, c);
        }
    }
}

/* After a pause of this whole process, such as a signal that stops a whole job, all connections get
 * their time again. */
static void forgive(rg_heartbeat *h, double now, double before)
{
    enum { PAUSE_SECONDS = 2 };
    if (now - before < PAUSE_SECONDS)
        return;
    h->pause = now - before;
    for (int32_t i = 0; i < h->count; i++)
        h->connections[i].seen = now;
}

static void *thread_main(void *context)
{
    rg_heartbeat *h = context;
    double sent = 0, before = rg_seconds();
    while (!h->stop) {
        for (int32_t i = 0; i < h->count; i++)
            h->polls[i] =
                (struct pollfd){ .fd = h->connections[i].is_over ? -1 : h->connections[i].socket,
                                 .events = POLLIN };
        (void)poll(h->polls, (nfds_t)h->count, 100);
        const double now = rg_seconds();
        forgive(h, now, before);
        before = now;
        for (int32_t i = 0; i < h->count; i++) {
            if (h->polls[i].revents != 0)
                receive(h, &h->connections[i]);
        }
        if (now - sent >= beat_seconds) {
            send_all(h, RG_BEAT, h->group->rank, "", -1);
            sent = now;
        }
        flush_all(h);
        check_silence(h, now);
    }
    return NULL;
}

/* ---- begin and end ---- */

static rg_status make_memory(rg_heartbeat *h)
{
    const size_t count = (size_t)h->count;
    RG_TRY(rg_allocate_array(count, sizeof *h->connections, &h->connections));
    for (size_t i = 0; i < count; i++)
        h->connections[i] = (rg_connection){ .socket = -1, .rank = -1 };
    RG_TRY(rg_allocate_array(count, sizeof *h->polls, &h->polls));
    RG_TRY(rg_allocate_array(count, sizeof *h->frames, &h->frames));
    for (size_t i = 0; i < count; i++)
        h->connections[i].frame = &h->frames[i];
    return RG_OK;
}

static rg_status start_thread(rg_heartbeat *h)
{
    sigset_t all, before;
    const double now = rg_seconds();
    for (int32_t i = 0; i < h->count; i++)
        h->connections[i].seen = now;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    h->has_thread = rg_thread_start(&h->thread, thread_main, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    RG_CHECK(h->has_thread, RG_OUT_OF_MEMORY, "out of memory: cannot start a thread");
    return RG_OK;
}

rg_status rg_heartbeat_start(rg_group *group)
{
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_heartbeat), &memory));
    rg_heartbeat *h = group->heartbeat = memory;
    h->group = group;
    h->count = group->rank == 0 ? group->size - 1 : 1;
    pthread_mutex_init(&h->lock, NULL);
    RG_TRY(make_memory(h));
    RG_TRY(rg_heartbeat_connect(h));
    return start_thread(h);
}

void rg_heartbeat_end(rg_group *group)
{
    rg_heartbeat *h = group->heartbeat;
    if (h == NULL)
        return;
    const size_t count = (size_t)h->count;
    h->stop = true;
    if (h->has_thread) {
        pthread_join(h->thread, NULL);
        if (!group->is_lost)
            send_all(h, RG_BYE, group->rank, "", -1);
    }
    for (size_t i = 0; h->connections != NULL && i < count; i++) {
        if (h->connections[i].socket >= 0)
            close(h->connections[i].socket);
    }
    rg_release(allocator, h->connections, count * sizeof *h->connections);
    rg_release(allocator, h->polls, count * sizeof *h->polls);
    rg_release(allocator, h->frames, count * sizeof *h->frames);
    pthread_mutex_destroy(&h->lock);
    rg_release(allocator, h, sizeof *h);
    group->heartbeat = NULL;
}

void rg_heartbeat_fail(rg_group *group, const char *why)
{
    const struct timespec moment = { 0, 200000000 }; /* until the words have left */
    char sentence[RG_GROUP_TEXT];
    snprintf(sentence, sizeof sentence, "rank %d on %s has failed: %s", group->rank, group->host,
             why);
    if (group->heartbeat == NULL)
        return;
    send_all(group->heartbeat, RG_FAIL, group->rank, sentence, -1);
    nanosleep(&moment, NULL);
}

void rg_heartbeat_leave(rg_group *group, int64_t jobs)
{
    const rg_frame frame = { .word = RG_LEAVE, .rank = group->rank, .jobs = jobs };
    if (group->heartbeat != NULL)
        send_frame(group->heartbeat, &frame, -1);
}
