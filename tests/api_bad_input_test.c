/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What broke other systems, op by op: fields out of range, axes out of range or twice, parameters
 * of the wrong length, sizes that overflow. Each gets a status and the right sentence. */
#include "text_call.h"

/* ---- what the tables below refuse ---- */

/* By the descriptor alone. */
static const line bad_fields[] = {
    { "softmax", "axis=99999999999999999999", "", "axis" },
    { "softmax", "kind=cubic", "", "cubic" },
    { "pool", "window=3", "", "window needs 2 values, not 1" },
    { "pool", "window=1,2,3", "", "window has too many values; at most 2 are allowed" },
    { "pool", "window=0,2", "", "window is 0" },
    { "pool", "window=-1,-1", "", "window is -1" },
    { "pool", "stride=2", "", "stride needs 2 values" },
    { "pool", "stride=2,0", "", "stride is 0" },
    { "pool", "dilation=0,1", "", "dilation is 0" },
    { "pool", "padding.top=1,2", "", "top must be a whole number, not '1,2'" },
    { "pool", "zero_pad=1", "", "zero_pad needs 2 values, not 1" },
    { "pool", "output=-1,2", "", "output is -1" },
    { "pool", "kind=median", "", "median" },
    { "conv_transpose", "stride=0,2", "", "stride is 0" },
    { "conv_transpose", "dilation=0,1", "", "dilation is 0" },
    { "conv_transpose", "groups=-3", "", "groups is -3" },
    { "conv_transpose", "kernel_offset=1,0", "", "by_offset" },
    { "conv_transpose", "layout=hwio", "", "hwio" },
    { "conv", "groups=-1", "", "groups is -1" },
    { "conv", "groups=4294967297", "", "groups" },
    { "conv", "stride=0,1", "", "stride is 0" },
    { "conv", "stride=1,-1", "", "stride is -1" },
    { "conv", "stride=2", "", "stride needs 2 values" },
    { "conv", "dilation=1,0", "", "dilation is 0" },
    { "conv", "dilation=-2147483648,1", "", "dilation is -2147483648" },
    { "conv", "output=-1,2", "", "output is -1" },
    { "conv", "padding.policy=reflect", "", "reflect" },
    { "conv", "neuron.kind=relu neuron.from_y=true", "", "from_y" },
    { "conv", "neuron.kind=logarithm neuron.c=1", "", "base" },
    { "concat", "sources=0", "", "sources is 0" },
    { "concat", "sources=-1", "", "sources is -1" },
    { "concat", "sources=9", "", "sources is 9" },
    { "concat", "multiple=0", "", "multiple is 0" },
    { "concat", "multiple=-4", "", "multiple is -4" },
    { "slice", "step=0", "", "step is 0" },
    { "slice", "step=1,-1", "", "step is -1" },
    { "slice", "length=-2", "", "length is -2" },
    { "slice", "length=9223372036854775807", "", "length" },
    { "slice", "start=1,2,3,4,5,6,7,8,9", "", "start" },
    { "reshape", "dims=-1,-1", "", "-1 2 times" },
    { "reshape", "dims=-2", "", "dims is -2" },
    { "reshape", "dims=9223372036854775807", "", "dims" },
    { "reduce", "dims=0,1,2,3,4,5,6,7,8", "", "dims" },
    { "reduce", "kind=max weight=2", "", "weight is 2" },
    { "reduce", "kind=arg_min weight=nan", "", "weight" },
    { "dropout", "keep=0", "", "dropout: keep must be greater than 0, not 0" },
    { "dropout", "keep=-0.5", "", "keep is -0.5" },
    { "dropout", "keep=1.0000001", "", "keep" },
    { "dropout", "keep=nan", "", "keep" },
    { "dropout", "broadcast=0,1,2,3,4,5,6,7,8", "", "broadcast" },
    { "arithmetic", "minimum=1 maximum=0", "",
      "arithmetic: minimum is 1, greater than maximum, 0" },
    { "arithmetic", "minimum=nan", "", "minimum" },
    { "arithmetic", "maximum=nan", "", "maximum" },
    { "arithmetic", "kind=compare threshold=-1", "", "threshold is -1" },
    { "arithmetic", "kind=compare threshold=nan", "", "threshold" },
    { "upsample", "scale=0,2", "", "scale of rows is 0" },
    { "upsample", "scale=2,-1", "", "scale of columns is -1" },
    { "upsample", "scale=nan,2", "", "scale" },
    { "upsample", "scale=inf,2", "", "scale" },
    { "upsample", "output=-1,4", "", "output is -1" },
    { "upsample", "output=4294967296,4", "", "output" },
    { "pad", "before=0,9223372036854775807,0,0", "", "before" },
    { "pad", "after=0,0,-9223372036854775808,0", "", "after" },
    { "pad", "mode=mirror fill=true", "", "fill" },
    { "pad", "before=1,1,1", "", "before" },
    { "neuron", "kind=logarithm c=0", "", "c = 0" },
    { "neuron", "kind=logarithm c=1", "", "c = 1" },
    { "neuron", "kind=exponential c=-2", "", "c = -2" },
    { "neuron", "kind=tanh a=nan", "", "a must be a number, not 'nan'" },
    { "neuron", "kind=tanh b=inf", "", "b is inf" },
    { "neuron", "kind=gelu from_y=true", "", "from_y" },
    { "neuron", "kind=relu a=-1 from_y=true", "",
      "neuron: the slope of relu with a = -1 does not follow from y; a must be at least 0" },
    { "lrn", "window=0", "", "window is 0" },
    { "lrn", "window=-5", "", "window is -5" },
    { "lrn", "window=4294967297", "", "window" },
    { "lrn", "alpha=-1", "", "alpha is -1" },
    { "lrn", "beta=inf", "", "beta" },
    { "lrn", "delta=-0.5", "", "delta is -0.5" },
    { "lrn", "delta=nan", "", "delta" },
    { "spatial_norm", "window=0,3", "", "window is 0" },
    { "spatial_norm", "window=3,-1", "", "window is -1" },
    { "spatial_norm", "delta=nan", "", "delta" },
    { "local_contrast", "window=3,0", "", "window is 0" },
    { "local_contrast", "alpha=-1", "", "alpha is -1" },
    { "local_contrast", "p0=nan", "", "p0" },
    { "local_contrast", "ps=inf", "", "ps" },
    { "batch_norm", "epsilon=-0.5", "", "epsilon is -0.5" },
    { "batch_norm", "epsilon=nan", "", "epsilon" },
    { "batch_norm", "epsilon=inf", "", "epsilon" },
    { "batch_norm", "momentum=-0.1", "", "momentum is -0.1" },
    { "batch_norm", "momentum=1.5", "", "momentum is 1.5" },
    { "batch_norm", "phase=statistics statistics=given", "", "phase statistics" },
    { "batch_norm", "phase=normalize statistics=running", "", "phase normalize" },
    { "batch_norm", "neuron.kind=relu neuron.from_y=true", "", "neuron.from_y" },
    { "batch_norm", "neuron.kind=logarithm neuron.c=1", "", "c = 1" },
    { "dense", "alpha=inf", "", "alpha" },
    { "dense", "alpha=nan", "", "alpha" },
    { "dense", "layout=2", "", "layout" },
    { "dense", "neuron.kind=tanh neuron.from_y=true", "", "neuron.from_y" },
    { "dense", "neuron.kind=exponential neuron.c=-2", "", "c = -2" },
    { "gram", "alpha=-inf", "", "alpha" },
    { "gram", "alpha=nan", "", "alpha" },
    { "loss", "kind=cubic", "", "cubic" },
    { "loss", "weight=nan", "", "weight" },
    { "loss", "weight=inf", "", "weight" },
    { "loss", "delta=0", "", "loss: delta must be greater than 0, not 0" },
    { "loss", "delta=-1", "", "delta is -1" },
    { "loss", "epsilon=-1e-7", "", "epsilon is -" },
    { "loss", "label_smoothing=1.5", "", "label_smoothing is 1.5" },
    { "loss", "label_smoothing=-0.1", "", "label_smoothing is -0.1" },
    { "loss", "kind=huber label_smoothing=0.1", "", "label_smoothing is 0.1" },
    { "loss", "classes=-1", "", "classes is -1" },
    { "loss", "kind=hinge labels=classes", "", "loss: hinge does not support class labels" },
    { "loss", "ignored=3", "", "ignored is 3" },
    { "loss", "kind=cosine_distance reduction=mean", "", "reduction is mean" },
    { "loss", "kind=initial_gradient gradient_output=true", "", "gradient_output" },
    { "group_norm", "groups=-1", "", "groups is -1" },
    { "group_norm", "groups=9223372036854775807", "", "groups" },
    { "group_norm", "axis=99999999999999999999", "", "axis" },
    { "group_norm", "epsilon=-1", "", "epsilon is -1" },
    { "group_norm", "neuron.kind=tanh neuron.from_y=true", "", "neuron.from_y" },
    { "sgd", "momentum=1.5", "", "momentum is 1.5" },
    { "sgd", "momentum=-0.1", "", "momentum is -0.1" },
    { "sgd", "nesterov=true", "", "nesterov is true, but momentum is 0" },
    { "sgd", "form=adam", "", "adam" },
    { "sgd", "gradient.clip_minimum=2 gradient.clip_maximum=1", "",
      "gradient.clip_minimum is 2, greater than gradient.clip_maximum, 1" },
    { "sgd", "gradient.clip_minimum=nan", "", "clip_minimum" },
    { "sgd", "gradient.regularization=l3", "", "l3" },
    { "sgd", "gradient.regularization_scale=0.1", "", "gradient.regularization is none" },
    { "sgd", "copy=f32", "", "f32" },
    { "rmsprop", "decay=1.1", "", "decay is 1.1" },
    { "rmsprop", "epsilon=-1e-8", "", "epsilon is -1e-08" },
    { "rmsprop", "epsilon=inf", "", "epsilon" },
    { "adam", "beta1=1", "", "adam: beta1 must be less than 1, not 1" },
    { "adam", "beta2=1", "", "adam: beta2 must be less than 1, not 1" },
    { "adam", "beta1=-0.5", "", "beta1 is -0.5" },
    { "adam", "epsilon=nan", "", "epsilon" },
    { "grad_scale", "max_norm=-1", "", "max_norm is -1" },
    { "grad_scale", "interval=0", "", "grad_scale: interval must be at least 1, not 0" },
    { "grad_scale", "growth=0.5", "", "growth is 0.5" },
    { "grad_scale", "backoff=2", "", "backoff is 2" },
    { "grad_scale", "scaling=often", "", "often" },
};

