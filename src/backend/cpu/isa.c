/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Finding out what the processor offers and the system saves on a context switch. */
#include "backend/cpu/isa.h"

#if defined(__x86_64__) && RG_HAVE_X86_ISAS
#include <cpuid.h>

/* The register sets that the system saves: bit 2 for AVX, bits 5 to 7 for AVX-512. */
static uint32_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

int32_t rg_isa_best(void)
{
    unsigned a, b, c, d, wide_b, wide_c, wide_d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return RG_ISA_BASE;
    const unsigned needed = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    if ((c & needed) != needed || (saved_registers() & 0x06) != 0x06)
        return RG_ISA_BASE;
    if (!__get_cpuid_count(7, 0, &a, &wide_b, &wide_c, &wide_d) || !(wide_b & bit_AVX2))
        return RG_ISA_BASE;
    const unsigned wide = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    if ((wide_b & wide) != wide || (saved_registers() & 0xe6) != 0xe6)
        return RG_ISA_AVX2;
    return RG_HAVE_AVX512 ? RG_ISA_AVX512 : RG_ISA_AVX2;
}
#else
int32_t rg_isa_best(void)
{
    return RG_ISA_BASE;
}
#endif

static const char *const names[RG_ISAS] = { "base", "avx2", "avx512" };

const char *rg_isa_name(int32_t isa)
{
    return names[isa];
}

rg_status rg_isa_parse(const char *name, int32_t *isa)
{
    for (int32_t i = 0; i < RG_ISAS; i++) {
        if (strcmp(name, names[i]) == 0) {
            *isa = i;
            return RG_OK;
        }
    }
    return rg_fail(RG_INVALID_ARGUMENT,
                   "unknown instruction set '%s'; the instruction sets are base, avx2 and avx512",
                   name);
}
