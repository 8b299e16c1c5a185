/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Frames of heartbeats on their way: a socket that is nearly full takes a part of one, and the next
 * must not begin before its end. */
#include "group/heartbeat.h"

#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

void rg_connection_flush(rg_connection *c)
{
    while (c->socket >= 0 && c->waiting > 0) {
        const char *from = (const char *)&c->outbox[0] + c->gone;
        const ssize_t sent =
            send(c->socket, from, sizeof c->outbox[0] - c->gone, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0)
            return;
        c->gone += (size_t)sent;
        if (c->gone < sizeof c->outbox[0])
            continue;
        c->gone = 0;
        c->waiting--;
        memmove(&c->outbox[0], &c->outbox[1], (size_t)c->waiting * sizeof c->outbox[0]);
    }
}

/* Whether the other side reads: beats that it does not would take the place of other words. */
static bool is_read(const rg_connection *c)
{
    enum { MOST_BEATS = 8 };
    int unsent = 0;
    return c->waiting == 0 && (ioctl(c->socket, SIOCOUTQ, &unsent) != 0 ||
                               unsent < MOST_BEATS * (int)sizeof c->outbox[0]);
}

void rg_connection_send(rg_connection *c, const rg_frame *frame)
{
    if (c->socket < 0)
        return;
    rg_connection_flush(c);
    if (c->waiting == RG_OUTBOX || (frame->word == RG_BEAT && !is_read(c)))
        return;
    c->outbox[c->waiting++] = *frame;
    rg_connection_flush(c);
}