/* By the shapes of the inputs. */
static const line bad_shapes[] = {
    /* an axis out of range: below -rank, the largest numbers, numbers that 32 bits would wrap */
    { "softmax", "axis=2", "3,4", "axis is 2; it must be between -2 and 1" },
    { "softmax", "axis=-3", "3,4", "axis is -3" },
    { "softmax", "axis=2147483647", "3,4",
      "softmax: axis is 2147483647; it must be between -2 and 1" },
    { "softmax", "axis=4294967296", "3,4",
      "softmax: axis is 4294967296; it must be between -2 and 1" },
    { "softmax", "axis=-9223372036854775808 flatten=true", "3,4",
      "softmax: axis is -9223372036854775808; it must be between -2 and 1" },
    { "softmax", "", "-", "rank 0" },
    { "concat", "axis=2", "3,4 3,4", "axis is 2; it must be between -2 and 1" },
    { "concat", "axis=-3", "3,4 3,4", "axis is -3" },
    { "concat", "axis=9223372036854775807", "3,4 3,4",
      "concat: axis is 9223372036854775807; it must be between -2 and 1" },
    { "concat", "axis=4294967297", "3,4 3,4",
      "concat: axis is 4294967297; it must be between -2 and 1" },
    { "reduce", "dims=2", "3,4", "dims has dimension 2" },
    { "reduce", "dims=-3", "3,4", "dims has dimension -3" },
    { "reduce", "dims=2147483647", "3,4", "dims has dimension 2147483647" },
    { "reduce", "dims=4294967296", "3,4", "dims has dimension 4294967296" },
    { "reduce", "dims=-9223372036854775808", "3,4", "dims has dimension -9223372036854775808" },
    { "reduce", "dims=0", "-", "dims has dimension 0" },
    { "dropout", "broadcast=2", "3,4", "broadcast has dimension 2" },
    { "dropout", "broadcast=-9223372036854775808", "3,4", "broadcast has dimension" },
    { "dropout", "broadcast=0", "-", "broadcast has dimension 0" },
    { "group_norm", "axis=3", "2,3,4 4 4", "group_norm: axis is 3, but x has rank 3" },
    { "group_norm", "axis=-4", "2,3,4 4 4", "axis is -4" },
    { "group_norm", "axis=2147483647", "2,3,4 4 4", "axis is 2147483647" },
    { "group_norm", "axis=2147483648", "2,3,4 4 4", "axis is 2147483648" },
    { "group_norm", "axis=-2147483648", "2,3,4 4 4", "axis is -2147483648" },
    { "group_norm", "", "4 4 4", "group_norm: axis is 1, but x has rank 1" },
    /* one twice, also by another name */
    { "reduce", "dims=1,1", "3,4", "dims has dimension 1 twice" },
    { "reduce", "dims=1,-1", "3,4", "dims has dimension -1 twice" },
    { "dropout", "broadcast=0,-2", "3,4", "broadcast has dimension -2 twice" },
    /* nothing to choose from */
    { "reduce", "kind=max", "3,0", "reduce: max is not defined for no elements; x is f32[3, 0]" },
    { "reduce", "kind=arg_min dims=0", "0,4",
      "reduce: arg_min is not defined for no elements; x is f32[0, 4]" },
    { "upsample", "output=4,4", "1,0,3,2", "upsample: output has 4 rows, but x has none" },
    { "pad", "mode=clamp after=0,1,0,0", "1,0,3,2", "no rows" },
    { "pad", "mode=mirror before=0,0,1,0", "1,3,0,2", "no columns" },
    { "pad", "mode=mirror_edge repeat=true before=0,0,0,1", "1,3,3,0", "no channels" },
    { "reshape", "dims=-1,0", "4,0",
      "reshape: dimension 0 is -1 and another is 0, so it cannot be computed" },
    /* parameters with another length than there are channels */
    { "neuron", "kind=prelu", "3,4 3", "slope" },
    { "neuron", "kind=prelu", "3,4 5", "slope" },
    { "neuron", "kind=prelu", "3,4 0", "slope" },
    { "neuron", "kind=prelu", "3,4 4,1", "slope" },
    { "neuron", "kind=prelu", "3,4 -", "slope" },
    { "neuron", "kind=prelu", "- 1", "no channels" },
    { "pad", "mode=constant fill=true", "2,3,4,5 4",
      "pad: fill is f32[4], but must be f32[5]: one element per channel of y" },
    { "pad", "mode=constant fill=true after=0,0,0,1", "2,3,4,5 5",
      "pad: fill is f32[5], but must be f32[6]: one element per channel of y" },
    { "pad", "mode=constant fill=true", "2,3,4,5 -", "fill" },
    { "pad", "mode=constant fill=true", "2,3,4,5 f64:5", "fill" },
    { "dropout", "step_input=true", "3,4 i64:1", "step" },
    { "loss", "", "3,4 3,5", "labels is f32[3, 5]" },
    { "loss", "", "3,4 f16:3,4", "labels is f16" },
    { "loss", "", "3,4 i32:3", "labels is i32" },
    { "loss", "", "i32:3,4 i32:3,4", "y is i32" },
    { "loss", "", "- -", "rank 0" },
    { "loss", "labels=classes", "3,4 i32:3,4", "labels is i32[3, 4]" },
    { "loss", "labels=classes", "3,4 i32:4", "labels is i32[4]" },
    { "loss", "labels=classes", "3,4 3", "labels is f32[3]" },
    { "loss", "labels=classes", "3,4 u8:3", "labels is u8[3]" },
    { "loss", "labels=classes", "- i32:-", "rank 0" },
    { "loss", "labels=classes", "3,0 i32:3", "last dimension of y is 0" },
    { "loss", "labels=classes across_batch=false", "4 i32:-", "across_batch" },
    { "loss", "kind=huber across_batch=false", "- -", "across_batch" },
    { "loss", "across_batch=false", "4 4", "across_batch" },
    { "loss", "weights=true", "3,4 3,4 3", "weights is f32[3]" },
    { "loss", "labels=classes weights=true", "3,4 i32:3 3,4", "weights is f32[3, 4]" },
    { "loss", "labels=classes weights=true", "3,4 i32:3 f64:3", "weights is f64[3]" },
    { "dropout", "step_input=true", "3,4 i32:-", "step" },
    { "dropout", "step_input=true", "3,4 -", "step" },
    { "dense", "", "3,4 5,3 5", "dimension 1 of x is 4, dimension 1 of w is 3" },
    { "dense", "layout=in_out", "3,4 5,4 4", "dimension 1 of x is 4, dimension 0 of w is 5" },
    { "dense", "", "2,3,4,5 7,3,4,6 7", "dimension 3 of x is 5, dimension 3 of w is 6" },
    { "dense", "", "2,3,4,5 7,4,3,5 7", "dimension 1 of x is 3, dimension 1 of w is 4" },
    { "dense", "", "3,4 5 5", "w is f32[5]" },
    { "dense", "", "3,4 - 5", "w is f32[]" },
    { "dense", "", "- 5,4 5",
      "dense: x is f32[] but w is f32[5, 4], which has 1 dimensions of inputs" },
    { "dense", "", "4 5,3,4 5", "which has 2 dimensions of inputs" },
    { "dense", "", "3,4 5,4 4",
      "dense: b is f32[4] but w is f32[5, 4]; b must have one element for each of 5 outputs" },
    { "dense", "", "3,4 5,4 5,1", "b is f32[5, 1]" },
    { "dense", "", "3,4 5,4 -", "b is f32[]" },
    { "dense", "", "3,4 f64:5,4 5", "must have the same dtype" },
    { "dense", "", "f16:3,4 f16:5,4 5", "must have the same dtype" },
    { "dense", "", "i32:3,4 i32:5,4 i32:5", "f32, f64, f16 and bf16" },
    { "gram", "", "3,4", "x is f32[3, 4]" },
    { "gram", "", "-", "x is f32[]" },
    { "gram", "", "i64:2,3,4", "f32, f64, f16 and bf16" },
    { "batch_norm", "", "3,4 3 4",
      "gamma is f32[3] but x is f32[3, 4]; it must have one element per channel, the last "
      "dimension of x" },
    { "batch_norm", "", "3,4 5 4", "gamma is f32[5]" },
    { "batch_norm", "", "3,4 4 0", "beta is f32[0]" },
    { "batch_norm", "", "3,4 4 4,1", "beta is f32[4, 1]" },
    { "batch_norm", "", "3,4 - 4", "gamma" },
    { "batch_norm", "gamma=false", "3,4 3", "beta is f32[3]" },
    { "batch_norm", "statistics=given", "3,4 4 4 3 4", "mean is f32[3]" },
    { "batch_norm", "statistics=given", "3,4 4 4 4 1", "variance is f32[1]" },
    { "batch_norm", "statistics=running", "3,4 4 4 2 4", "mean is f32[2]" },
    { "batch_norm", "statistics=running gamma=false beta=false", "3,4 4 5", "variance is f32[5]" },
    { "batch_norm", "", "3,4 f64:4 f64:4", "dtype of x" },
    { "batch_norm", "", "f64:3,4 4 4", "dtype of x" },
    { "batch_norm", "", "f16:3,4 bf16:4 bf16:4", "dtype of x" },
    { "batch_norm", "", "f16:3,4 4 f16:4", "must have the same dtype" },
    { "batch_norm", "statistics=given", "f16:3,4 f16:4 f16:4 4 4", "must have the same dtype" },
    { "group_norm", "", "2,3,4 3 4", "gamma is f32[3]" },
    { "group_norm", "", "2,3,4 4 2", "beta is f32[2]" },
    { "group_norm", "beta=false", "2,3,4 -", "gamma" },
    { "group_norm", "groups=2", "2,3,4 2 2", "gamma is f32[2]" }, /* as many as groups */
    { "group_norm", "", "f16:2,3,4 4 f16:4", "must have the same dtype" },
    /* no channels, or groups that do not divide them */
    { "batch_norm", "", "3,0 0 0", "no channels" },
    { "batch_norm", "statistics=given", "0,0 0 0 0 0", "no channels" },
    { "batch_norm", "gamma=false beta=false", "-", "no channels" },
    { "group_norm", "", "3,0 0 0", "no channels" },
    { "group_norm", "groups=0", "3,0 0 0", "no channels" },
    { "group_norm", "gamma=false beta=false", "-", "no channels" },
    { "group_norm", "groups=3", "2,4 4 4", "3 groups do not divide 4 channels" },
    { "group_norm", "groups=8", "2,4 4 4", "8 groups do not divide 4 channels" },
    { "group_norm", "groups=4294967296", "2,4 4 4", "4294967296 groups do not divide 4" },
    { "lrn", "", "-", "no channels" },
    { "conv_transpose", "", "2,5,6,0 4,3,3,0 4", "no channels" },
    { "conv_transpose", "", "2,5,6,3 4,3,3,0 4",
      "every dimension must be at least 1 and less than 2^31" },
    { "conv_transpose", "groups=2", "2,5,6,3 4,3,3,1 4", "2 groups do not divide" },
    { "conv_transpose", "groups=2", "2,5,6,4 5,3,3,2 5", "2 groups do not divide" },
    { "conv_transpose", "", "2,5,6,4 3,3,3,5 3", "(out, kh, kw, in / groups)" },
    { "conv_transpose", "layout=in_out", "2,5,6,4 3,3,3,4 4", "(in, kh, kw, out / groups)" },
    { "conv_transpose", "", "2,5,6,4 3,3,3,4 4", "b is f32[4]" },
    { "conv_transpose", "layout=in_out groups=2", "2,5,6,4 4,3,3,3 3", "b is f32[3]" },
    { "conv_transpose", "", "2,0,6,4 3,3,3,4 3", "conv_transpose" },
    { "conv_transpose", "padding.top=9", "2,5,6,4 3,3,3,4 3",
      "padding: cropping 9 of 7 rows leaves an empty output" },
    { "conv", "", "2,5,6,0 4,3,3,0 4", "no channels" },
    { "conv", "groups=0", "2,5,6,0 0,3,3,1 0", "no channels" },
    { "conv", "", "2,5,6,3 4,3,3,0 4", "every dimension must be at least 1 and less than 2^31" },
    { "conv", "", "2,5,6,3 0,3,3,3 0", "every dimension must be at least 1 and less than 2^31" },
    { "conv", "", "2,5,6,3 4,0,3,3 4", "every dimension must be at least 1 and less than 2^31" },
    { "conv", "groups=3", "2,5,6,4 6,3,3,1 6", "3 groups do not divide" },
    { "conv", "groups=2", "2,5,6,4 5,3,3,2 5", "2 groups do not divide" },
    { "conv", "groups=2147483647", "2,5,6,4 5,3,3,1 5", "groups do not divide" },
    { "conv", "groups=0", "2,5,6,4 6,3,3,1 6", "4 groups do not divide" },
    { "conv", "groups=0", "2,5,6,4 4,3,3,4 4", "w is f32[4, 3, 3, 4]" },
    { "conv", "", "2,5,6,4 5,3,3,5 5",
      "conv: w is f32[5, 3, 3, 5] but x is f32[2, 5, 6, 4] with 1 groups; w must be (out, kh, kw, "
      "in / groups)" },
    { "conv", "", "2,5,6,4 5,3,3 5", "w has rank 3" },
    { "conv", "", "2,5,6,4 5,3,3,2,2 5", "w has rank 5" },
    { "conv", "", "5,6 5,3,3,6 5", "x has rank 2" },
    { "conv", "", "1,2,5,6,4 5,3,3,4 5", "x has rank 5" },
    { "conv", "", "2,5,6,4 5,3,3,4 4", "b is f32[4]" },
    { "conv", "", "2,5,6,4 5,3,3,4 5,1", "b is f32[5, 1]" },
    { "conv", "", "2,5,6,4 f64:5,3,3,4 5", "must have the same dtype" },
    { "conv", "", "2,5,6,4 5,3,3,4 f16:5", "must have the same dtype" },
    { "conv", "", "i32:2,5,6,4 i32:5,3,3,4 i32:5", "i32" },
    { "conv", "", "2,0,6,4 5,3,3,4 5", "conv" },
    { "conv", "padding.top=3", "2,0,6,4 5,3,3,4 5", "0 rows" },
    { "conv", "", "2,5,6,4 5,6,3,4 5", "does not fit" },
    { "conv", "padding.left=-7", "2,5,6,4 5,1,1,4 5", "does not fit" },
    { "conv", "dilation=3,1", "2,5,6,4 5,3,3,4 5", "does not fit" },
    { "spatial_norm", "", "3,3", "rank 2" },
    { "spatial_norm", "", "1,1,3,3,1", "rank 5" },
    { "local_contrast", "", "3", "rank 1" },
    { "local_contrast", "", "i32:3,3,1", "i32" },
    /* optimizers: moments of another shape, numbers that are not of rank 0, dtypes */
    { "sgd", "", "3,4 3,5 -", "gradient is f32[3, 5] but parameter is f32[3, 4]" },
    { "sgd", "", "3,4 4,3 -", "gradient is f32[4, 3]" },
    { "sgd", "", "3,4 3,4 1", "rate is f32[1]; it must be of rank 0 and f32 or f64" },
    { "sgd", "", "3,4 3,4 i64:-", "rate is i64" },
    { "sgd", "", "3,4 3,4 f16:-", "rate is f16" },
    { "sgd", "", "f16:3,4 f16:3,4 -",
      "parameter is f16; it must be f32 or f64, with f16 or bf16 for its copy" },
    { "sgd", "", "3,4 f64:3,4 -",
      "gradient is f64[3, 4] but parameter is f32[3, 4]; it must have the dtype of parameter, or "
      "f16 or bf16 if parameter is f32" },
    { "sgd", "", "f64:3,4 f16:3,4 -", "gradient is f16[3, 4]" },
    { "sgd", "copy=f16", "f64:3,4 f64:3,4 -", "parameter is f64; a copy in 16 bits requires f32" },
    { "sgd", "momentum=0.9", "3,4 3,4 12 -", "momentum is f32[12]" },
    { "sgd", "momentum=0.9", "3,4 f16:3,4 f16:3,4 -", "momentum is f16[3, 4]" },
    { "sgd", "scaled=true", "3,4 3,4 - 1", "scale is f32[1]" },
    { "rmsprop", "centered=true", "3,4 3,4 3,4 3 -", "mean is f32[3]" },
    { "rmsprop", "", "i32:3 i32:3 i32:3 -", "parameter is i32" },
    { "adam", "", "3,4 3,4 3,4 0,4 - i64:-", "velocity is f32[0, 4]" },
    { "adam", "", "3,4 3,4 3,4 3,4 - -", "step is f32[]; it must be of rank 0 and i64" },
    { "adam", "", "3,4 3,4 3,4 3,4 - i64:1", "step is i64[1]" },
    { "adam", "amsgrad=true", "3,4 3,4 3,4 3,4 3,4,1 - i64:-", "maximum is f32[3, 4, 1]" },
    { "grad_norm", "", "i32:3,4", "gradient is i32" },
    { "grad_scale", "", "f16:3", "squares is f16" },
    { "grad_scale", "scaling=static", "3 f64:-",
      "grad_scale: scale is f64[]; it must be of rank 0 and f32" },
    { "grad_scale", "scaling=dynamic", "3 - i32:-", "good is i32[]" },
    { "grad_scale", "stepped=true", "3 -", "step is f32[]" },
    /* operands that do not fit together */
    { "arithmetic", "", "3,4 3,5",
      "arithmetic: a f32[3, 4] and b f32[3, 5] cannot be broadcast: 4 and 5 differ and neither is "
      "1" },
    { "arithmetic", "", "3,4 3",
      "arithmetic: a f32[3, 4] and b f32[3] cannot be broadcast: 4 and 3 differ and neither is 1" },
    { "arithmetic", "", "0 2",
      "arithmetic: a f32[0] and b f32[2] cannot be broadcast: 0 and 2 differ and neither is 1" },
    { "arithmetic", "", "3 f64:3", "must have the same dtype" },
    { "arithmetic", "", "i32:3 i32:3", "i32" },
    { "concat", "axis=1", "3,4 2,4", "x0 is f32[3, 4] and x1 is f32[2, 4]" },
    { "concat", "axis=0", "3,4 3,4,1", "x1 is f32[3, 4, 1]" },
    { "concat", "axis=0", "3,4 f16:3,4", "x1 is f16[3, 4]" },
    /* parts outside of the whole */
    { "slice", "start=4", "3", "slice: start 4 is out of range for dimension 0 of length 3" },
    { "slice", "start=-4", "3", "slice: start -4 is out of range for dimension 0 of length 3" },
    { "slice", "start=-9223372036854775808", "3", "is out of range for dimension" },
    { "slice", "start=2 length=2", "3", "exceed dimension" },
    { "slice", "length=4611686018427387904 step=4611686018427387904", "3", "exceed dimension" },
    { "slice", "start=0,0", "3", "start has 2 values" },
    { "reshape", "dims=5", "2,3", "which has a different number of elements than" },
    { "reshape", "dims=4,-1", "2,3", "which has a different number of elements than" },
    { "reshape", "dims=2,0,3 zero_keeps=true", "6",
      "reshape: a 0 copies dimension 1, but x has rank 1" },
    { "pad", "before=0,-4,0,0", "1,3,3,1", "give -1" },
    { "pad", "before=0,-2,0,0 after=0,-2,0,0", "1,3,3,1", "give -1" },
    { "pad", "mode=mirror before=0,3,0,0", "1,3,3,1",
      "pad: 3 and 0 rows cannot be added around 3; mirror without repeat can add at most 2" },
    { "pad", "before=1,0,0,0", "3,3,1", "rank 3" },
    { "upsample", "scale=0.1,1", "1,3,3,1",
      "upsample: 3 rows with a scale of 0.1 give an empty output" },
    { "upsample", "", "3,3", "rank 2" },
    { "upsample", "", "1,1,3,3,1", "rank 5" },
    { "pad", "", "3", "rank 1" },
    /* products of elements or bytes beyond 64 bits, from inputs that could exist */
    { "arithmetic", "", "4294967296,1 1,4294967296", "overflows" },
    { "arithmetic", "", "f64:9007199254740992,1 f64:8", "overflows" },
    { "concat", "axis=0", "18014398509481984 18014398509481984", "overflows" },
    { "concat", "axis=1 multiple=1048576", "1099511627776,1 1099511627776,1", "overflows" },
    { "reshape", "dims=4294967296,4294967296", "0",
      "which has a different number of elements than" },
    { "reshape", "dims=4294967296,4294967296,-1", "4",
      "which has a different number of elements than" },
    { "upsample", "output=2147483647,2147483647", "1,1,1,4096", "overflows" },
    { "upsample", "scale=2147483647,1", "1,2,1,1", "more than 2147483647" },
    { "pad", "after=72057594037927936,0,0,0", "1,1,1,1", "overflows" },
    { "pad", "after=0,4294967296,4294967296,0", "1,1,1,1", "overflows" },
    { "reduce", "kind=arg_max dims=0", "f16:1,36028797018963968", "overflows" }, /* i64 from f16 */
    { "softmax", "", "4294967296,4294967296", "overflows" },
    { "softmax", "", "-5", "-5" },
    { "softmax", "", "2,-9223372036854775808", "must be at least 0" },
    { "reduce", "", "9223372036854775807,9223372036854775807,0", "overflows" },
};

