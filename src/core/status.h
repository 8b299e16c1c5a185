/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Statuses with a sentence: how every function of the library reports what went wrong. */
#ifndef RG_CORE_STATUS_H
#define RG_CORE_STATUS_H

#include <retrograde/base.h>

/* Records the sentence for this thread and returns `status`. */
__attribute__((format(printf, 2, 3))) rg_status rg_fail(rg_status status, const char *format, ...);

/* Puts the name of what a caller was doing before the sentence of this thread. */
__attribute__((format(printf, 1, 2))) void rg_error_prefix(const char *format, ...);

#define RG_CHECK(condition, status, ...)         \
    do {                                         \
        if (__builtin_expect(!(condition), 0))   \
            return rg_fail(status, __VA_ARGS__); \
    } while (0)

#define RG_TRY(call)                                     \
    do {                                                 \
        const rg_status rg_try_status = (call);          \
        if (__builtin_expect(rg_try_status != RG_OK, 0)) \
            return rg_try_status;                        \
    } while (0)

#define RG_CHECK_NOT_NULL(pointer) \
    RG_CHECK((pointer) != NULL, RG_INVALID_ARGUMENT, "%s: " #pointer " is NULL", __func__)

#define RG_INLINE static inline __attribute__((always_inline, unused))

#endif
