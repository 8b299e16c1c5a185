/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Measures the error of backend/cpu/math.h in ULP on every instruction set of this processor,
 * against libm in a wider type, and checks special values exactly. `math_test 1` tries every float;
 * the default is one in 251. */
#include "math_sweep.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, NEIGHBOURS = 12, ISAS = 3 };

#if RG_HAVE_AVX512 || !RG_HAVE_X86_ISAS
#define RG_HAVE_BASE 1 /* not under a sanitizer, where one instruction set stands for all */
extern const rg_math_sweep rg_math_sweep_f32_base[RG_MATH_FUNCTIONS];
extern const rg_math_sweep rg_math_sweep_f64_base[RG_MATH_FUNCTIONS];
#endif
#if defined(RG_HAVE_AVX2)
extern const rg_math_sweep rg_math_sweep_f32_avx2[RG_MATH_FUNCTIONS];
extern const rg_math_sweep rg_math_sweep_f64_avx2[RG_MATH_FUNCTIONS];
#endif
#if RG_HAVE_AVX512
extern const rg_math_sweep rg_math_sweep_f32_avx512[RG_MATH_FUNCTIONS];
extern const rg_math_sweep rg_math_sweep_f64_avx512[RG_MATH_FUNCTIONS];
#endif

typedef struct isa {
    const char *name;
    const rg_math_sweep *table[2]; /* float, double */
} isa;

static isa isas[ISAS];
static int isa_count;

static void find_isas(void)
{
#if defined(RG_HAVE_BASE)
    isas[isa_count++] = (isa){ "base", { rg_math_sweep_f32_base, rg_math_sweep_f64_base } };
#endif
#if defined(RG_HAVE_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        isas[isa_count++] = (isa){ "avx2", { rg_math_sweep_f32_avx2, rg_math_sweep_f64_avx2 } };
#endif
#if RG_HAVE_AVX512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        isas[isa_count++] =
            (isa){ "avx512", { rg_math_sweep_f32_avx512, rg_math_sweep_f64_avx512 } };
#endif
}

/* ---- what is right: double for float, long double for double ---- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static long double sigmoidl(long double x)
{
    return 1 / (1 + expl(-x));
}

static double normal(double x)
{
    return erfc(-x * sqrt(0.5)) / 2;
}

static long double normall(long double x)
{
    return erfcl(-x * sqrtl(0.5L)) / 2;
}

static double bell(double x)
{
    return exp(-x * x / 2);
}

static long double belll(long double x)
{
    return expl(-x * x / 2);
}

static double tanh_slope(double x)
{
    const double z = exp(-2 * fabs(x)), r = 2 / (1 + z);
    return z * r * r;
}

static double gelu_slope(double x)
{
    return normal(x) + x * bell(x) / sqrt(2 * acos(-1));
}

/* Whether the function is made for x in this real. */
static bool is_defined(int function, double x, bool is_double)
{
    return isas[0].table[is_double][function].apply != NULL &&
           !((function == RG_MATH_EXP_SHORT || function == RG_MATH_EXP2) && x > 0) &&
           !(function == RG_MATH_EXPM1_SHORT && x >= 0);
}

static const struct {
    double (*of_float)(double);
    long double (*of_double)(long double);
} truth[RG_MATH_FUNCTIONS] = {
    [RG_MATH_EXP] = { exp, expl },
    [RG_MATH_EXP_SHORT] = { exp, expl },
    [RG_MATH_EXPM1] = { expm1, expm1l },
    [RG_MATH_LOG] = { log, logl },
    [RG_MATH_LOG1P] = { log1p, log1pl },
    [RG_MATH_TANH] = { tanh, tanhl },
    [RG_MATH_ERF] = { erf, erfl },
    [RG_MATH_SIGMOID] = { sigmoid, sigmoidl },
    [RG_MATH_NORMAL] = { normal, normall },
    [RG_MATH_BELL] = { bell, belll },
    [RG_MATH_EXP2] = { exp2, exp2l },
    [RG_MATH_EXPM1_SHORT] = { expm1, expm1l },
    [RG_MATH_SIGMOID_SHORT] = { sigmoid, sigmoidl },
    [RG_MATH_TANH_SLOPE_SHORT] = { tanh_slope, NULL },
    [RG_MATH_TANH_SHORT] = { tanh, tanhl },
    [RG_MATH_NORMAL_SHORT] = { normal, normall },
    [RG_MATH_NORMAL_SLOPE_SHORT] = { gelu_slope, NULL },
};