static void test_bad_fields(rg_device *device)
{
    for (size_t i = 0; i < sizeof bad_fields / sizeof bad_fields[0]; i++) {
        const line *r = &bad_fields[i];
        spec recipe;
        rg_kernel *kernel = NULL;
        const rg_status status = make(r, device, &recipe, &kernel);
        const bool right = status == RG_INVALID_ARGUMENT && strstr(rg_error_text(), r->words);
        EXPECT(right && kernel == NULL);
        if (!right)
            printf("    %s %s: status %d, no '%s'\n", r->op, r->fields, (int)status, r->words);
        rg_kernel_destroy(kernel);
    }
}

/* Refused when shapes are asked for, when a state is made, and when work is recorded. */
static void test_bad_shapes(rig *r)
{
    for (size_t i = 0; i < sizeof bad_shapes / sizeof bad_shapes[0]; i++) {
        const line *bad = &bad_shapes[i];
        spec recipe;
        rg_kernel *kernel = NULL;
        EXPECT_OK(make(bad, r->device, &recipe, &kernel));
        rg_tensor_desc y[RG_MAX_OUTPUTS], before[RG_MAX_OUTPUTS];
        memset(y, 0x5a, sizeof y);
        memcpy(before, y, sizeof y);
        const rg_status status = rg_kernel_shapes(kernel, recipe.x, y);
        const bool right = status == RG_INVALID_ARGUMENT && strstr(rg_error_text(), bad->words);
        EXPECT(right);
        if (!right)
            printf("    %s %s, %s: status %d, no '%s'\n", bad->op, bad->fields, bad->shapes,
                   (int)status, bad->words);
        rg_tensor *x[RG_MAX_INPUTS] = { NULL }, *made[RG_MAX_OUTPUTS] = { NULL };
        rg_state *state = NULL;
        bool small = true; /* so that the inputs can exist */
        for (int32_t k = 0; k < recipe.inputs; k++)
            for (int32_t d = 0; d < recipe.x[k].rank; d++)
                small &= recipe.x[k].dims[d] >= 0 && recipe.x[k].dims[d] <= 4096;
        for (int32_t k = 0; k < recipe.inputs && small; k++)
            EXPECT_OK(rg_tensor_create(r->device, &recipe.x[k], &x[k]));
        if (small) {
            EXPECT(rg_state_create(kernel, x, &state) == RG_INVALID_ARGUMENT && state == NULL);
            EXPECT_FAILS(rg_kernel_forward_alloc(kernel, r->commands, 1, x, false, made, NULL),
                         RG_INVALID_ARGUMENT, bad->words);
            EXPECT(made[0] == NULL);
        }
        for (int32_t k = 0; k < recipe.inputs; k++)
            rg_tensor_destroy(x[k]);
        rg_kernel_destroy(kernel);
    }
    EXPECT_OK(rig_run(r));
}

