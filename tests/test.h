/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A test program is a list of functions; EXPECT counts what holds and prints what does not. */
#ifndef RG_TESTS_TEST_H
#define RG_TESTS_TEST_H

#include <retrograde/retrograde.h>

#include <stdio.h>
#include <string.h>

extern _Atomic int rg_passed, rg_failed; /* handlers count, too, on threads of the library */

#define EXPECT(condition)                                                                    \
    do {                                                                                     \
        if (condition) {                                                                     \
            rg_passed++;                                                                     \
        } else {                                                                             \
            rg_failed++;                                                                     \
            printf("%s:%d: %s: expected %s; last error: %s\n", __FILE__, __LINE__, __func__, \
                   #condition, rg_error_text());                                             \
        }                                                                                    \
    } while (0)

#define EXPECT_OK(call) EXPECT((call) == RG_OK)

/* The call fails with this status, and its sentence holds `words`. */
#define EXPECT_FAILS(call, status, words)               \
    do {                                                \
        const rg_status rg_got = (call);                \
        EXPECT(rg_got == (status));                     \
        EXPECT(strstr(rg_error_text(), words) != NULL); \
    } while (0)

/* The last line of main(). */
int rg_test_report(void);

#endif
