/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Which unit for pairs of bf16 there is. Like isa.c, this file is compiled for any processor. */
#include "backend/cpu/bf16_unit.h"
#include "backend/cpu/isa.h"
#include "core/private_api.h"

#if RG_HAVE_AMX || RG_HAVE_BF16
#include <cpuid.h>
#endif
#if RG_HAVE_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(RG_AMX_EMULATED)

static bool has_amx(void)
{
    return true;
}

#elif RG_HAVE_AMX

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

bool rg_bf16_converts(void)
{
    static int32_t known; /* as below */
    int32_t answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (answer == 0) {
        answer = 1 + (rg_isa_best() == RG_ISA_AVX512 && has_bf16());
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer > 1;
}

static int32_t find_unit(void)
{
    if (rg_isa_best() != RG_ISA_AVX512)
        return RG_BF16_UNIT_NONE;
    return has_amx() ? RG_BF16_UNIT_AMX : has_bf16() ? RG_BF16_UNIT_AVX512 : RG_BF16_UNIT_NONE;
}

RG_PRIVATE_API int32_t rg_bf16_unit(void)
{
    static int32_t known; /* 0: not yet asked, then 1 + the unit; two threads may ask at once */
    int32_t answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (answer == 0) {
        answer = 1 + find_unit();
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer - 1;
}

RG_PRIVATE_API const char *rg_bf16_unit_name(int32_t unit)
{
    static const char *const names[] = { "", "AVX512-BF16", "AMX" };
    return names[unit];
}
