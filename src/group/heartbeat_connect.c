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
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SECRET = 16 };

/* What rank 0 tells. */
typedef struct beacon {
    int32_t count; /* of addresses; 0: rank 0 could not listen */
    uint16_t port; /* in network order */
    unsigned char secret[SECRET];
    rg_address addresses[RG_ADDRESSES];
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

/* ---- rank 0 ---- */

/* A descriptor for each rank; the common limit of 1024 would not be enough for many ranks. */
static void allow_sockets(int32_t count)
{
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)count + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Listens on a port that is free; -1: not at this address. */
static int listen_at(const rg_address *where, int32_t ranks, uint16_t *port)
{
    struct sockaddr_storage address;
    struct sockaddr_in6 got;
    socklen_t size;
    const int no = 0, listening = rg_address_socket(where, 0, &address, &size);
    if (listening < 0)
        return -1;
    if (IN6_IS_ADDR_UNSPECIFIED(where)) /* for IPv4 as well */
        setsockopt(listening, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(listening, (struct sockaddr *)&address, size) != 0 || listen(listening, ranks) != 0 ||
        getsockname(listening, (struct sockaddr *)&address, &size) != 0) {
        close(listening);
        return -1;
    }
    memcpy(&got, &address, sizeof got);
    *port = got.sin6_port; /* which lies where that of IPv4 does */
    return listening;
}

static int listen_for(const rg_group *group, beacon *b)
{
    const bool local = is_one_machine(group);
    const struct in_addr loopback = { htonl(INADDR_LOOPBACK) }, any = { htonl(INADDR_ANY) };
    const rg_address candidates[2] = { local ? rg_address_of_ipv4(loopback) : in6addr_any,
                                       local ? in6addr_loopback : rg_address_of_ipv4(any) };
    int listening = -1;
    allow_sockets(group->size);
    if (getrandom(b->secret, SECRET, 0) != SECRET)
        return -1;
    for (int i = 0; i < 2 && listening < 0; i++) {
        listening = listen_at(&candidates[i], group->size, &b->port);
        b->addresses[0] = candidates[i];
    }
    if (listening >= 0)
        b->count = local ? 1 : rg_addresses_list(b->addresses);
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
    const char welcome_word = 1;
    (void)!send(socket, &welcome_word, 1, MSG_NOSIGNAL); /* of several tries this one counts */
    return true;
}

static rg_status accept_all(rg_heartbeat *h, int listening, const beacon *b)
{
    int32_t left = h->count;
    while (left > 0) {
        struct pollfd p = { .fd = listening, .events = POLLIN };
        RG_CHECK(!h->group->is_lost && rg_seconds() < h->group->deadline, RG_IO,
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

/* ---- the others ---- */

/* A connection that is tried, beside others. */
typedef struct attempt {
    int socket; /* -1: it has failed */
    bool said;  /* the hello */
} attempt;

static void give_up(attempt *a)
{
    if (a->socket >= 0)
        close(a->socket);
    a->socket = -1;
}

static void begin_attempt(attempt *a, const beacon *b, const rg_address *where)
{
    struct sockaddr_storage address;
    socklen_t size;
    a->said = false;
    a->socket = rg_address_socket(where, b->port, &address, &size);
    if (a->socket < 0)
        return;
    (void)fcntl(a->socket, F_SETFL, O_NONBLOCK);
    if (connect(a->socket, (struct sockaddr *)&address, size) != 0 && errno != EINPROGRESS)
        give_up(a);
}

/* Says hello once it is connected, then reads the welcome: whether it is there. */
static bool go_on(attempt *a, const hello *word)
{
    int error = 0;
    char welcome_word;
    socklen_t size = sizeof error;
    if (!a->said) {
        const bool connected =
            getsockopt(a->socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
        a->said =
            connected && send(a->socket, word, sizeof *word, MSG_NOSIGNAL) == (ssize_t)sizeof *word;
        errno = error != 0 ? error : errno;
        if (!a->said)
            give_up(a);
        return false;
    }
    const ssize_t got = recv(a->socket, &welcome_word, 1, MSG_DONTWAIT);
    if (got == 1)
        return true;
    if (got == 0 || (errno != EAGAIN && errno != EINTR))
        give_up(a);
    return false;
}

/* All addresses at the same time: one that answers nothing takes no time of the others. -1: none
 * works; errno says why the last one does not. */
static int connect_first(const rg_group *group, const beacon *b, const hello *word)
{
    attempt attempts[RG_ADDRESSES];
    int found = -1;
    bool any = true;
    for (int32_t i = 0; i < b->count; i++)
        begin_attempt(&attempts[i], b, &b->addresses[i]);
    while (found < 0 && any && rg_seconds() < group->deadline && !group->is_lost) {
        struct pollfd polls[RG_ADDRESSES];
        any = false;
        for (int32_t i = 0; i < b->count; i++) {
            const attempt *a = &attempts[i];
            polls[i] = (struct pollfd){ .fd = a->socket, .events = a->said ? POLLIN : POLLOUT };
            any = any || a->socket >= 0;
        }
        if (poll(polls, (nfds_t)b->count, 200) <= 0) {
            errno = ETIMEDOUT;
            continue;
        }
        for (int32_t i = 0; i < b->count && found < 0; i++) {
            if (polls[i].revents != 0 && go_on(&attempts[i], word)) {
                found = attempts[i].socket;
                attempts[i].socket = -1;
            }
        }
    }
    const int why = errno;
    for (int32_t i = 0; i < b->count; i++)
        give_up(&attempts[i]);
    errno = why;
    return found;
}

static rg_status connect_any(rg_heartbeat *h, const beacon *b)
{
    hello word = { .rank = h->group->rank };
    memcpy(word.secret, b->secret, SECRET);
    const int found = connect_first(h->group, b, &word);
    RG_CHECK(found >= 0, RG_IO,
             "rank %d on %s cannot connect to rank 0 on %s for heartbeats: %s; a firewall between "
             "the machines? RG_INTERFACES names the network interfaces of rank 0 to use",
             h->group->rank, h->group->host, h->group->hosts[0], strerror(errno));
    const int yes = 1;
    setsockopt(found, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    h->connections[0].socket = found;
    h->connections[0].rank = 0;
    return RG_OK;
}

rg_status rg_heartbeat_connect(rg_heartbeat *h)
{
    rg_group *group = h->group;
    beacon b;
    memset(&b, 0, sizeof b); /* it is sent, with what lies between fields */
    const int listening = group->rank == 0 ? listen_for(group, &b) : -1;
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
