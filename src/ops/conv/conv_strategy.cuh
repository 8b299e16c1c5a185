/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The strategies of convolutions on a GPU: each way of running one is a file that ends with its
 * record. conv_cuda.cu decides which one runs. */
#ifndef RG_OPS_CONV_STRATEGY_CUH
#define RG_OPS_CONV_STRATEGY_CUH

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/kernel.cuh"
#include "backend/cuda/packing.cuh"
#include "ops/conv/conv_cudnn.h"

/* What is to be run, and what accepts() found out for run(). */
struct rg_conv_call {
    rg_dtype dtype;
    int32_t direction; /* RG_CONV_FORWARD, RG_CONV_DATA or RG_CONV_WEIGHTS */
    const rg_conv_shape *shape;
    const rg_conv_args *args;                 /* of forward and data */
    const rg_conv_weights_args *weights_args; /* of weights */
    uint32_t unaligned; /* bit i: tensor i of from, w, b, to or of x, dy, dw is not at 16 bytes */
    bool bias;          /* a bias is added to each sum, and nothing else is done to it */
    bool add;           /* each sum is added to an old value, and nothing else is done to it */
    const rg_cuda_place *place;
    /* of a library: */
    rg_cudnn_conv conv;
    rg_product product;
    size_t workspace; /* bytes */
};

struct rg_conv_strategy {
    const char *name;
    bool (*accepts)(rg_conv_call *call);
    /* Runs it, or counts the scratch that it takes, as arena->run says; false: a library refuses,
     * and nothing is written. */
    bool (*run)(const rg_conv_call *call, packing *arena);
};

extern "C" const rg_conv_strategy rg_conv_cublaslt, rg_conv_cublaslt_weights;
extern "C" const rg_conv_strategy rg_conv_cudnn, rg_conv_cudnn_weights;
extern "C" const rg_conv_strategy rg_conv_depthwise, rg_conv_depthwise_weights;
extern "C" const rg_conv_strategy rg_conv_fold;
extern "C" const rg_conv_strategy rg_conv_stem, rg_conv_stem_weights;
extern "C" const rg_conv_strategy rg_conv_tf32x3, rg_conv_tf32x3_weights;
extern "C" const rg_conv_strategy rg_conv_any;

/* The convolution as cuDNN sees it. */
extern "C" rg_cudnn_conv rg_conv_cudnn_conv(const rg_conv_call *call);

/* Whether conv_tf32x3.cu makes dx of a few channels from few windows: see merge_phases there. */
extern "C" bool rg_conv_tf32x3_merges(const rg_conv_shape *s);

/* ---- dw of many images: conv_long.cu ---- */

/* dw of some images by one strategy; false: none does it. */
typedef bool (*rg_conv_weights_run)(rg_dtype dtype, const rg_conv_weights_args *k,
                                    uint32_t unaligned, packing *arena);

/* How many images one call may add up; 0: not even one. */
extern "C" int64_t rg_conv_images_per_call(const rg_conv_call *call);

/* dw of all images, some of them at a time. */
extern "C" bool rg_conv_run_by_images(const rg_conv_call *call, packing *arena,
                                      rg_conv_weights_run run_call);

/* ---- shapes ---- */

static inline bool conv_is_pixel(const rg_conv_axis *a)
{
    return a->window == 1 && a->stride == 1 && a->before == 0 && a->count == a->size;
}

/* Whether it is a product of matrices, whose rows are pixels. */
static inline bool conv_is_product(const rg_conv_shape *s)
{
    return s->groups == 1 && conv_is_pixel(&s->row) && conv_is_pixel(&s->column);
}

#endif
