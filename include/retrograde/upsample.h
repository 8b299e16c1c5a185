/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Upsample: images of another height and width, by the nearest pixel or by interpolation.
 *
 *  Along each of the two axes, output index o of `out` reads position u of the input, which has
 *  `in` pixels (s is the scale given, or out / in where the output's size is given):
 *
 *      asymmetric     u = o / s
 *      half_pixel     u = (o + 1/2) / s - 1/2
 *      align_corners  u = o (in - 1) / (out - 1), 0 where out = 1
 *
 *  and u is brought between 0 and in - 1. The nearest pixel is u rounded as `round` says; between
 *  pixels i <= u < i + 1, with f = u - i,
 *
 *      bilinear       y = (1 - f) x[i] + f x[i + 1]
 *
 *  first along columns, then along rows. A pixel of weight 0 is not read, so an infinity stays
 *  where it is. The gradient is the transpose: dx of a pixel is the sum of the dy that it went
 *  into, with the same weights (a sum, not a mean), in the order of dy.
 *
 *  MPSCNNUpsampling is the grid `asymmetric`, or `align_corners` where its alignCorners is set;
 *  PyTorch's align_corners=False and ONNX's default are `half_pixel`. PyTorch's nearest is
 *  asymmetric and floor, its nearest-exact half_pixel and prefer_ceil.
 *
 *  x, y, dy and dx have the same dtype: f32, f64, f16 or bf16. None may overlap another. */
#ifndef RETROGRADE_UPSAMPLE_H
#define RETROGRADE_UPSAMPLE_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rg_upsample_kind { RG_UPSAMPLE_NEAREST, RG_UPSAMPLE_BILINEAR } rg_upsample_kind;

typedef enum rg_upsample_grid {
    RG_UPSAMPLE_ASYMMETRIC,
    RG_UPSAMPLE_HALF_PIXEL,
    RG_UPSAMPLE_ALIGN_CORNERS
} rg_upsample_grid;

/** How `nearest` rounds; a half goes down with prefer_floor and up with prefer_ceil. */
typedef enum rg_upsample_round {
    RG_UPSAMPLE_FLOOR,
    RG_UPSAMPLE_CEIL,
    RG_UPSAMPLE_PREFER_FLOOR,
    RG_UPSAMPLE_PREFER_CEIL
} rg_upsample_round;

/** How to resize. Initialize with rg_upsample_desc_default(). */
typedef struct rg_upsample_desc {
    uint32_t size;           /**< of this struct; set by rg_upsample_desc_default() */
    rg_upsample_kind kind;   /**< default RG_UPSAMPLE_NEAREST */
    rg_upsample_grid grid;   /**< default RG_UPSAMPLE_ASYMMETRIC */
    rg_upsample_round round; /**< nearest only; default RG_UPSAMPLE_FLOOR */
    /** Of rows and of columns, above 0, also below 1 (default 2, 2): the output has
     *  floor(in scale) of them. MPS's scaleFactorY and scaleFactorX. */
    double scale[2];
    /** Rows and columns of the output; 0: as the scale says (default 0, 0). */
    int64_t output[2];
} rg_upsample_desc;
RG_API rg_upsample_desc rg_upsample_desc_default(void);

/** Creates an upsampling kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (n, h, w, c)  ->  y (n, oh, ow, c), or both without n
 *
 *  The gradient reads neither x nor y. Its state contains no tensors. */
RG_API rg_status rg_upsample_create(rg_device *device, const rg_upsample_desc *desc,
                                    rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
