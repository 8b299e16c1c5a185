/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Connections of heartbeats, which heartbeat_connect.c makes and heartbeat.c uses. */
#ifndef RG_GROUP_HEARTBEAT_H
#define RG_GROUP_HEARTBEAT_H

#include "group/group_parts.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

typedef enum rg_word { RG_BEAT = 0x62656174, RG_LEAVE, RG_BYE, RG_FAIL } rg_word;

typedef struct rg_frame {
    int32_t word, rank;
    int64_t jobs; /* of RG_LEAVE */
    char text[RG_GROUP_TEXT];
} rg_frame;

enum { RG_OUTBOX = 4 };

typedef struct rg_connection {
    int socket; /* -1: none */
    int32_t rank;
    double seen; /* when the last word came */
    rg_frame *frame;
    size_t filled;              /* bytes of the frame that have come */
    rg_frame outbox[RG_OUTBOX]; /* that have not left, or not whole */
    int32_t waiting;
    size_t gone;   /* bytes of the first of them */
    bool has_left; /* said goodbye */
    bool is_over;
} rg_connection;

struct rg_heartbeat {
    rg_group *group;
    rg_connection *connections; /* of rank 0 with all others, of others with rank 0 */
    int32_t count;
    double pause; /* seconds for which this process was stopped, the last time */
    struct pollfd *polls;
    rg_frame *frames;
    pthread_mutex_t lock; /* of sending */
    pthread_t thread;
    bool has_thread;
    _Atomic bool stop;
};

/* Sends a frame, or what fits of it; the rest follows before the next one. Never waits: to a rank
 * that does not read beats are not sent, and other words as many as the outbox holds. */
void rg_connection_send(rg_connection *connection, const rg_frame *frame);
/* Sends what is left of frames before. */
void rg_connection_flush(rg_connection *connection);

/* ---- heartbeat_addresses.c ---- */

/* An address of IPv6, or one of IPv4 as IPv6 writes it, ::ffff:a.b.c.d. */
typedef struct in6_addr rg_address;
enum { RG_ADDRESSES = 16 };
rg_address rg_address_of_ipv4(struct in_addr address);
/* A socket of the family of an address, and that address with a port for bind() and connect(). */
int rg_address_socket(const rg_address *where, uint16_t port, struct sockaddr_storage *address,
                      socklen_t *size);
/* The addresses of this machine by which others may reach it; their number. */
int32_t rg_addresses_list(rg_address to[RG_ADDRESSES]);

/* ---- heartbeat_connect.c ---- */

/* Rank 0 listens, the others connect. */
rg_status rg_heartbeat_connect(rg_heartbeat *heartbeat);

#endif
