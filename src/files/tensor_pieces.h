/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The elements of a tensor in row-major order, a piece at a time, for files that are read and
 * written without a copy of the whole tensor. */
#ifndef RG_FILES_TENSOR_PIECES_H
#define RG_FILES_TENSOR_PIECES_H

#include "runtime/objects.h"

typedef struct rg_pieces {
    const rg_backend *backend;
    void *context;
    rg_copy_args args; /* of the next piece, but for its host memory */
    int32_t cut;       /* the dimension that is cut; those before it are 1 */
    int64_t left;      /* along it */
    size_t row;        /* bytes of one index of it */
    size_t bytes;      /* of all elements */
    void *direct;      /* memory of the host that has them as the file does; else NULL */
    size_t staging;    /* otherwise: bytes that the largest piece needs */
} rg_pieces;

/* Pieces to be read from the tensor (`to_host`) or written to it. `who` begins the sentence. */
rg_status rg_pieces_of_tensor(const rg_tensor *tensor, bool to_host, const char *who,
                              rg_pieces *pieces);

/* Pieces to be read from memory of the host; `desc` is checked. */
rg_pieces rg_pieces_of_host(const void *data, const rg_tensor_desc *desc);

/* The size of the next piece; 0 at the end. */
size_t rg_pieces_next(const rg_pieces *pieces);

/* Copies it from or to `host`, and goes on to the next one. */
rg_status rg_pieces_copy(rg_pieces *pieces, void *host);

#endif