/* ---- states ---- */

/* A state made for `made`, given to a call of `used`. Both run alone. */
static const struct {
    line made, used; /* words: those of `used` */
} bad_states[] = {
    /* of another op */
    { { "softmax", "", "3,4", "" },
      { "batch_norm", "", "3,4 4 4", "the state belongs to the op softmax" } },
    { { "batch_norm", "", "3,4 4 4", "" },
      { "group_norm", "", "3,4 4 4", "the state belongs to the op batch_norm" } },
    { { "group_norm", "", "3,4 4 4", "" },
      { "batch_norm", "", "3,4 4 4", "the state belongs to the op group_norm" } },
    { { "spatial_norm", "", "3,4,5", "" },
      { "local_contrast", "", "3,4,5", "the state belongs to the op spatial_norm" } },
    /* of other fields */
    { { "dense", "neuron.kind=gelu", "3,4 4,4 4", "" },
      { "dense", "neuron.kind=swish", "3,4 4,4 4",
        "the state was created for a kernel with a different descriptor" } },
    { { "batch_norm", "", "3,4 4 4", "" },
      { "batch_norm", "epsilon=1", "3,4 4 4",
        "the state was created for a kernel with a different descriptor" } },
    { { "batch_norm", "phase=statistics", "3,4 4 4", "" },
      { "batch_norm", "", "3,4 4 4",
        "the state was created for a kernel with a different descriptor" } },
    { { "group_norm", "groups=4", "3,4 4 4", "" },
      { "group_norm", "groups=2", "3,4 4 4",
        "the state was created for a kernel with a different descriptor" } },
    { { "group_norm", "", "3,4 4 4", "" },
      { "group_norm", "image_gradients=true", "3,4 4 4",
        "the state was created for a kernel with a different descriptor" } },
    /* of another shape or dtype */
    { { "dense", "neuron.kind=gelu", "3,4 4,4 4", "" },
      { "dense", "neuron.kind=gelu", "2,4 4,4 4", "created for x of shape f32[3, 4]" } },
    { { "batch_norm", "", "3,4 4 4", "" },
      { "batch_norm", "", "3,5 5 5", "created for x of shape f32[3, 4]" } },
    { { "batch_norm", "", "3,4 4 4", "" },
      { "batch_norm", "", "2,4 4 4", "created for x of shape f32[3, 4]" } },
    { { "batch_norm", "", "3,4 4 4", "" },
      { "batch_norm", "", "f64:3,4 f64:4 f64:4", "created for x of shape f32[3, 4]" } },
    { { "group_norm", "", "3,4 4 4", "" },
      { "group_norm", "", "9,4 4 4", "created for x of shape f32[3, 4]" } },
    { { "group_norm", "", "3,4,4 4 4", "" },
      { "group_norm", "", "3,2,4 4 4",
        "the state was created for x of shape f32[3, 4, 4], not f32[3, 2, 4]" } },
};

