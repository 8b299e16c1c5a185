/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Members of a ZIP file, stored or deflated. */
#ifndef RG_TRAIN_ZIP_H
#define RG_TRAIN_ZIP_H

#include "train/data_source.h"

typedef struct rg_zip {
    int file;
    uint64_t size;          /* of the file */
    unsigned char *entries; /* the central directory */
    size_t entry_bytes;     /* of it */
    uint64_t entries_at;    /* where it begins: members end before */
} rg_zip;

typedef struct rg_zip_member {
    int method;
    uint32_t flags, crc;
    uint64_t packed, bytes, header_at;
} rg_zip_member;

/* Reads the directory of an archive. After a failure there is nothing to close. */
rg_status rg_zip_open(rg_zip *zip, const char *path);
void rg_zip_close(rg_zip *zip);

/* Looks a member up by name; one that stands there twice is refused. */
rg_status rg_zip_find(const rg_zip *zip, const char *name, bool *found, rg_zip_member *member);

/* Begins to read a member; its CRC-32 is summed. */
rg_status rg_zip_begin(const rg_zip *zip, const rg_zip_member *member, rg_source *source);

/* Checks length and CRC-32 of a member that was read to its end. */
rg_status rg_zip_verify(const rg_zip_member *member, const rg_source *source);

#endif
