/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Statuses, the error sentence of each thread, and conversions between dtypes: all 65,536 patterns
 * of f16 and bf16 both ways, against a rounding of its own in long double. */
#include "api.h"

#include <fenv.h>
#include <math.h>
#include <pthread.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- statuses ---- */

static void test_names(void)
{
    static const char *const names[] = {
        "RG_OK",        "RG_INVALID_ARGUMENT", "RG_INVALID_STATE", "RG_UNSUPPORTED",
        "RG_NO_DEVICE", "RG_OUT_OF_MEMORY",    "RG_KERNEL_FAULT",  "RG_IO",
        "RG_MALFORMED"
    };
    for (int i = 0; i < 9; i++)
        EXPECT(strcmp(rg_status_name((rg_status)i), names[i]) == 0);
    EXPECT(rg_status_name((rg_status)9) != NULL);
    EXPECT(rg_status_name((rg_status)-1) != NULL);
    EXPECT(strcmp(rg_version(), "0.2.0") == 0);
    static const char *const dtypes[] = { "f32", "f64", "f16", "bf16", "u8", "i32", "i64" };
    static const size_t sizes[] = { 4, 8, 2, 2, 1, 4, 8 };
    for (int i = 0; i < 7; i++) {
        EXPECT(strcmp(rg_dtype_name((rg_dtype)i), dtypes[i]) == 0);
        EXPECT(rg_dtype_size((rg_dtype)i) == sizes[i]);
    }
    EXPECT(rg_dtype_size((rg_dtype)7) == 0 && strcmp(rg_dtype_name((rg_dtype)7), "?") == 0);
    EXPECT(rg_dtype_size((rg_dtype)-1) == 0 && strcmp(rg_dtype_name((rg_dtype)-1), "?") == 0);
}

static void *fail_elsewhere(void *context)
{
    bool *good = context;
    good[0] = rg_error_text()[0] == 0; /* nothing has failed on this thread */
    rg_device *device;
    good[1] = rg_device_create("abacus", NULL, &device) == RG_INVALID_ARGUMENT && device == NULL;
    good[2] = strstr(rg_error_text(), "abacus") != NULL;
    return NULL;
}

static void test_error_text(void)
{
    EXPECT(rg_error_text()[0] == 0);
    EXPECT(rg_convert(NULL, RG_F32, NULL, RG_F64, 1) == RG_INVALID_ARGUMENT);
    char mine[512];
    snprintf(mine, sizeof mine, "%s", rg_error_text());
    EXPECT(strstr(mine, "rg_convert") != NULL);
    bool good[3] = { false };
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, fail_elsewhere, good) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(good[0] && good[1] && good[2]);
    EXPECT(strcmp(rg_error_text(), mine) == 0);
    EXPECT_OK(rg_convert(NULL, RG_F32, NULL, RG_F64, 0)); /* success leaves the sentence */
    EXPECT(strcmp(rg_error_text(), mine) == 0);
    char name[2000]; /* longer than any sentence */
    memset(name, 'q', sizeof name);
    name[sizeof name - 1] = 0;
    rg_device *device;
    EXPECT_FAILS(rg_device_create(name, NULL, &device), RG_INVALID_ARGUMENT, "qqqq");
}

/* ---- 16-bit floating point ---- */

typedef struct format {
    rg_dtype dtype;
    int digits, lowest; /* of the significand; exponent of the smallest subnormal number */
    int exponent_bits, fraction_bits;
    long double limit; /* from here on a value rounds to infinity */
} format;

static const format formats[] = {
    { RG_F16, 11, -24, 5, 10, 65520.0L },
    { RG_BF16, 8, -133, 8, 7, 0x1.ffp127L },
};

/* The value of a pattern, from the definition of the format. */
static long double value_of(const format *f, unsigned bits)
{
    const int highest = (1 << f->exponent_bits) - 1;
    const int exponent = (int)(bits >> f->fraction_bits) & highest;
    const long double fraction = bits & ((1u << f->fraction_bits) - 1);
    const long double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == highest)
        return fraction == 0 ? sign * (long double)INFINITY : (long double)NAN;
    if (exponent == 0)
        return sign * ldexpl(fraction, f->lowest);
    return sign * ldexpl(fraction + ldexpl(1, f->fraction_bits), f->lowest + exponent - 1);
}

/* Round to nearest, ties to even. */
static long double rounded(const format *f, long double value)
{
    if (isnan(value) || value == 0)
        return value;
    if (fabsl(value) >= f->limit)
        return copysignl((long double)INFINITY, value);
    int exponent;
    frexpl(value, &exponent);
    const int last = exponent - f->digits > f->lowest ? exponent - f->digits : f->lowest;
    return ldexpl(rintl(ldexpl(value, -last)), last);
}