/* Tensors of a call: inputs and their gradients; y and dy, which are like the first input. */
typedef struct work {
    rg_kernel *kernel;
    rg_tensor *x[RG_MAX_INPUTS], *dx[RG_MAX_INPUTS], *y, *dy;
    spec recipe;
} work;

static work work_of(const line *from, rg_device *device)
{
    work w = { .kernel = NULL };
    EXPECT_OK(make(from, device, &w.recipe, &w.kernel));
    for (int32_t i = 0; i < w.recipe.inputs; i++) {
        const rg_tensor_desc *desc = &w.recipe.x[i];
        w.x[i] = filled(device, desc->dtype, desc->rank, desc->dims, 1);
        w.dx[i] = tensor_of(device, desc->dtype, desc->rank, desc->dims);
    }
    const rg_tensor_desc *desc = &w.recipe.x[0];
    w.y = tensor_of(device, desc->dtype, desc->rank, desc->dims);
    w.dy = filled(device, desc->dtype, desc->rank, desc->dims, 2);
    return w;
}

static void work_close(work *w)
{
    for (int32_t i = 0; i < w->recipe.inputs; i++) {
        rg_tensor_destroy(w->x[i]);
        rg_tensor_destroy(w->dx[i]);
    }
    rg_tensor_destroy(w->y);
    rg_tensor_destroy(w->dy);
    rg_kernel_destroy(w->kernel);
}

