/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Connections of heartbeats, which heartbeat_connect.c makes and heartbeat.c uses. */
#ifndef RG_GROUP_HEARTBEAT_H
#define RG_GROUP_HEARTBEAT_H

#include "group/group_parts.h"

#include <poll.h>

typedef struct rg_frame rg_frame;

typedef struct rg_connection {
    int socket; /* -1: none */
    int32_t rank;
    double seen; /* when the last word came */
    rg_frame *frame;
    size_t filled; /* bytes of the frame that have come */
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

/* Rank 0 listens, the others connect. */
rg_status rg_heartbeat_connect(rg_heartbeat *heartbeat);

#endif
