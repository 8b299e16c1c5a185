/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* How heartbeats begin: rank 0 listens on a port of its own, tells its addresses and a secret
 * through MPI, and all others connect. Ranks on one machine use the loopback address, and nobody
 * else can connect. */
#include "group/heartbeat.h"

#include "core/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ADDRESSES = 16, SECRET = 16, START_SECONDS = 8, CONNECT_MILLISECONDS = 3000 };

/* What rank 0 tells. */
typedef struct beacon {
    int32_t count; /* of addresses; 0: rank 0 could not listen */
    uint16_t port; /* in network order */
    unsigned char secret[SECRET];
    struct in_addr addresses[ADDRESSES];
} beacon;

/* What others say first. */
typedef struct hello {
    unsigned char secret[SECRET];
    int32_t rank;
} hello;

static bool is_one_machine(const rg_group *group)
{
    return group->local_size == group->size;
}

/* The addresses of this machine by which others may reach it. */
static int32_t list_addresses(struct in_addr to[ADDRESSES])
{
    struct ifaddrs *list;
    int32_t count = 0;
    if (getifaddrs(&list) != 0)
        return 0;
    for (const struct ifaddrs *i = list; i != NULL && count < ADDRESSES; i = i->ifa_next) {
        if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET ||
            (i->ifa_flags & IFF_LOOPBACK) != 0 || (i->ifa_flags & IFF_UP) == 0)
            continue;
        struct sockaddr_in address;
        memcpy(&address, i->ifa_addr, sizeof address);
        to[count++] = address.sin_addr;
    }
    freeifaddrs(list);
    return count;
}

/* A descriptor for each rank; the usual limit of 1024 would not be enough for many. */
static void allow_sockets(int32_t count)
{
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)count + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static int listen_at(const rg_group *group, beacon *b)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(is_one_machine(group) ? INADDR_LOOPBACK : INADDR_ANY);
    allow_sockets(group->size);
    const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listening < 0 || bind(listening, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listening, group->size) != 0 ||
        getsockname(listening, (struct sockaddr *)&address, &size) != 0 ||
        getrandom(b->secret, SECRET, 0) != SECRET) {
        if (listening >= 0)
            close(listening);
        return -1;
    }
    b->port = address.sin_port;
    if (is_one_machine(group))
        b->addresses[b->count++].s_addr = htonl(INADDR_LOOPBACK);
    else
        b->count = list_addresses(b->addresses);
    return listening;
}

static void set_timeout(int socket, int milliseconds)
{
    const struct timeval time = { milliseconds / 1000, milliseconds % 1000 * 1000L };
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time); /* of connect as well */
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

/* Whoever does not know the secret is turned away. */
static bool welcome(rg_heartbeat *h, int socket, const beacon *b)
{
    hello said;
    set_timeout(socket, 2000);
    if (recv(socket, &said, sizeof said, MSG_WAITALL) != (ssize_t)sizeof said ||
        memcmp(said.secret, b->secret, SECRET) != 0 || said.rank < 1 || said.rank > h->count ||
        h->connections[said.rank - 1].socket >= 0)
        return false;
    h->connections[said.rank - 1].socket = socket;
    h->connections[said.rank - 1].rank = said.rank;
    return true;
}

static rg_status accept_all(rg_heartbeat *h, int listening, const beacon *b)
{
    const double until = rg_seconds() + START_SECONDS;
    int32_t left = h->count;
    while (left > 0) {
        struct pollfd p = { .fd = listening, .events = POLLIN };
        RG_CHECK(!h->group->is_lost && rg_seconds() < until, RG_IO,
                 "%d of %d ranks could not connect to rank 0 on %s for heartbeats; a firewall "
                 "between the machines?",
                 left, h->group->size, h->group->host);
        if (poll(&p, 1, 200) <= 0)
            continue;
        const int socket = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        if (socket >= 0 && welcome(h, socket, b))
            left--;
        else if (socket >= 0)
            close(socket);
    }
    return RG_OK;
}

static bool connect_to(rg_heartbeat *h, const beacon *b, struct in_addr where)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = b->port, .sin_addr = where };
    hello word = { .rank = h->group->rank };
    memcpy(word.secret, b->secret, SECRET);
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0)
        return false;
    set_timeout(made, CONNECT_MILLISECONDS);
    if (connect(made, (struct sockaddr *)&address, sizeof address) != 0 ||
        send(made, &word, sizeof word, MSG_NOSIGNAL) != (ssize_t)sizeof word) {
        close(made);
        return false;
    }
    h->connections[0].socket = made;
    h->connections[0].rank = 0;
    return true;
}

static rg_status connect_any(rg_heartbeat *h, const beacon *b)
{
    bool connected = false;
    for (int32_t i = 0; i < b->count && !connected; i++)
        connected = connect_to(h, b, b->addresses[i]);
    RG_CHECK(connected, RG_IO,
             "rank %d on %s cannot connect to rank 0 on %s for heartbeats: %s; a firewall between "
             "the machines?",
             h->group->rank, h->group->host, h->group->hosts[0], strerror(errno));
    return RG_OK;
}

rg_status rg_heartbeat_connect(rg_heartbeat *h)
{
    rg_group *group = h->group;
    beacon b;
    memset(&b, 0, sizeof b); /* it is sent, with what lies between fields */
    const int listening = group->rank == 0 ? listen_at(group, &b) : -1;
    rg_group_job tell = { .data = &b, .bytes = sizeof b, .root = 0 };
    rg_status status = rg_job_broadcast(group, &tell);
    if (status == RG_OK && b.count == 0)
        status = rg_fail(RG_IO, "rank 0 on %s cannot listen for heartbeats", group->hosts[0]);
    if (status == RG_OK)
        status = group->rank == 0 ? accept_all(h, listening, &b) : connect_any(h, &b);
    if (listening >= 0)
        close(listening);
    return status;
}