/* |y - want| in units of the last place of want, or of floor if that is larger; infinity counts as
 * the power of two that follows the largest number. A NaN on one side only, or a zero of the wrong
 * sign, is infinitely wrong. */
static double ulps(long double y, long double want, double floor, bool is_double)
{
    const int digits = is_double ? 53 : 24, top = is_double ? 1024 : 128;
    const int least = is_double ? -1074 : -149;
    if (isnan(y) || isnan(want))
        return isnan(y) && isnan(want) ? 0 : INFINITY;
    if (y == 0 && !signbit(y) != !signbit(want) && (want == 0 || fabsl(want) >= floor))
        return INFINITY;
    const long double limit = ldexpl(1, top);
    y = fmaxl(-limit, fminl(limit, y));
    want = fmaxl(-limit, fminl(limit, want));
    int exponent = least;
    if (want != 0 || floor > 0)
        frexpl(fmaxl(fabsl(want), floor), &exponent);
    exponent = exponent > top ? top : exponent;
    const int unit = exponent - digits > least ? exponent - digits : least;
    return (double)ldexpl(fabsl(y - want), -unit);
}

/* ---- sampling: points gather in a block, which every function on every instruction set is then
 * run over ----
 */

typedef struct sample {
    bool is_double;
    int64_t count; /* in the block */
    double x[BLOCK];
    struct {
        double error, x;
    } worst[ISAS][RG_MATH_FUNCTIONS];
} sample;

static void sample_flush(sample *s)
{
    static float x32[BLOCK], y32[BLOCK];
    static double y64[BLOCK];
    static long double want[BLOCK];
    for (int64_t i = 0; i < s->count; i++)
        x32[i] = (float)s->x[i];
    for (int f = 0; f < RG_MATH_FUNCTIONS; f++) {
        if (isas[0].table[s->is_double][f].apply == NULL)
            continue;
        for (int64_t i = 0; i < s->count; i++)
            want[i] = s->is_double ? truth[f].of_double(s->x[i]) : truth[f].of_float(s->x[i]);
        for (int r = 0; r < isa_count; r++) {
            const rg_math_sweep *sweep = &isas[r].table[s->is_double][f];
            if (s->is_double)
                sweep->apply(s->x, y64, s->count);
            else
                sweep->apply(x32, y32, s->count);
            for (int64_t i = 0; i < s->count; i++) {
                const double y = s->is_double ? y64[i] : y32[i];
                const double nearest = s->is_double ? (double)want[i] : (float)want[i];
                if (!is_defined(f, s->x[i], s->is_double) || (y == nearest && y != 0))
                    continue; /* half a unit at most */
                const double error = ulps(y, want[i], sweep->floor, s->is_double);
                if (error > s->worst[r][f].error) {
                    s->worst[r][f].error = error;
                    s->worst[r][f].x = s->x[i];
                }
            }
        }
    }
    s->count = 0;
}

static void sample_add(sample *s, double x)
{
    s->x[s->count++] = s->is_double ? x : (float)x;
    if (s->count == BLOCK)
        sample_flush(s);
}

/* x, -x, and the numbers next to them. */
static void sample_around(sample *s, double x)
{
    double up = s->is_double ? x : (float)x, down = up;
    for (int i = 0; i < NEIGHBOURS; i++) {
        sample_add(s, up);
        sample_add(s, down);
        sample_add(s, -up);
        sample_add(s, -down);
        up = s->is_double ? nextafter(up, INFINITY) : nextafterf((float)up, INFINITY);
        down = s->is_double ? nextafter(down, -INFINITY) : nextafterf((float)down, -INFINITY);
    }
}