static bool same_value(long double a, long double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void test_patterns(const format *f)
{
    int wrong = 0, lost = 0;
    for (unsigned i = 0; i < 65536; i++) {
        const uint16_t bits = (uint16_t)i;
        uint16_t back = 0, again = 0;
        float single;
        double twice;
        rg_convert(&single, RG_F32, &bits, f->dtype, 1);
        rg_convert(&twice, RG_F64, &bits, f->dtype, 1);
        const long double wanted = value_of(f, bits);
        wrong +=
            !same_value((long double)single, wanted) || !same_value((long double)twice, wanted);
        rg_convert(&back, f->dtype, &single, RG_F32, 1);
        rg_convert(&again, f->dtype, &twice, RG_F64, 1);
        if (isnan(wanted)) /* stays a NaN of the same sign and payload, made quiet */
            lost +=
                (back | 1u << (f->fraction_bits - 1)) != (bits | 1u << (f->fraction_bits - 1)) ||
                !isnan(value_of(f, back)) || back != again;
        else
            lost += back != bits || again != bits;
    }
    EXPECT(wrong == 0);
    EXPECT(lost == 0);
}

static int check_one(const format *f, double value)
{
    uint16_t bits;
    rg_convert(&bits, f->dtype, &value, RG_F64, 1);
    int bad = !same_value(value_of(f, bits), rounded(f, (long double)value));
    const float single = (float)value;
    rg_convert(&bits, f->dtype, &single, RG_F32, 1);
    bad += !same_value(value_of(f, bits), rounded(f, (long double)single));
    return bad;
}

/* Half-way between neighbours, and next to it in float and in double: by way of float a double
 * would round twice. */
static void test_rounding(const format *f)
{
    int bad = 0;
    const unsigned infinite = ((1u << f->exponent_bits) - 1) << f->fraction_bits;
    for (unsigned i = 0; i < infinite; i++) {
        const long double low = value_of(f, i);
        const long double high = i + 1 < infinite ? value_of(f, i + 1) : 2 * f->limit - low;
        const double middle = (double)((low + high) / 2);
        const float single = (float)middle;
        const double near[] = { middle,
                                nextafter(middle, 0),
                                nextafter(middle, INFINITY),
                                (double)nextafterf(single, 0),
                                (double)nextafterf(single, INFINITY),
                                nextafter((double)low, 0),
                                nextafter((double)low, INFINITY) };
        for (size_t k = 0; k < sizeof near / sizeof near[0]; k++)
            bad += check_one(f, near[k]) + check_one(f, -near[k]);
    }
    const double special[] = { 0,      -0.0,      INFINITY, -INFINITY, NAN,           1e300,
                               -1e300, 0x1p-1074, 0x1p-149, 0x1p-150,  0x1.fffffep127 };
    for (size_t k = 0; k < sizeof special / sizeof special[0]; k++)
        bad += check_one(f, special[k]);
    uint64_t seed = 1;
    for (int i = 0; i < 200000; i++) {
        const double value = ldexp(1 + draw(&seed) / 0x1p31 + draw(&seed) / 0x1p62,
                                   (int)draw_from(&seed, f->lowest - 4, 130));
        bad += check_one(f, i % 2 ? -value : value);
    }
    EXPECT(bad == 0);
}

/* The caller's rounding and flushing of subnormal numbers have no say. */
static void test_settings(const format *f)
{
    static uint16_t patterns[65536], plain[65536], odd[65536];
    static float plain_wide[65536], odd_wide[65536];
    static double near[65536];
    for (unsigned i = 0; i < 65536; i++) {
        patterns[i] = (uint16_t)i;
        near[i] = (double)value_of(f, i) * 1.0001;
    }
    rg_convert(plain_wide, RG_F32, patterns, f->dtype, 65536);
    rg_convert(plain, f->dtype, near, RG_F64, 65536);
    static const int modes[] = { FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD };
    for (int i = 0; i < 3; i++) {
        fesetround(modes[i]);
#if defined(__x86_64__)
        _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
        rg_convert(odd_wide, RG_F32, patterns, f->dtype, 65536);
        rg_convert(odd, f->dtype, near, RG_F64, 65536);
        EXPECT(fegetround() == modes[i]); /* left as it was */
        fesetenv(FE_DFL_ENV);
        EXPECT(memcmp(plain_wide, odd_wide, sizeof odd_wide) == 0);
        EXPECT(memcmp(plain, odd, sizeof odd) == 0);
    }
}

/* ---- all pairs ---- */

static void test_integers(void)
{
    const double from[] = { 0,    -0.0,  0.999, -0.999,   1.5,       -1.5,    255.9,
                            256,  -1,    1e10,  -1e10,    0x1p31,    -0x1p31, -0x1p31 - 1,
                            1e30, -1e30, NAN,   INFINITY, -INFINITY, 0x1p63,  -0x1p63 };
    const int64_t wanted[] = { 0,
                               0,
                               0,
                               0,
                               1,
                               -1,
                               255,
                               256,
                               -1,
                               INT64_C(10000000000),
                               INT64_C(-10000000000),
                               INT64_C(1) << 31,
                               -(INT64_C(1) << 31),
                               -(INT64_C(1) << 31) - 1,
                               INT64_MAX,
                               INT64_MIN,
                               0,
                               INT64_MAX,
                               INT64_MIN,
                               INT64_MAX,
                               INT64_MIN };
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        uint8_t u8;
        int32_t i32;
        int64_t i64;
        EXPECT_OK(rg_convert(&u8, RG_U8, &from[i], RG_F64, 1));
        EXPECT_OK(rg_convert(&i32, RG_I32, &from[i], RG_F64, 1));
        EXPECT_OK(rg_convert(&i64, RG_I64, &from[i], RG_F64, 1));
        const int64_t w = wanted[i];
        EXPECT(i64 == w);
        EXPECT(i32 == (w > INT32_MAX ? INT32_MAX : w < INT32_MIN ? INT32_MIN : w));
        EXPECT(u8 == (w > 255 ? 255 : w < 0 ? 0 : w));
        uint8_t again; /* the same by way of i64 */
        EXPECT_OK(rg_convert(&again, RG_U8, &i64, RG_I64, 1));
        EXPECT(again == u8);
    }
}

