/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Parts of groups without MPI: frames of heartbeats through a socket that is full, and what a rank
 * makes of the environment. */
#include "group/heartbeat.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two ends of a connection by the loopback address with little room. */
static void make_pair(int ends[2])
{
    const struct in_addr loopback = { htonl(INADDR_LOOPBACK) };
    const rg_address where = rg_address_of_ipv4(loopback);
    const int little = 2048;
    struct sockaddr_storage address;
    struct sockaddr_in bound;
    socklen_t size;
    const int listening = rg_address_socket(&where, 0, &address, &size);
    setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    EXPECT(bind(listening, (struct sockaddr *)&address, size) == 0 && listen(listening, 1) == 0);
    size = sizeof bound;
    EXPECT(getsockname(listening, (struct sockaddr *)&bound, &size) == 0);
    ends[0] = rg_address_socket(&where, bound.sin_port, &address, &size);
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    EXPECT(connect(ends[0], (struct sockaddr *)&address, size) == 0);
    ends[1] = accept(listening, NULL, NULL);
    close(listening);
}

/* Reads so many bytes, while the other end sends what it has left; false: they do not come. */
static bool read_bytes(rg_connection *from, int socket, void *to, size_t bytes)
{
    for (size_t got = 0, tries = 0; got < bytes; tries++) {
        rg_connection_flush(from);
        const ssize_t some = recv(socket, (char *)to + got, bytes - got, MSG_DONTWAIT);
        got += some > 0 ? (size_t)some : 0;
        if (some == 0 || tries > 20000)
            return false;
        if (some < 0)
            usleep(100);
    }
    return true;
}

/* A rank that is stopped reads nothing for minutes; when it goes on it must read whole frames, and
 * that another has failed meanwhile. */
static void test_full_socket(void)
{
    rg_connection *c = calloc(1, sizeof *c);
    rg_frame frame = { .word = RG_BEAT, .rank = 3, .text = "a word" };
    int ends[2], beats = 0;
    bool whole = true;
    make_pair(ends);
    c->socket = ends[0];
    for (int i = 0; i < 3000; i++)
        rg_connection_send(c, &frame);
    for (int i = 0; i < 20; i++) { /* more than fit anywhere */
        frame.word = i % 2 == 0 ? RG_LEAVE : RG_FAIL;
        rg_connection_send(c, &frame);
    }
    EXPECT(c->waiting == RG_OUTBOX);
    for (bool failed = false; whole && !failed;) {
        whole = read_bytes(c, ends[1], &frame, sizeof frame);
        whole = whole && frame.rank == 3 && strcmp(frame.text, "a word") == 0 &&
                frame.word >= RG_BEAT && frame.word <= RG_FAIL;
        beats += frame.word == RG_BEAT;
        failed = frame.word == RG_FAIL;
    }
    EXPECT(whole && beats > 0 && beats < 3000);
    while (whole && (c->waiting > 0 || recv(ends[1], &frame, 1, MSG_PEEK | MSG_DONTWAIT) > 0))
        whole = read_bytes(c, ends[1], &frame, sizeof frame);
    frame.word = RG_BEAT;
    rg_connection_send(c, &frame); /* beats go on */
    frame.word = 0;
    EXPECT(whole && read_bytes(c, ends[1], &frame, sizeof frame) && frame.word == RG_BEAT);
    close(ends[0]);
    close(ends[1]);
    free(c);
}

static void test_interfaces(void)
{
    rg_address all[RG_ADDRESSES], some[RG_ADDRESSES];
    const int32_t count = rg_addresses_list(all);
    setenv("RG_INTERFACES", "none,such", 1);
    EXPECT(rg_addresses_list(some) == 0);
    setenv("RG_INTERFACES", "", 1);
    EXPECT(rg_addresses_list(some) == count && memcmp(all, some, (size_t)count * sizeof *all) == 0);
}

int main(void)
{
    test_full_socket();
    test_interfaces();
    return rg_test_report();
}
