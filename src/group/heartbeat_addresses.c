/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Addresses of this machine, and sockets for them. */
#include "group/heartbeat.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

rg_address rg_address_of_ipv4(struct in_addr address)
{
    rg_address p = { .s6_addr = { [10] = 0xff, [11] = 0xff } };
    memcpy(&p.s6_addr[12], &address, sizeof address);
    return p;
}

int rg_address_socket(const rg_address *where, uint16_t port, struct sockaddr_storage *address,
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

/* Whether an interface is one to be used: where RG_INTERFACES is set, one that it names. */
static bool is_chosen(const char *name)
{
    const char *chosen = getenv("RG_INTERFACES");
    const size_t length = strlen(name);
    if (chosen == NULL || chosen[0] == 0)
        return true;
    while (*chosen != 0) {
        const size_t word = strcspn(chosen, ",");
        if (word == length && strncmp(chosen, name, word) == 0)
            return true;
        chosen += word + (chosen[word] == ',');
    }
    return false;
}

/* Those that mean something on other machines; an address of a link does not. */
static bool take_address(const struct ifaddrs *i, rg_address *to)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (i->ifa_addr == NULL || (i->ifa_flags & IFF_LOOPBACK) != 0 || (i->ifa_flags & IFF_UP) == 0 ||
        !is_chosen(i->ifa_name))
        return false;
    if (i->ifa_addr->sa_family == AF_INET) {
        memcpy(&four, i->ifa_addr, sizeof four);
        *to = rg_address_of_ipv4(four.sin_addr);
        return true;
    }
    if (i->ifa_addr->sa_family != AF_INET6)
        return false;
    memcpy(&six, i->ifa_addr, sizeof six);
    *to = six.sin6_addr;
    return !IN6_IS_ADDR_LINKLOCAL(to);
}

int32_t rg_addresses_list(rg_address to[RG_ADDRESSES])
{
    struct ifaddrs *list;
    int32_t count = 0;
    if (getifaddrs(&list) != 0)
        return 0;
    for (const struct ifaddrs *i = list; i != NULL && count < RG_ADDRESSES; i = i->ifa_next)
        count += take_address(i, &to[count]);
    freeifaddrs(list);
    return count;
}