/* An i64 has more digits than a double: it, too, rounds once. */
static void test_long_integers(void)
{
    uint64_t seed = 7;
    int bad = 0;
    for (int i = 0; i < 100000; i++) {
        const int shift = (int)draw_from(&seed, 0, 62);
        const int64_t tie = INT64_C(1) << 62 >> shift;
        int64_t value = tie | tie >> (draw_from(&seed, 0, 30)) | draw_from(&seed, 0, 1);
        value = i % 2 ? -value : value;
        float single;
        double twice;
        uint16_t bits;
        rg_convert(&single, RG_F32, &value, RG_I64, 1);
        rg_convert(&twice, RG_F64, &value, RG_I64, 1);
        bad += single != (float)value || twice != (double)value;
        for (int k = 0; k < 2; k++) {
            rg_convert(&bits, formats[k].dtype, &value, RG_I64, 1);
            bad +=
                !same_value(value_of(&formats[k], bits), rounded(&formats[k], (long double)value));
        }
    }
    EXPECT(bad == 0);
}

/* Small whole numbers are exact in every dtype, so every pair must keep them. */
static void test_all_pairs(void)
{
    const double values[] = { 0, 1, 2, 3, 7, 16, 100, 127, 128, 200, 255 };
    enum { COUNT = sizeof values / sizeof values[0] };
    for (int a = 0; a < 7; a++) {
        for (int b = 0; b < 7; b++) {
            char first[COUNT * 8], second[COUNT * 8];
            double back[COUNT];
            EXPECT_OK(rg_convert(first, (rg_dtype)a, values, RG_F64, COUNT));
            EXPECT_OK(rg_convert(second, (rg_dtype)b, first, (rg_dtype)a, COUNT));
            EXPECT_OK(rg_convert(back, RG_F64, second, (rg_dtype)b, COUNT));
            EXPECT(memcmp(back, values, sizeof values) == 0);
        }
    }
    double one = 1;
    EXPECT_FAILS(rg_convert(&one, (rg_dtype)7, &one, RG_F64, 1), RG_INVALID_ARGUMENT, "dtype 7");
    EXPECT_FAILS(rg_convert(&one, RG_F64, &one, (rg_dtype)99, 1), RG_INVALID_ARGUMENT, "dtype 99");
    EXPECT_FAILS(rg_convert(NULL, RG_F64, &one, RG_F32, 1), RG_INVALID_ARGUMENT, "to is NULL");
    EXPECT_FAILS(rg_convert(&one, RG_F64, NULL, RG_F32, 1), RG_INVALID_ARGUMENT, "from is NULL");
}

int main(void)
{
    test_error_text();
    test_names();
    for (int i = 0; i < 2; i++) {
        test_patterns(&formats[i]);
        test_rounding(&formats[i]);
        test_settings(&formats[i]);
    }
    test_integers();
    test_long_integers();
    test_all_pairs();
    return rg_test_report();
}
