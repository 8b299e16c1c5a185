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

/* An address of IPv6, or one of IPv4 as IPv6 writes it, ::ffff:a.b.c.d. */
typedef struct in6_addr rg_address;

/* What rank 0 tells. */
typedef struct beacon {
    int32_t count; /* of addresses; 0: rank 0 could not listen */
    uint16_t port; /* in network order */
    unsigned char secret[SECRET];
    rg_address addresses[ADDRESSES];
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

/* ---- addresses ---- */

static rg_address mapped_ipv4(struct in_addr address)
{
    rg_address p = { .s6_addr = { [10] = 0xff, [11] = 0xff } };
    memcpy(&p.s6_addr[12], &address, sizeof address);
    return p;
}

/* A socket of the family of an address, and that address with a port for bind() and connect(). */
static int make_socket(const rg_address *where, uint16_t port, struct sockaddr_storage *address,
                       socklen_t *size)
{
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = port };
    const struct sockaddr_in6 six = { .sin6_family = AF_INET6,
                                      .sin6_port = port,
                                      .sin6_addr = *where };
    const bool is_four = IN6_IS_ADDR_V4MAPPED(where);
    memcpy(&four.sin_addr, &where->s6_addr[12], sizeof four.sin_addr);
    *size = is_four ? sizeof four : sizeof six;
    memcpy(address, is_four ? (const void *)&four : &six, *size);
    return socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* Those that mean something on other machines; an address of a link does not. */
static bool take_address(const struct ifaddrs *i, rg_address *to)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (i->ifa_addr == NULL || (i->ifa_flags & IFF_LOOPBACK) != 0 || (i->ifa_flags & IFF_UP) == 0)
        return false;
    if (i->ifa_addr->sa_family == AF_INET) {
        memcpy(&four, i->ifa_addr, sizeof four);
        *to = mapped_ipv4(four.sin_addr);
        return true;
    }
    if (i->ifa_addr->sa_family != AF_INET6)
        return false;
    memcpy(&six, i->ifa_addr, sizeof six);
    *to = six.sin6_addr;
    return !IN6_IS_ADDR_LINKLOCAL(to);
}

/* The addresses of this machine by which others may reach it. */
static int32_t list_addresses(rg_address to[ADDRESSES])
{
    struct ifaddrs *list;
    int32_t count = 0;
    if (getifaddrs(&list) != 0)
        return 0;
    for (const struct ifaddrs *i = list; i != NULL && count < ADDRESSES; i = i->ifa_next)
        count += take_address(i, &to[count]);
    freeifaddrs(list);
    return count;
}

/* ---- rank 0 ---- */

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

/* Listens on a port that is free; -1: not at this address. */
static int listen_at(const rg_address *where, int32_t ranks, uint16_t *port)
{
    struct sockaddr_storage address;
    struct sockaddr_in6 got;
    socklen_t size;
    const int no = 0, listening = make_socket(where, 0, &address, &size);
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
    const rg_address candidates[2] = { local ? mapped_ipv4(loopback) : in6addr_any,
                                       local ? in6addr_loopback : mapped_ipv4(any) };
    int listening = -1;
    allow_sockets(group->size);
    if (getrandom(b->secret, SECRET, 0) != SECRET)
        return -1;
    for (int i = 0; i < 2 && listening < 0; i++) {
        listening = listen_at(&candidates[i], group->size, &b->port);
        b->addresses[0] = candidates[i];
    }
    if (listening >= 0)
        b->count = local ? 1 : list_addresses(b->addresses);
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

/* ---- the others ---- */

static bool connect_to(rg_heartbeat *h, const beacon *b, const rg_address *where)
{
    struct sockaddr_storage address;
    socklen_t size;
    hello word = { .rank = h->group->rank };
    memcpy(word.secret, b->secret, SECRET);
    const int made = make_socket(where, b->port, &address, &size);
    if (made < 0)
        return false;
    set_timeout(made, CONNECT_MILLISECONDS);
    if (connect(made, (struct sockaddr *)&address, size) != 0 ||
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
        connected = connect_to(h, b, &b->addresses[i]);
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
