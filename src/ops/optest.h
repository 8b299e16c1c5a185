/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What an op's <op>_ref.c and <op>_test.c give to `check` and `bench`: the definition in double,
 * and cases. Not part of the library. */
#ifndef RG_OPS_OPTEST_H
#define RG_OPS_OPTEST_H

#include "ops/ops.h"

/* A dense tensor in double. */
typedef struct rg_ref_tensor {
    int32_t rank;
    int64_t dims[RG_MAX_RANK];
    double *data;
} rg_ref_tensor;

static inline int64_t rg_ref_count(const rg_ref_tensor *tensor)
{
    int64_t count = 1;
    for (int32_t d = 0; d < tensor->rank; d++)
        count *= tensor->dims[d];
    return count;
}

/* Values of a tensor: uniform in [low, high), or by a function of the flat index. Both 0: [-2,
 * 2). The rest changes what is uniform; 0: not at all. */
typedef struct rg_fill {
    double low, high;
    double (*at)(int64_t i);
    double step;     /* rounded down to multiples of it */
    double spread;   /* scaled by up to this many powers of ten, up or down */
    double special;  /* this share is NaN, infinite or zero */
    uint32_t repeat; /* bit d: the same along dimension d */
} rg_fill;

/* Random numbers: the same from the same seed on every machine. */
typedef struct rg_random {
    uint64_t state;
} rg_random;
rg_random rg_random_seed(uint64_t seed, const char *name);
double rg_random_uniform(rg_random *random); /* 0 <= u < 1 */

enum {
    RG_CASE_BENCH = 1 << 0,     /* timed by `bench` on the CPU, and checked only if it is small */
    RG_CASE_FREE_Y = 1 << 1,    /* the gradient is given a y drawn by y_fill, not that of forward */
    RG_CASE_FORWARD = 1 << 2,   /* forward only */
    RG_CASE_SPECIAL = 1 << 3,   /* NaN and infinities are expected, and compared by class */
    RG_CASE_ZERO = 1 << 4,      /* the gradient is 0 by mathematics */
    RG_CASE_BENCH_GPU = 1 << 5, /* timed by `bench` on a GPU, and checked only if it is small */
    RG_CASE_WIDE = 1 << 6,      /* gradients are f32 beside f16 and bf16, where the op allows it */
    RG_CASE_LONG = 1 << 7,      /* by `check --long` alone, as cases of a large first input are */
    RG_CASE_NO_DIFFERENCES = 1 << 8, /* by design the gradient is not that of the function */
    RG_CASE_NARROW = 1 << 9,         /* gradients of 16 bits are rounded once more on the way */
    RG_CASE_NCHW = 1 << 10,          /* memory of images is NCHW; `bench` times it so */
    RG_CASE_STATELESS = 1 << 11,     /* timed without a state, where the gradient needs none */
};

typedef struct rg_case {
    const char *name;
    const char *fields; /* of the descriptor, "axis=1 kind=log" */
    const char *x; /* shapes of the inputs, "2,3,4 4"; "i64:-", "real:4" have their own dtype */
    uint32_t flags;
    uint32_t only; /* bit T: in dtype T; 0: in all */
    rg_fill x_fill[RG_MAX_INPUTS], y_fill, dy_fill;
    const double *golden; /* expected dx[0] (or y[0] if forward only), to 8 digits */
} rg_case;

/* A random trial in the making; see optest_draw.h. The hook of an op finds a descriptor drawn from
 * the field table and fills of the trial's own kind. It sets the shapes of all inputs, and whatever
 * of the rest must fit them. What the op refuses after that is drawn again. */
typedef struct rg_draw {
    rg_random random;
    rg_dtype dtype; /* of the trial */
    void *desc;
    rg_tensor_desc x[RG_MAX_INPUTS];
    rg_fill x_fill[RG_MAX_INPUTS], dy_fill;
    uint32_t flags; /* RG_CASE_FORWARD: there is no gradient; and others */
    bool faults;    /* the values are wrong: running must fail, with a sentence */
    double cost;    /* steps of the definition; 0: by `operations`, or by the elements */
} rg_draw;

typedef void rg_ref_forward(const void *desc, const rg_ref_tensor x[], rg_ref_tensor y[]);
/* dx[i].data is NULL where not wanted. */
typedef void rg_ref_gradient(const void *desc, const rg_ref_tensor dy[], const rg_ref_tensor x[],
                             const rg_ref_tensor y[], rg_ref_tensor dx[]);

typedef struct rg_op_test {
    const rg_op *op;
    rg_ref_forward *forward;
    rg_ref_gradient *gradient; /* NULL: the op has none */
    const rg_case *cases;      /* name NULL at the end */
    /* Floating-point operations of a contraction, of its first two inputs where it has two; NULL
     * where an op is bound by memory. */
    double (*operations)(const void *desc, const rg_tensor_desc x[]);
    /* How many elements must be read: of x[0] in the forward pass, of dy[0] in the gradient. NULL:
     * all. */
    int64_t (*needs)(const void *desc, const rg_tensor_desc x[], const rg_tensor_desc y[],
                     bool gradient);
    /* Changes a descriptor to that of phase n, for ops whose kernels can run in phases that share a
     * state; false: there is none, or there are no more. NULL: there are never any. */
    bool (*phase)(void *desc, int32_t n);
    /* Random trials. NULL: any shape, the same for all inputs. */
    void (*draw)(rg_draw *draw);
} rg_op_test;

#define RG_OP(name)                           \
    rg_ref_forward rg_##name##_ref_forward;   \
    rg_ref_gradient rg_##name##_ref_gradient; \
    extern const rg_op_test rg_op_test_##name;
#include "ops/ops.def"
#undef RG_OP

/* Defines rg_op_test_<op> with its op and its definition. */
#define RG_OP_TEST_DEFINE(name, ...)                                             \
    const rg_op_test rg_op_test_##name = { .op = &rg_op_##name,                  \
                                           .forward = rg_##name##_ref_forward,   \
                                           .gradient = rg_##name##_ref_gradient, \
                                           __VA_ARGS__ }

/* The same for an op without a gradient. */
#define RG_OP_TEST_DEFINE_FORWARD(name, ...)                                   \
    const rg_op_test rg_op_test_##name = { .op = &rg_op_##name,                \
                                           .forward = rg_##name##_ref_forward, \
                                           __VA_ARGS__ }

#endif
