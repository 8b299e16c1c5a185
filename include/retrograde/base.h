/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Definitions for all other headers: version, status values, element types, the allocator. */
#ifndef RETROGRADE_BASE_H
#define RETROGRADE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RG_API __attribute__((visibility("default")))
#else
#define RG_API
#endif

/** Marks names of an earlier version, which go away with the next one. */
#if defined(__GNUC__) && !defined(RG_NO_DEPRECATION_WARNINGS)
#define RG_DEPRECATED(instead) __attribute__((deprecated(instead)))
#else
#define RG_DEPRECATED(instead)
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define RG_VERSION_MAJOR 0
#define RG_VERSION_MINOR 2
#define RG_VERSION_PATCH 0

/** The version of the library in use, "major.minor.patch". */
RG_API const char *rg_version(void);

/** The result of a call: a class of failure that a program can act on. rg_error_text() returns the
 *  message for people: which op, which field, which values. */
typedef enum rg_status {
    RG_OK = 0,
    RG_INVALID_ARGUMENT, /**< NULL, out of range, or shapes, dtypes, devices that do not match */
    RG_INVALID_STATE, /**< a call in the wrong order: committed twice, a temporary read too often */
    RG_UNSUPPORTED,   /**< a valid request that this build or device does not support */
    RG_NO_DEVICE,     /**< no such device on this machine */
    RG_OUT_OF_MEMORY, /**< an allocation failed; nothing was changed */
    RG_KERNEL_FAULT,  /**< a running kernel found invalid data, such as a label out of range */
    RG_IO,            /**< a file could not be opened, read or written */
    RG_MALFORMED      /**< a file or text is malformed */
} rg_status;

/** The name of a status, "RG_OK" and so on; never NULL. */
RG_API const char *rg_status_name(rg_status status);

/** The error text of the last failure on the calling thread; "" before the first one.
 *  It stays valid until the next failing call on this thread. */
RG_API const char *rg_error_text(void);

/** Element types. Every op supports the first four; the others store images (u8), labels and
 *  indices, and have no gradient. */
typedef enum rg_dtype {
    RG_F32,
    RG_F64,
    RG_F16,  /**< IEEE binary16 */
    RG_BF16, /**< the upper half of a binary32 */
    RG_U8,
    RG_I32,
    RG_I64
} rg_dtype;

/** Bytes per element; 0 for an unknown dtype. */
RG_API size_t rg_dtype_size(rg_dtype dtype);

/** "f32", "f64", "f16", "bf16", "u8", "i32", "i64"; "?" for an unknown dtype. */
RG_API const char *rg_dtype_name(rg_dtype dtype);

/** Converts `count` elements between two dtypes. Floating-point results round to nearest even
 *  and keep NaN; integer results truncate towards zero, clamp to their range, and NaN becomes 0.
 *  `to` and `from` do not overlap. */
RG_API rg_status rg_convert(void *to, rg_dtype to_dtype, const void *from, rg_dtype from_dtype,
                            size_t count);

/** The most dimensions a tensor can have. */
#define RG_MAX_RANK 8

/** The source of host memory of a device, for its objects and, on the CPU, for tensors. Both
 *  functions may be called from any thread. */
typedef struct rg_allocator {
    /** Returns `size` > 0 bytes aligned to `alignment` (a power of two), or NULL. */
    void *(*allocate)(void *context, size_t size, size_t alignment);
    /** Frees memory returned by `allocate`, with the same size. */
    void (*release)(void *context, void *pointer, size_t size);
    void *context; /**< passed to both; must outlive every object made with it */
} rg_allocator;

#ifdef __cplusplus
}
#endif

#endif
