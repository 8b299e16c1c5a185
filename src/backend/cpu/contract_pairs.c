/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Which unit for pairs of bf16 there is. Like isa.c, this file is compiled for any processor. */
#include "backend/cpu/contract_pairs.h"
#include "backend/cpu/isa.h"
#include "core/long_sum.h"

#if RG_HAVE_AMX || RG_HAVE_BF16
#include <cpuid.h>
#endif

#if defined(RG_AMX_EMULATED)

static bool has_amx(void)
{
    return true;
}

#elif RG_HAVE_AMX
#include <sys/syscall.h>
#include <unistd.h>

/* The unit and its bf16, registers that the system saves, and its permission, which is asked for
 * once for the whole process. */
static bool has_amx(void)
{
    enum { BF16 = 1 << 22, TILE = 1 << 24, REQUEST = 0x1023, TILE_DATA = 18 };
    const uint32_t saved = 3u << 17;
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (BF16 | TILE)) != (BF16 | TILE))
        return false;
    if (syscall(SYS_arch_prctl, REQUEST, TILE_DATA) != 0)
        return false;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & saved) == saved;
}

#else

static bool has_amx(void)
{
    return false;
}

#endif

static bool has_bf16(void)
{
#if RG_HAVE_BF16
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 5) != 0;
#else
    return false;
#endif
}

/* The best first. */
static const struct {
    bool (*is_there)(void);
    rg_pair_unit unit;
} units[] = {
    { has_amx, { "AMX", rg_amx_rows, true, RG_SUM_RUN *RG_PAIR_DEPTH } },
    { has_bf16, { "AVX512-BF16", rg_bf16_rows, false, RG_SUM_RUN } },
};

const rg_pair_unit *rg_pair_unit_best(void)
{
    enum { COUNT = sizeof units / sizeof units[0] };
    static int known; /* 0: not yet asked, then 1 + the number; two threads may ask at once */
    int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (answer == 0) {
        int i = rg_isa_best() == RG_ISA_AVX512 ? 0 : COUNT;
        while (i < COUNT && !units[i].is_there())
            i++;
        answer = i + 1;
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer > COUNT ? NULL : &units[answer - 1].unit;
}