static void test_bad_states(rig *r)
{
    for (size_t i = 0; i < sizeof bad_states / sizeof bad_states[0]; i++) {
        const line *used = &bad_states[i].used;
        work a = work_of(&bad_states[i].made, r->device), b = work_of(used, r->device);
        rg_state *state = NULL, *own = NULL;
        EXPECT_OK(rg_state_create(a.kernel, a.x, &state));
        EXPECT_FAILS(rg_kernel_forward(b.kernel, r->commands, b.x, &b.y, state),
                     RG_INVALID_ARGUMENT, used->words);
        EXPECT_FAILS(rg_kernel_gradient(b.kernel, r->commands, &b.dy, b.x, &b.y, state, b.dx, 0),
                     RG_INVALID_ARGUMENT, used->words);
        EXPECT_OK(rg_state_create(b.kernel, b.x, &own));
        EXPECT_OK(rg_kernel_forward(b.kernel, r->commands, b.x, &b.y, own));
        EXPECT_OK(rg_kernel_gradient(b.kernel, r->commands, &b.dy, b.x, &b.y, own, b.dx, 0));
        EXPECT_OK(rig_run(r));
        rg_state_destroy(state);
        rg_state_destroy(own);
        work_close(&a);
        work_close(&b);
    }
}

static rg_status early_gradient(work *w, rig *r, rg_state *state)
{
    return rg_kernel_gradient(w->kernel, r->commands, &w->dy, w->x, &w->y, state, w->dx, 0);
}

