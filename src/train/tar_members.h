/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The members of a tar archive: names and ranges of bytes, with the long names and sizes of GNU and
 * PAX headers. */
#ifndef RG_TRAIN_TAR_MEMBERS_H
#define RG_TRAIN_TAR_MEMBERS_H

#include "core/status.h"

enum { RG_TAR_NAME = 1024 }; /* bytes of a name, with the 0 at its end */

typedef struct rg_tar {
    int file; /* the caller's */
    uint64_t size, next;
    bool has_more; /* found at the end: another archive, which is not read, follows */
} rg_tar;

typedef struct rg_tar_member {
    char name[RG_TAR_NAME];
    uint64_t at, size; /* of its bytes */
    bool is_link;      /* to another member, or anywhere */
} rg_tar_member;

/* Finds the next regular file or link; *found is false at the end. Sentences name the byte, not the
 * file. */
rg_status rg_tar_next(rg_tar *tar, rg_tar_member *member, bool *found);

#endif
