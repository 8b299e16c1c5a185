/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Arithmetic: two tensors, element by element, either of them broadcast. With p and s for the
 *  scales of a and b:
 *
 *      add       r = p a + s b + bias            da = p dy               db = s dy
 *      subtract  r = p a - s b + bias            da = p dy               db = -s dy
 *      multiply  r = (p a) (s b) + bias          da = p s b dy           db = p s a dy
 *      divide    r = (p a) / (s b) + bias        da = p dy / (s b)       db = -p a dy / (s b^2)
 *      maximum   r = max(p a, s b) + bias        da = p dy where p a > s b, db = s dy elsewhere
 *      minimum   r = min(p a, s b) + bias        da = p dy where p a < s b, db = s dy elsewhere
 *      mask      r = (b is 0 ? 0 : p a) + bias   da = b is 0 ? 0 : p dy  db = 0
 *                y = r held between minimum and maximum; NaN stays NaN
 *      compare   y = 1 or 0                      no gradient: asking for one is refused
 *
 *  Shapes are broadcast as numpy does it: the shape with fewer dimensions is taken to begin with
 *  ones, and a dimension of 1 is repeated to the other's length. The gradient of an operand has
 *  its shape, and sums over all elements that the operand was repeated for. That is also what a
 *  stride of 0 in pixels or channels means in MPS.
 *
 *  Where p a = s b, maximum and minimum give each operand half of its gradient, as PyTorch does;
 *  where either is NaN, r is NaN and both operands have their whole gradient.
 *
 *  The gradient passes through the bounds where r lies between them or on them; elsewhere, and
 *  where r is NaN, dy counts as 0. (torch.clamp of PyTorch 2.15 passes nothing on a bound.)
 *
 *  a, b, y and gradients have the same dtype: f32, f64, f16 or bf16. y may be a, or b; da may be
 *  dy, or db may, where they have the shape of y. */
#ifndef RETROGRADE_ARITHMETIC_H
#define RETROGRADE_ARITHMETIC_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rg_arithmetic_kind {
    RG_ARITHMETIC_ADD,
    RG_ARITHMETIC_SUBTRACT,
    RG_ARITHMETIC_MULTIPLY,
    RG_ARITHMETIC_DIVIDE,
    RG_ARITHMETIC_COMPARE,
    RG_ARITHMETIC_MAXIMUM,
    RG_ARITHMETIC_MINIMUM,
    RG_ARITHMETIC_MASK /**< what is masked may be NaN */
} rg_arithmetic_kind;

/** The comparison; a and b are equal if a = b or |a - b| <= threshold. All but
 *  RG_COMPARE_NOT_EQUAL answer 0 where either is NaN. */
typedef enum rg_compare {
    RG_COMPARE_EQUAL,
    RG_COMPARE_NOT_EQUAL,
    RG_COMPARE_LESS,
    RG_COMPARE_LESS_OR_EQUAL,
    RG_COMPARE_GREATER,
    RG_COMPARE_GREATER_OR_EQUAL
} rg_compare;

/** Descriptor of the operation. Initialize with rg_arithmetic_desc_default(). Compare
 *  uses `comparison` and `threshold` alone, the others all but these. */
typedef struct rg_arithmetic_desc {
    uint32_t size;           /**< of this struct; set by rg_arithmetic_desc_default() */
    rg_arithmetic_kind kind; /**< default RG_ARITHMETIC_ADD */
    double primary_scale;    /**< factor of a (default 1) */
    double secondary_scale;  /**< factor of b (default 1) */
    double bias;             /**< added (default 0) */
    double minimum;          /**< lower bound of y (default -infinity: none) */
    double maximum;          /**< upper bound of y, not below `minimum` (default infinity: none) */
    rg_compare comparison;   /**< default RG_COMPARE_EQUAL */
    double threshold;        /**< of equal and not equal; at least 0 (default 0) */
} rg_arithmetic_desc;
RG_API rg_arithmetic_desc rg_arithmetic_desc_default(void);

/** Creates an arithmetic kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      a, b (shapes that fit together)  ->  y (both broadcast)
 *
 *  The gradient of multiply, divide, maximum, minimum and mask reads a and b; that of add and
 *  subtract reads them where there is a bound, and otherwise nothing but dy. Its state contains no
 *  tensors.
 */
RG_API rg_status rg_arithmetic_create(rg_device *device, const rg_arithmetic_desc *desc,
                                      rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
