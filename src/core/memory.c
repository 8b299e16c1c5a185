/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The default allocator and the helpers over any allocator. */
#include "core/memory.h"

#include "core/private_api.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

/* Blocks of this size and more are aligned to it: a gradient that strides through a large tensor
 * then needs a few entries of the address translation cache instead of thousands. */
enum { HUGE_PAGE_BYTES = 2 << 20 };

static void *default_allocate(void *context, size_t size, size_t alignment)
{
    (void)context;
    const bool huge = size >= HUGE_PAGE_BYTES;
    void *pointer = NULL;
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    if (posix_memalign(&pointer, huge ? HUGE_PAGE_BYTES : alignment, size) != 0)
        return NULL;
#if defined(__linux__)
    if (huge)
        madvise(pointer, size / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES,
                MADV_HUGEPAGE); /* advice; may be refused */
#endif
    return pointer;
}

static void default_release(void *context, void *pointer, size_t size)
{
    (void)context;
    (void)size;
    free(pointer);
}

RG_PRIVATE_API const rg_allocator rg_default_allocator = { default_allocate, default_release,
                                                           NULL };

/* ---- for objects of devices ---- */

/* Smaller blocks come from malloc, which has freed ones at hand; aligned ones of the C library are
 * cut out of larger blocks each time. What malloc returned stands in front of the block. No such
 * block is aligned to a huge page, as all others are. */
enum { LINE_BYTES = 64 };
#ifndef __SANITIZE_ADDRESS__
#define __SANITIZE_ADDRESS__ 0
#endif
#ifdef __has_feature
#define IS_CHECKED (__SANITIZE_ADDRESS__ || __has_feature(address_sanitizer))
#else
#define IS_CHECKED __SANITIZE_ADDRESS__ /* blocks then end where they are asked to */
#endif

static void *allocate_lines(size_t size)
{
    char *const base = malloc(size + (size_t)2 * LINE_BYTES);
    if (base == NULL)
        return NULL;
    char *block = base + LINE_BYTES - (uintptr_t)base % LINE_BYTES; /* 8 bytes further at least */
    if ((uintptr_t)block % HUGE_PAGE_BYTES == 0)
        block += LINE_BYTES;
    memcpy(block - sizeof base, &base, sizeof base);
    return block;
}

static void *allocate_object(void *context, size_t size, size_t alignment)
{
    if (!IS_CHECKED && size < HUGE_PAGE_BYTES && alignment <= LINE_BYTES)
        return allocate_lines(size);
    return default_allocate(context, size, IS_CHECKED ? alignment : (size_t)HUGE_PAGE_BYTES);
}

static void release_object(void *context, void *pointer, size_t size)
{
    (void)context, (void)size;
    if (!IS_CHECKED && (uintptr_t)pointer % HUGE_PAGE_BYTES != 0)
        memcpy(&pointer, (const char *)pointer - sizeof pointer, sizeof pointer);
    free(pointer);
}

const rg_allocator rg_object_allocator = { allocate_object, release_object, NULL };

/* ---- over any allocator ---- */

RG_PRIVATE_API rg_status rg_allocate(const rg_allocator *allocator, size_t size, void **pointer)
{
    *pointer = NULL;
    if (size == 0)
        return RG_OK;
    *pointer = allocator->allocate(allocator->context, size, RG_ALIGNMENT);
    RG_CHECK(*pointer != NULL, RG_OUT_OF_MEMORY, "out of memory: %zu bytes were requested", size);
    return RG_OK;
}

RG_PRIVATE_API rg_status rg_allocate_zero(const rg_allocator *allocator, size_t size,
                                          void **pointer)
{
    RG_TRY(rg_allocate(allocator, size, pointer));
    if (size > 0)
        memset(*pointer, 0, size);
    return RG_OK;
}

RG_PRIVATE_API void rg_release(const rg_allocator *allocator, void *pointer, size_t size)
{
    if (pointer != NULL)
        allocator->release(allocator->context, pointer, size);
}

RG_PRIVATE_API rg_status rg_allocate_array(size_t count, size_t element, void *pointer)
{
    void *memory = NULL;
    size_t bytes;
    RG_CHECK(rg_multiply(count, element, &bytes), RG_OUT_OF_MEMORY,
             "out of memory: %zu entries of %zu bytes were requested", count, element);
    RG_TRY(rg_allocate_zero(&rg_default_allocator, bytes, &memory));
    memcpy(pointer, &memory, sizeof memory);
    return RG_OK;
}

RG_PRIVATE_API rg_status rg_copy_text(const char *text, char **copy)
{
    *copy = strdup(text);
    RG_CHECK(*copy != NULL, RG_OUT_OF_MEMORY, "out of memory for the text '%.40s'", text);
    return RG_OK;
}

RG_PRIVATE_API rg_status rg_grow(const rg_allocator *allocator, void **array, size_t *capacity,
                                 size_t count, size_t element)
{
    if (count < *capacity)
        return RG_OK;
    const size_t wanted = *capacity == 0 ? 8 : *capacity * 2;
    size_t bytes;
    void *larger;
    RG_CHECK(wanted > *capacity && rg_multiply(wanted, element, &bytes), RG_OUT_OF_MEMORY,
             "out of memory: a list of %zu entries cannot grow", count);
    RG_TRY(rg_allocate(allocator, bytes, &larger));
    if (count > 0)
        memcpy(larger, *array, count * element);
    rg_release(allocator, *array, *capacity * element);
    *array = larger;
    *capacity = wanted;
    return RG_OK;
}