/* Where an algorithm changes its mind. */
static void sample_edges(sample *s)
{
    static const double edges[] = { 0,         0.5,       1,        2,       4,        6,
                                    17,        18,        19,       38,      87.3365,  88.7228,
                                    89,        103.972,   104,      708.4,   709.7827, 710,
                                    745.1332,  746,       3.92,     5.92,    9.01,     19.06,
                                    0x1p-126,  0x1p-149,  0x1p-24,  0x1p-25, 0x1p-53,  0x1p-54,
                                    0x1p-1022, 0x1p-1074, INFINITY, NAN };
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++)
        sample_around(s, edges[i]);
    for (int k = 1; k <= 2200; k++) /* reduction: halves of multiples of ln 2 */
        sample_around(s, k * 0.5 * log(2));
    for (int e = -1074; e <= 1023; e++) { /* powers of two, and of two by sqrt(1/2) */
        sample_around(s, ldexp(1, e));
        sample_around(s, ldexp(sqrt(0.5), e));
    }
    for (int e = -60; e <= 0; e++) { /* log1p next to its pole */
        sample_around(s, -1 + ldexp(1, e));
        sample_around(s, -1 + ldexp(sqrt(0.5), e));
    }
}

static void sample_every_float(sample *s, uint32_t step)
{
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step) {
        const uint32_t low = (uint32_t)bits;
        float x;
        memcpy(&x, &low, sizeof x);
        sample_add(s, x);
    }
}

static uint64_t random_bits(uint64_t *state) /* a Weyl sequence, its bits mixed */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 32) * 0xd6e8feb86659fd93u;
    z = (z ^ z >> 32) * 0xd6e8feb86659fd93u;
    return z ^ z >> 32;
}

static void sample_random(sample *s, int count, uint64_t seed)
{
    static const double ranges[] = { 750, 40, 7, 2, 1, 0.01 };
    for (int i = 0; i < count; i++) {
        const uint64_t bits = random_bits(&seed);
        double x;
        memcpy(&x, &bits, sizeof x); /* any exponent */
        sample_add(s, x);
        const double unit = (double)(int64_t)random_bits(&seed) * 0x1p-63; /* -1 to 1 */
        for (size_t k = 0; k < sizeof ranges / sizeof ranges[0]; k++)
            sample_add(s, unit * ranges[k]);
        sample_add(s, 1 + unit / 1024);
    }
}

static int sample_report(const sample *s)
{
    int failures = 0;
    for (int f = 0; f < RG_MATH_FUNCTIONS; f++) {
        for (int r = 0; r < isa_count; r++) {
            const rg_math_sweep *sweep = &isas[r].table[s->is_double][f];
            const bool fails = s->worst[r][f].error > sweep->bound;
            if (sweep->apply == NULL)
                continue;
            printf("%-13s %s %-7s %6.3f ULP at %-14.7g bound %g%s\n", sweep->name,
                   s->is_double ? "f64" : "f32", isas[r].name, s->worst[r][f].error,
                   s->worst[r][f].x, sweep->bound, fails ? "  FAILS" : "");
            failures += fails;
        }
    }
    return failures;
}

/* ---- exact values ---- */

