/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The arena of an ONNX file, and the names and sizes of its element types. */
#include "onnx/onnx_file.h"

#include <string.h>

typedef struct rg_arena_block {
    struct rg_arena_block *next;
    size_t bytes, used; /* of the whole block; from its start */
} rg_arena_block;

enum { BLOCK_BYTES = 1 << 14, GRAIN_BYTES = 16 };

static size_t round_up(size_t bytes)
{
    return (bytes + GRAIN_BYTES - 1) / GRAIN_BYTES * GRAIN_BYTES;
}

rg_status rg_arena_take(rg_arena *arena, size_t count, size_t element, void *pointer)
{
    size_t bytes;
    void *taken = NULL;
    RG_CHECK(rg_multiply(count, element, &bytes) && bytes < SIZE_MAX / 2, RG_OUT_OF_MEMORY,
             "out of memory for %zu entries of a model", count);
    if (bytes > 0) {
        const size_t header = round_up(sizeof(rg_arena_block)), wanted = round_up(bytes);
        rg_arena_block *block = arena->blocks;
        if (block == NULL || block->bytes - block->used < wanted) {
            void *made;
            const size_t size = header + (wanted < BLOCK_BYTES ? BLOCK_BYTES : wanted);
            RG_TRY(rg_allocate_zero(&rg_default_allocator, size, &made));
            block = made;
            *block = (rg_arena_block){ arena->blocks, size, header };
            arena->blocks = block;
        }
        taken = (char *)block + block->used;
        block->used += wanted;
    }
    memcpy(pointer, &taken, sizeof taken);
    return RG_OK;
}

rg_status rg_arena_text(rg_arena *arena, const char *text, size_t length, char **copy)
{
    RG_TRY(rg_arena_take(arena, length + 1, 1, copy));
    if (length > 0)
        memcpy(*copy, text, length);
    return RG_OK;
}

void rg_arena_release(rg_arena *arena)
{
    while (arena->blocks != NULL) {
        rg_arena_block *block = arena->blocks;
        arena->blocks = block->next;
        rg_release(&rg_default_allocator, block, block->bytes);
    }
}

/* ---- element types ---- */

typedef struct type_row {
    const char *name;
    size_t size;
    bool has_dtype;
    rg_dtype dtype;
} type_row;

static const type_row types[] = {
    [RG_ONNX_UNDEFINED] = { "undefined", 0, false, RG_F32 },
    [RG_ONNX_FLOAT] = { "float", 4, true, RG_F32 },
    [RG_ONNX_UINT8] = { "uint8", 1, true, RG_U8 },
    [RG_ONNX_INT8] = { "int8", 1, false, RG_F32 },
    [RG_ONNX_UINT16] = { "uint16", 2, false, RG_F32 },
    [RG_ONNX_INT16] = { "int16", 2, false, RG_F32 },
    [RG_ONNX_INT32] = { "int32", 4, true, RG_I32 },
    [RG_ONNX_INT64] = { "int64", 8, true, RG_I64 },
    [RG_ONNX_STRING] = { "string", 0, false, RG_F32 },
    [RG_ONNX_BOOL] = { "bool", 1, false, RG_F32 },
    [RG_ONNX_FLOAT16] = { "float16", 2, true, RG_F16 },
    [RG_ONNX_DOUBLE] = { "double", 8, true, RG_F64 },
    [RG_ONNX_UINT32] = { "uint32", 4, false, RG_F32 },
    [RG_ONNX_UINT64] = { "uint64", 8, false, RG_F32 },
    [RG_ONNX_BFLOAT16] = { "bfloat16", 2, true, RG_BF16 },
};

static const type_row *row_of(int32_t type)
{
    const int32_t count = (int32_t)(sizeof types / sizeof types[0]);
    return type >= 0 && type < count && types[type].name != NULL ? &types[type] : NULL;
}

const char *rg_onnx_type_name(int32_t type)
{
    return row_of(type) != NULL ? row_of(type)->name : "an unknown type";
}

size_t rg_onnx_type_size(int32_t type)
{
    return row_of(type) != NULL ? row_of(type)->size : 0;
}

bool rg_onnx_type_dtype(int32_t type, rg_dtype *dtype)
{
    const type_row *row = row_of(type);
    if (row == NULL || !row->has_dtype)
        return false;
    *dtype = row->dtype;
    return true;
}

int32_t rg_onnx_type_of(rg_dtype dtype)
{
    for (int32_t type = 0; row_of(type) != NULL || type <= RG_ONNX_BFLOAT16; type++) {
        if (row_of(type) != NULL && types[type].has_dtype && types[type].dtype == dtype)
            return type;
    }
    return RG_ONNX_UNDEFINED;
}
