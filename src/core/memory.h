/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Host memory from the embedder's allocator, and size arithmetic that cannot wrap. */
#ifndef RG_CORE_MEMORY_H
#define RG_CORE_MEMORY_H

#include "core/status.h"

/* The C library's allocator; large blocks are marked for huge pages where the system has them. */
extern const rg_allocator rg_default_allocator;
/* The same for objects of devices and what belongs to them: faster for small blocks, which it alone
 * can release. */
extern const rg_allocator rg_object_allocator;

/* Elements of tensors start at this alignment: a cache line and the widest vector. */
enum { RG_ALIGNMENT = 64 };

/* Memory that is all zero. RG_OUT_OF_MEMORY, with *pointer NULL, if there is none. */
rg_status rg_allocate_zero(const rg_allocator *allocator, size_t size, void **pointer);

/* Uninitialized memory aligned to RG_ALIGNMENT; size 0 gives NULL. */
rg_status rg_allocate(const rg_allocator *allocator, size_t size, void **pointer);
void rg_release(const rg_allocator *allocator, void *pointer, size_t size);

/* Zeroed memory of the default allocator for an array, into the pointer at `pointer`. */
rg_status rg_allocate_array(size_t count, size_t element, void *pointer);

/* A copy of a text, to be given to free(). */
rg_status rg_copy_text(const char *text, char **copy);

/* A growing array: allocates memory for one more element of `element` bytes after *count. */
rg_status rg_grow(const rg_allocator *allocator, void **array, size_t *capacity, size_t count,
                  size_t element);

RG_INLINE bool rg_multiply(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

#endif