static const struct {
    int function;
    double x, y;
} exact[] = {
    { RG_MATH_EXP, 0.0, 1 },
    { RG_MATH_EXP, -0.0, 1 },
    { RG_MATH_EXP, INFINITY, INFINITY },
    { RG_MATH_EXP, -INFINITY, 0 },
    { RG_MATH_EXP, 1e30, INFINITY },
    { RG_MATH_EXP, -1e30, 0 },
    { RG_MATH_EXP, NAN, NAN },
    { RG_MATH_EXP_SHORT, 0.0, 1 },
    { RG_MATH_EXP_SHORT, -0.0, 1 },
    { RG_MATH_EXP_SHORT, -INFINITY, 0 },
    { RG_MATH_EXP_SHORT, -1e30, 0 },
    { RG_MATH_EXP_SHORT, NAN, NAN },
    { RG_MATH_EXPM1, 0.0, 0.0 },
    { RG_MATH_EXPM1, -0.0, -0.0 },
    { RG_MATH_EXPM1, INFINITY, INFINITY },
    { RG_MATH_EXPM1, -INFINITY, -1 },
    { RG_MATH_EXPM1, 1e30, INFINITY },
    { RG_MATH_EXPM1, -1e30, -1 },
    { RG_MATH_EXPM1, 0x1p-149, 0x1p-149 },
    { RG_MATH_EXPM1, NAN, NAN },
    { RG_MATH_LOG, 1, 0.0 },
    { RG_MATH_LOG, 0.0, -INFINITY },
    { RG_MATH_LOG, -0.0, -INFINITY },
    { RG_MATH_LOG, -1, NAN },
    { RG_MATH_LOG, -0x1p-149, NAN },
    { RG_MATH_LOG, -INFINITY, NAN },
    { RG_MATH_LOG, INFINITY, INFINITY },
    { RG_MATH_LOG, NAN, NAN },
    { RG_MATH_LOG1P, 0.0, 0.0 },
    { RG_MATH_LOG1P, -0.0, -0.0 },
    { RG_MATH_LOG1P, -1, -INFINITY },
    { RG_MATH_LOG1P, -2, NAN },
    { RG_MATH_LOG1P, -INFINITY, NAN },
    { RG_MATH_LOG1P, INFINITY, INFINITY },
    { RG_MATH_LOG1P, -0x1p-149, -0x1p-149 },
    { RG_MATH_LOG1P, NAN, NAN },
    { RG_MATH_TANH, 0.0, 0.0 },
    { RG_MATH_TANH, -0.0, -0.0 },
    { RG_MATH_TANH, INFINITY, 1 },
    { RG_MATH_TANH, -INFINITY, -1 },
    { RG_MATH_TANH, 100, 1 },
    { RG_MATH_TANH, -0x1p-149, -0x1p-149 },
    { RG_MATH_TANH, NAN, NAN },
    { RG_MATH_ERF, 0.0, 0.0 },
    { RG_MATH_ERF, -0.0, -0.0 },
    { RG_MATH_ERF, INFINITY, 1 },
    { RG_MATH_ERF, -INFINITY, -1 },
    { RG_MATH_ERF, 1e30, 1 },
    { RG_MATH_ERF, NAN, NAN },
    { RG_MATH_SIGMOID, 0.0, 0.5 },
    { RG_MATH_SIGMOID, -0.0, 0.5 },
    { RG_MATH_SIGMOID, INFINITY, 1 },
    { RG_MATH_SIGMOID, -INFINITY, 0.0 },
    { RG_MATH_SIGMOID, NAN, NAN },
    { RG_MATH_NORMAL, 0.0, 0.5 },
    { RG_MATH_NORMAL, -0.0, 0.5 },
    { RG_MATH_NORMAL, INFINITY, 1 },
    { RG_MATH_NORMAL, -INFINITY, 0 },
    { RG_MATH_NORMAL, 1e30, 1 },
    { RG_MATH_NORMAL, -1e30, 0 },
    { RG_MATH_NORMAL, NAN, NAN },
    { RG_MATH_BELL, 0.0, 1 },
    { RG_MATH_BELL, INFINITY, 0 },
    { RG_MATH_BELL, -1e30, 0 },
    { RG_MATH_BELL, NAN, NAN },
    { RG_MATH_EXP2, 0.0, 1 },
    { RG_MATH_EXP2, -INFINITY, 0 },
    { RG_MATH_EXP2, -3, 0.125 },
    { RG_MATH_EXP2, NAN, NAN },
    { RG_MATH_EXPM1_SHORT, -INFINITY, -1 },
    { RG_MATH_EXPM1_SHORT, -1e30, -1 },
    { RG_MATH_EXPM1_SHORT, NAN, NAN },
    { RG_MATH_SIGMOID_SHORT, INFINITY, 1 },
    { RG_MATH_SIGMOID_SHORT, 1e30, 1 },
    { RG_MATH_SIGMOID_SHORT, -INFINITY, 0.0 },
    { RG_MATH_SIGMOID_SHORT, -1e30, 0.0 },
    { RG_MATH_SIGMOID_SHORT, NAN, NAN },
    { RG_MATH_TANH_SLOPE_SHORT, INFINITY, 0.0 },
    { RG_MATH_TANH_SLOPE_SHORT, -INFINITY, 0.0 },
    { RG_MATH_TANH_SLOPE_SHORT, -1e30, 0.0 },
    { RG_MATH_TANH_SLOPE_SHORT, NAN, NAN },
    { RG_MATH_TANH_SHORT, 0.0, 0.0 },
    { RG_MATH_TANH_SHORT, -0.0, -0.0 },
    { RG_MATH_TANH_SHORT, NAN, NAN },
    { RG_MATH_NORMAL_SHORT, 0.0, 0.5 },
    { RG_MATH_NORMAL_SHORT, -0.0, 0.5 },
    { RG_MATH_NORMAL_SHORT, INFINITY, 1 },
    { RG_MATH_NORMAL_SHORT, -INFINITY, 0.0 },
    { RG_MATH_NORMAL_SHORT, 1e30, 1 },
    { RG_MATH_NORMAL_SHORT, -1e30, 0.0 },
    { RG_MATH_NORMAL_SHORT, NAN, NAN },
    { RG_MATH_NORMAL_SLOPE_SHORT, 1e30, 1 },
    { RG_MATH_NORMAL_SLOPE_SHORT, -1e30, 0.0 },
    { RG_MATH_NORMAL_SLOPE_SHORT, INFINITY, NAN },
    { RG_MATH_NORMAL_SLOPE_SHORT, -INFINITY, NAN },
    { RG_MATH_NORMAL_SLOPE_SHORT, NAN, NAN },
};

