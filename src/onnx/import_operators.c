/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The operators that are imported: their attributes, inputs, and who converts and folds them. */
#include "onnx/import.h"

#include <string.h>

enum { ANY = 1 << 20 };

#define WINDOW "kernel_shape strides pads dilations auto_pad "
#define TABLE(t)                                \
    {                                           \
        t, NULL, 0, ANY, rg_convert_table, NULL \
    } /* the table checks attributes */

static const rg_importer operators[] = {
    /* one op each */
    TABLE("Conv"),
    TABLE("ConvTranspose"),
    TABLE("MaxPool"),
    TABLE("AveragePool"),
    { "LpPool", NULL, 1, 1, rg_convert_lp_pool, NULL },
    { "GlobalLpPool", "p", 1, 1, rg_convert_global_lp_pool, NULL },
    TABLE("GlobalAveragePool"),
    TABLE("GlobalMaxPool"),
    TABLE("InstanceNormalization"),
    TABLE("LayerNormalization"),
    TABLE("LRN"),
    TABLE("Relu"),
    TABLE("LeakyRelu"),
    TABLE("Sigmoid"),
    TABLE("HardSigmoid"),
    TABLE("Tanh"),
    TABLE("Abs"),
    TABLE("Softplus"),
    TABLE("Softsign"),
    TABLE("Elu"),
    TABLE("Exp"),
    TABLE("Log"),
    TABLE("Gelu"),
    { "SoftmaxCrossEntropyLoss", "reduction ignore_index", 2, 3, rg_convert_loss, NULL },
    { "NegativeLogLikelihoodLoss", "reduction ignore_index", 2, 3, rg_convert_loss, NULL },

    { "BatchNormalization", "epsilon momentum training_mode spatial", 5, 5, rg_convert_batch_norm,
      NULL },
    { "GroupNormalization", NULL, 3, 3, rg_convert_group_norm, NULL },
    { "Resize", NULL, 1, 4, rg_convert_resize, NULL },
    { "Dropout", "ratio seed", 1, 3, rg_convert_dropout, NULL },
    /* elements */
    { "Add", "", 2, 2, rg_convert_binary, rg_fold_binary },
    { "Sub", "", 2, 2, rg_convert_binary, rg_fold_binary },
    { "Mul", "", 2, 2, rg_convert_binary, rg_fold_binary },
    { "Div", "", 2, 2, rg_convert_binary, rg_fold_binary },
    { "Mod", "fmod", 2, 2, NULL, rg_fold_binary },
    { "Min", "", 1, ANY, rg_convert_sum, rg_fold_extreme },
    { "Max", "", 1, ANY, rg_convert_sum, rg_fold_extreme },
    { "Equal", "", 2, 2, rg_convert_compare, rg_fold_binary },
    { "Less", "", 2, 2, rg_convert_compare, rg_fold_binary },
    { "LessOrEqual", "", 2, 2, rg_convert_compare, rg_fold_binary },
    { "GreaterOrEqual", "", 2, 2, rg_convert_compare, rg_fold_binary },
    { "Greater", "", 2, 2, rg_convert_compare, rg_fold_binary },
    { "And", "", 2, 2, rg_convert_logic, rg_fold_binary },
    { "Or", "", 2, 2, rg_convert_logic, rg_fold_binary },
    { "Not", "", 1, 1, rg_convert_logic, rg_fold_unary },
    { "Sign", "", 1, 1, rg_convert_sign, NULL },
    { "Floor", "", 1, 1, NULL, rg_fold_unary },
    { "Ceil", "", 1, 1, NULL, rg_fold_unary },
    { "Where", "", 3, 3, rg_convert_where, rg_fold_where },
    { "Expand", "", 2, 2, rg_convert_expand, rg_fold_expand },
    { "Sum", "", 1, ANY, rg_convert_sum, NULL },
    { "Mean", "", 1, ANY, rg_convert_sum, NULL },
    { "Pow", "", 2, 2, rg_convert_pow, rg_fold_binary },
    { "Neg", "", 1, 1, rg_convert_unary, rg_fold_unary },
    { "Sqrt", "", 1, 1, rg_convert_unary, rg_fold_unary },
    { "Reciprocal", "", 1, 1, rg_convert_unary, NULL },
    { "Clip", "min max", 1, 3, rg_convert_clip, rg_fold_clip },
    { "HardSwish", "", 1, 1, rg_convert_hard_swish, NULL },
    { "Mish", "", 1, 1, rg_convert_mish, NULL },
    { "Swish", "alpha", 1, 1, rg_convert_swish, NULL },
    { "PRelu", "", 2, 2, rg_convert_prelu, NULL },
    { "Selu", "alpha gamma", 1, 1, rg_convert_selu, NULL },
    { "Celu", "alpha", 1, 1, rg_convert_celu, NULL },
    { "ThresholdedRelu", "alpha", 1, 1, rg_convert_threshold, NULL },
    { "Erf", "", 1, 1, rg_convert_erf, NULL },
    /* products */
    { "Gemm", "alpha beta transA transB", 2, 3, rg_convert_gemm, NULL },
    { "MatMul", "", 2, 2, rg_convert_matmul, NULL },
    /* shapes */
    { "Identity", "", 1, 1, rg_convert_identity, NULL },
    { "Constant", "value value_float value_floats value_int value_ints", 0, 0, rg_convert_constant,
      NULL },
    { "ConstantOfShape", "value", 1, 1, NULL, rg_fold_constant_of_shape },
    { "Cast", "to saturate round_mode", 1, 1, rg_convert_cast, rg_fold_cast },
    { "CastLike", "saturate round_mode", 2, 2, rg_convert_cast, NULL },
    { "Shape", "start end", 1, 1, rg_convert_shape, NULL },
    { "Size", "", 1, 1, rg_convert_shape, NULL },
    { "Gather", "axis", 2, 2, rg_convert_gather, rg_fold_gather },
    { "GatherND", "batch_dims", 2, 2, rg_convert_gather_nd, NULL },
    { "ScatterND", "reduction", 3, 3, rg_convert_scatter, rg_fold_scatter },
    { "NonZero", "", 1, 1, NULL, rg_fold_non_zero },
    { "Trilu", "upper", 1, 2, NULL, rg_fold_trilu },
    { "Range", "", 3, 3, NULL, rg_fold_range },
    { "Reshape", "allowzero", 2, 2, rg_convert_reshape, rg_fold_reshape },
    { "Flatten", "axis", 1, 1, rg_convert_flatten, rg_fold_flatten },
    { "Squeeze", "axes", 1, 2, rg_convert_squeeze, rg_fold_squeeze },
    { "Unsqueeze", "axes", 1, 2, rg_convert_unsqueeze, rg_fold_unsqueeze },
    { "Transpose", "perm", 1, 1, rg_convert_transpose, rg_fold_transpose },
    { "Concat", "axis", 1, ANY, rg_convert_concat, rg_fold_concat },
    { "Slice", "starts ends axes", 1, 5, rg_convert_slice, rg_fold_slice },
    { "Split", "axis split num_outputs", 1, 2, rg_convert_split, NULL },
    { "Tile", "", 2, 2, rg_convert_tile, NULL },
    { "DepthToSpace", "blocksize mode", 1, 1, rg_convert_depth_to_space, NULL },
    { "SpaceToDepth", "blocksize mode", 1, 1, rg_convert_depth_to_space, NULL },
    { "Pad", NULL, 1, 4, rg_convert_pad, NULL },
    { "Upsample", "mode scales", 1, 2, rg_convert_upsample, NULL },
    /* along an axis */
    { "Softmax", "axis", 1, 1, rg_convert_softmax, NULL },
    { "LogSoftmax", "axis", 1, 1, rg_convert_softmax, NULL },
    { "ReduceSum", "axes keepdims noop_with_empty_axes", 1, 2, rg_convert_reduce, rg_fold_reduce },
    { "ReduceProd", "axes keepdims noop_with_empty_axes", 1, 2, rg_convert_product,
      rg_fold_reduce },
    { "ReduceMean", "axes keepdims noop_with_empty_axes", 1, 2, rg_convert_reduce, NULL },
    { "ReduceMin", "axes keepdims noop_with_empty_axes", 1, 2, rg_convert_reduce, NULL },
    { "ReduceMax", "axes keepdims noop_with_empty_axes", 1, 2, rg_convert_reduce, NULL },
    { "ReduceL1", "axes keepdims noop_with_empty_axes", 1, 2, rg_convert_reduce, NULL },
    { "ReduceL2", "axes keepdims noop_with_empty_axes", 1, 2, rg_convert_reduce, NULL },
    { "ReduceSumSquare", "axes keepdims noop_with_empty_axes", 1, 2, rg_convert_reduce, NULL },
    { "ReduceLogSum", "axes keepdims noop_with_empty_axes", 1, 2, rg_convert_reduce, NULL },
    { "ReduceLogSumExp", "axes keepdims noop_with_empty_axes", 1, 2, rg_convert_log_sum_exp, NULL },
    { "ArgMin", "axis keepdims select_last_index", 1, 1, rg_convert_reduce, NULL },
    { "ArgMax", "axis keepdims select_last_index", 1, 1, rg_convert_reduce, NULL },
};

const rg_importer *rg_importer_find(const rg_proto_node *node)
{
    if (node->domain[0] != 0 && strcmp(node->domain, "ai.onnx") != 0)
        return NULL;
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (strcmp(operators[i].type, node->type) == 0)
            return &operators[i];
    }
    return NULL;
}