/* A gradient before there are statistics: refused where they come in a call of their own, else
 * made from x, as without a state. */
static void test_early_gradients(rig *r)
{
    static const line early[] = {
        { "batch_norm", "phase=statistics", "3,4 4 4", "no forward pass" },
        { "batch_norm", "phase=normalize", "3,4 4 4", "no forward pass" },
        { "batch_norm", "", "3,4 4 4", "" },
        { "batch_norm", "statistics=given", "3,4 4 4 4 4", "" },
        { "group_norm", "groups=2", "3,4 4 4", "" },
        { "group_norm", "image_gradients=true", "3,5,4 4 4", "" },
    };
    for (size_t i = 0; i < sizeof early / sizeof early[0]; i++) {
        work w = work_of(&early[i], r->device), without = work_of(&early[i], r->device);
        rg_state *state = NULL;
        EXPECT_OK(rg_state_create(w.kernel, w.x, &state));
        if (early[i].words[0] != 0) {
            EXPECT_FAILS(early_gradient(&w, r, state), RG_INVALID_STATE, early[i].words);
            EXPECT_FAILS(early_gradient(&w, r, NULL), RG_INVALID_ARGUMENT, "which is NULL");
        } else {
            EXPECT_OK(early_gradient(&w, r, state));
            EXPECT_OK(early_gradient(&without, r, NULL));
        }
        EXPECT_OK(rig_run(r));
        for (int32_t k = 0; k < w.recipe.inputs; k++)
            EXPECT(early[i].words[0] != 0 || same_bits(w.dx[k], without.dx[k]));
        rg_state_destroy(state);
        work_close(&w);
        work_close(&without);
    }
}

int main(void)
{
    rig r = rig_open(2);
    test_bad_fields(r.device);
    test_bad_shapes(&r);
    test_bad_states(&r);
    test_early_gradients(&r);
    rig_close(&r);
    return rg_test_report();
}