static int check_exact(void)
{
    int failures = 0;
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        for (int r = 0; r < isa_count; r++) {
            const float x32 = (float)exact[i].x;
            float y32;
            double y[2];
            isas[r].table[0][exact[i].function].apply(&x32, &y32, 1);
            y[0] = y32;
            if (is_defined(exact[i].function, exact[i].x, true))
                isas[r].table[1][exact[i].function].apply(&exact[i].x, &y[1], 1);
            for (int d = 0; d < 2; d++) {
                if (!is_defined(exact[i].function, exact[i].x, d))
                    continue;
                const bool same = y[d] == exact[i].y && !signbit(y[d]) == !signbit(exact[i].y);
                if (same || (isnan(y[d]) && isnan(exact[i].y)))
                    continue;
                printf("%s(%g) %s %s is %g, not %g  FAILS\n",
                       isas[r].table[d][exact[i].function].name, exact[i].x, d ? "f64" : "f32",
                       isas[r].name, y[d], exact[i].y);
                failures++;
            }
        }
    }
    return failures;
}

int main(int argc, char **argv)
{
    const uint32_t step = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 251;
    if (step == 0) {
        fprintf(stderr, "usage: math_test [step between floats]\n");
        return 2;
    }
    find_isas();
    int failures = check_exact();
    static sample of_float, of_double = { .is_double = true };
    sample_every_float(&of_float, step);
    sample_edges(&of_float);
    sample_flush(&of_float);
    failures += sample_report(&of_float);
    sample_random(&of_double, 40000, 2024);
    sample_edges(&of_double);
    sample_flush(&of_double);
    failures += sample_report(&of_double);
    return failures ? 1 : 0;
}
