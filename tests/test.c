/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The counters behind EXPECT: see test.h. */
#include "tests/test.h"

_Atomic int rg_passed, rg_failed;

int rg_test_report(void)
{
    printf("%d passed, %d failed\n", rg_passed, rg_failed);
    return rg_failed > 0;
}
