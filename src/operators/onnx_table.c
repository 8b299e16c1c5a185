/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The operators of ONNX and ONNX Runtime that ops compute: tensors, attributes with their defaults,
 * and converters. */
#include "core/private_api.h"
#include "operators/onnx_converters.h"
#include "operators/run.h"

#define ONNX    "ai.onnx"
#define RUNTIME "com.microsoft"
#define PREVIEW "ai.onnx.preview.training"

#define WINDOWS "kernel_shape:ints strides:ints pads:ints dilations:ints auto_pad:text=NOTSET"
#define CONV    WINDOWS " group:int=1"
#define CONV_T  CONV " output_padding:ints output_shape:ints"
#define POOL    "kernel_shape:ints! strides:ints pads:ints dilations:ints auto_pad:text=NOTSET "
#define CEIL    POOL "ceil_mode:int=0 "
#define RESIZE                                                                             \
    "mode:text=nearest coordinate_transformation_mode:text=half_pixel "                    \
    "nearest_mode:text=round_prefer_floor scales:floats| sizes:ints axes:ints roi:floats " \
    "keep_aspect_ratio_policy:text=stretch antialias:int=0 cubic_coeff_a:float=-0.75 "     \
    "exclude_outside:int=0 extrapolation_value:float=0"
#define RESIZE_GRAD                                                                        \
    "mode:text=linear coordinate_transformation_mode:text=half_pixel "                     \
    "nearest_mode:text=round_prefer_floor scales:floats| sizes:ints axes:ints roi:floats " \
    "keep_aspect_ratio_policy:text=stretch antialias:int=0 cubic_coeff_a:float=-0.75 "     \
    "exclude_outside:int=0 extrapolation_value:float=0"
#define REDUCE      "axes:ints keepdims:int=1 noop_with_empty_axes:int=0"
#define ARG         "axis:int=0 keepdims:int=1 select_last_index:int=0"
#define LOSS        "reduction:text=mean ignore_index:int"
#define SLICE       "starts:ints! ends:ints! axes:ints steps:ints"
#define CLASSES     "kind=softmax_cross_entropy labels=classes"
#define LOG_CLASSES "kind=kullback_leibler labels=classes"

#define ENTRY(name, domain, op, gradient, fields, inputs, outputs, attributes, convert, run)   \
    {                                                                                          \
        name, domain, &rg_op_##op, gradient, fields, inputs, outputs, attributes, convert, run \
    }
/* The same dimensions, an activation. */
#define NEURON(name, domain, fields, attributes) \
    ENTRY(name, domain, neuron, false, fields, "X=x", "Y=y", attributes, rg_onnx_neuron, NULL)
#define NEURON_GRAD(name, fields, read, attributes)                                                \
    ENTRY(name, RUNTIME, neuron, true, fields, "dY=dy " read, "dX=dx", attributes, rg_onnx_neuron, \
          NULL)

const rg_onnx_operator rg_onnx_operators[] = {
    /* ---- softmax ---- */
    ENTRY("Softmax", ONNX, softmax, false, "", "input=x", "output=y", "axis:int=-1 opset:int=13",
          rg_onnx_softmax, NULL),
    ENTRY("LogSoftmax", ONNX, softmax, false, "kind=log", "input=x", "output=y",
          "axis:int=-1 opset:int=13", rg_onnx_softmax, NULL),
    ENTRY("SoftmaxGrad", RUNTIME, softmax, true, "flatten=true", "dY=dy Y=y", "dX=dx", "axis:int=1",
          rg_onnx_softmax, NULL),
    ENTRY("SoftmaxGrad_13", RUNTIME, softmax, true, "", "dY=dy Y=y", "dX=dx", "axis:int=-1",
          rg_onnx_softmax, NULL),
    ENTRY("LogSoftmaxGrad", RUNTIME, softmax, true, "kind=log flatten=true", "dY=dy X=y", "dX=dx",
          "axis:int=1", rg_onnx_softmax, NULL),
    ENTRY("LogSoftmaxGrad_13", RUNTIME, softmax, true, "kind=log", "dY=dy X=y", "dX=dx",
          "axis:int=-1", rg_onnx_softmax, NULL),

    /* ---- activations ---- */
    NEURON("Relu", ONNX, "kind=relu", ""),
    ENTRY("LeakyRelu", ONNX, neuron, false, "kind=relu", "X=x", "Y=y", "alpha:float=0.01",
          rg_onnx_neuron, rg_run_leaky_relu),
    ENTRY("PRelu", ONNX, neuron, false, "kind=prelu", "X=x slope=slope", "Y=y", "", rg_onnx_prelu,
          rg_run_prelu),
    NEURON("Sigmoid", ONNX, "kind=sigmoid", ""),
    NEURON("HardSigmoid", ONNX, "kind=hard_sigmoid", "alpha:float=0.2 beta:float=0.5"),
    ENTRY("HardSwish", ONNX, neuron, false, "kind=hard_sigmoid", "X=x", "Y=y", "", rg_onnx_several,
          rg_run_hard_swish),
    ENTRY("Tanh", ONNX, neuron, false, "kind=tanh", "input=x", "output=y", "", NULL, NULL),
    NEURON("Abs", ONNX, "kind=absolute", ""),
    NEURON("Softplus", ONNX, "kind=softplus", ""),
    ENTRY("Softsign", ONNX, neuron, false, "kind=softsign", "input=x", "output=y", "", NULL, NULL),
    NEURON("Elu", ONNX, "kind=elu", "alpha:float=1"),
    ENTRY("Selu", ONNX, neuron, false, "kind=elu", "X=x", "Y=y",
          "alpha:float=1.67326319217681884765625 gamma:float=1.05070102214813232421875",
          rg_onnx_several, rg_run_selu),
    ENTRY("Exp", ONNX, neuron, false, "kind=exponential", "input=x", "output=y", "", NULL, NULL),
    ENTRY("Log", ONNX, neuron, false, "kind=logarithm", "input=x", "output=y", "", NULL, NULL),
    ENTRY("Gelu", ONNX, neuron, false, "kind=gelu", "X=x", "Y=y", "approximate:text=none",
          rg_onnx_gelu, NULL),
    ENTRY("FastGelu", RUNTIME, neuron, false, "kind=gelu_tanh", "X=x bias?", "Y=y", "",
          rg_onnx_biased, rg_run_biased),
    NEURON("QuickGelu", RUNTIME, "kind=swish", "alpha:float=1.702"),
    NEURON_GRAD("ReluGrad", "kind=relu", "X=x", ""),
    NEURON_GRAD("LeakyReluGrad", "kind=relu from_y=true", "Y=y", "alpha:float=0.01"),
    NEURON_GRAD("SigmoidGrad", "kind=sigmoid from_y=true", "Y=y", ""),
    NEURON_GRAD("TanhGrad", "kind=tanh from_y=true", "Y=y", ""),
    NEURON_GRAD("GeluGrad", "kind=gelu", "X=x", ""),
    NEURON_GRAD("FastGeluGrad", "kind=gelu_tanh", "X=x", ""),
    NEURON_GRAD("QuickGeluGrad", "kind=swish", "X=x", "alpha:float=1.702"),

    /* ---- arithmetic and matrix products ---- */
    ENTRY("Add", ONNX, arithmetic, false, "kind=add", "A=a B=b", "C=y", "", NULL, NULL),
    ENTRY("Sub", ONNX, arithmetic, false, "kind=subtract", "A=a B=b", "C=y", "", NULL, NULL),
    ENTRY("Mul", ONNX, arithmetic, false, "kind=multiply", "A=a B=b", "C=y", "", NULL, NULL),
    ENTRY("Div", ONNX, arithmetic, false, "kind=divide", "A=a B=b", "C=y", "", NULL, NULL),
    ENTRY("DivGrad", RUNTIME, arithmetic, true, "kind=divide", "dY=dy A=a B=b", "dA=da dB=db", "",
          NULL, NULL),
    ENTRY("Gemm", ONNX, dense, false, "", "A=x B=w C=b?", "Y=y",
          "alpha:float=1 beta:float=1 transA:int=0 transB:int=0", rg_onnx_gemm, rg_run_gemm),
    ENTRY("MatMul", ONNX, matmul, false, "", "A=a B=b", "Y=y", "", rg_onnx_matmul, rg_run_matmul),

    /* ---- windows ---- */
    ENTRY("Conv", ONNX, conv, false, "", "X=x@image W=w@image B=b?", "Y=y@image", CONV,
          rg_onnx_conv, NULL),
    ENTRY("ConvGrad", RUNTIME, conv, true, "", "dY=dy@image X=x@image W=w@image",
          "dX=dx@image dW=dw@image dB=db", CONV, rg_onnx_conv, NULL),
    ENTRY("ConvTranspose", ONNX, conv_transpose, false, "layout=in_out", "X=x@image W=w@image B=b?",
          "Y=y@image", CONV_T, rg_onnx_conv_transpose, NULL),
    ENTRY("ConvTransposeGrad", RUNTIME, conv_transpose, true, "layout=in_out",
          "dY=dy@image X=x@image W=w@image", "dX=dx@image dW=dw@image dB=db", CONV_T,
          rg_onnx_conv_transpose, NULL),
    ENTRY("MaxPool", ONNX, pool, false, "kind=max edge=clamp", "X=x@image",
          "Y=y@image Indices=indices@image", CEIL "storage_order:int=0", rg_onnx_pool, NULL),
    ENTRY("AveragePool", ONNX, pool, false, "kind=average edge=clamp", "X=x@image", "Y=y@image",
          CEIL "count_include_pad:int=0", rg_onnx_pool, NULL),
    ENTRY("LpPool", ONNX, pool, false, "kind=l2 edge=clamp", "X=x@image", "Y=y@image",
          CEIL "p:int=2", rg_onnx_lp_pool, rg_run_lp_pool),
    ENTRY("MaxPoolGrad", ONNX, pool, true, "kind=max edge=clamp",
          "dY=dy@image Indices=indices@image X=x@image?", "dX=dx@image",
          CEIL "storage_order:int=0 shape:ints", rg_onnx_pool, rg_run_pool_gradient),
    ENTRY("AveragePoolGrad", ONNX, pool, true, "kind=average edge=clamp", "dY=dy@image X=x@image?",
          "dX=dx@image", CEIL "count_include_pad:int=0 shape:ints", rg_onnx_pool,
          rg_run_pool_gradient),
    ENTRY("GlobalAveragePool", ONNX, reduce, false, "kind=mean", "X=x@image", "Y=y@image", "",
          rg_onnx_global_pool, NULL),
    ENTRY("GlobalMaxPool", ONNX, reduce, false, "kind=max", "X=x@image", "Y=y@image", "",
          rg_onnx_global_pool, NULL),
    ENTRY("GlobalLpPool", ONNX, pool, false, "kind=l2 edge=clamp", "X=x", "Y=y", "p:int=2",
          rg_onnx_several, rg_run_global_lp_pool),

    /* ---- normalizations ---- */
    ENTRY("BatchNormalization", ONNX, batch_norm, false, "statistics=given",
          "X=x@last scale=gamma B=beta input_mean=mean input_var=variance",
          "Y=y@last running_mean=new_mean running_var=new_variance",
          "epsilon:float=1e-5 momentum:float=0.9 training_mode:int=0", rg_onnx_batch_norm, NULL),
    ENTRY("BatchNormInternal", RUNTIME, batch_norm, false, "statistics=running",
          "X=x@last scale=gamma B=beta input_mean=mean input_var=variance",
          "Y=y@last running_mean=new_mean running_var=new_variance saved_mean saved_inv_std",
          "epsilon:float=1e-5 momentum:float=0.9 training_mode:int=1", rg_onnx_batch_norm,
          rg_run_batch_norm),
    ENTRY("BatchNormalizationGrad", RUNTIME, batch_norm, true, "",
          "dY=dy@last X=x@last scale=gamma mean? variance?",
          "X_grad=dx@last scale_grad=dgamma bias_grad=dbeta", "epsilon:float=1e-5",
          rg_onnx_batch_norm_gradient, rg_run_batch_norm_gradient),
    ENTRY("LayerNormalization", ONNX, group_norm, false, "axis=-1", "X=x Scale=gamma B=beta?",
          "Y=y Mean InvStdDev", "axis:int=-1 epsilon:float=1e-5 stash_type:int=1",
          rg_onnx_layer_norm, rg_run_layer_norm),
    ENTRY("LayerNormalizationGrad", RUNTIME, group_norm, true, "axis=-1",
          "Y_grad=dy X=x scale=gamma mean? inv_std_dev?",
          "X_grad=dx scale_grad=dgamma bias_grad=dbeta", "axis:int=-1 epsilon:float=1e-5",
          rg_onnx_layer_norm, rg_run_layer_norm_gradient),
    ENTRY("GroupNormalization", ONNX, group_norm, false, "", "X=x@last scale=gamma bias=beta",
          "Y=y@last", "num_groups:int! epsilon:float=1e-5 stash_type:int=1", rg_onnx_group_norm,
          rg_run_group_norm),
    ENTRY("InstanceNormalization", ONNX, group_norm, false, "groups=0",
          "input=x@last scale=gamma B=beta", "output=y@last", "epsilon:float=1e-5",
          rg_onnx_instance_norm, NULL),
    ENTRY("LRN", ONNX, lrn, false, "even_after=true", "X=x@last", "Y=y@last",
          "size:int! alpha:float=0.0001 beta:float=0.75 bias:float=1", rg_onnx_lrn, NULL),

    /* ---- losses, dropout ---- */
    ENTRY("SoftmaxCrossEntropyLoss", ONNX, loss, false, CLASSES,
          "scores=y@last labels=labels weights?", "output=loss log_prob", LOSS, rg_onnx_loss,
          rg_run_loss),
    ENTRY("SoftmaxCrossEntropyLossGrad", RUNTIME, loss, true, LOG_CLASSES,
          "dY=dloss log_prob=y@last label=labels weight?", "d_logits", LOSS, rg_onnx_several,
          rg_run_loss_gradient),
    ENTRY("NegativeLogLikelihoodLoss", ONNX, loss, false, LOG_CLASSES,
          "input=y@last target=labels weight?", "loss=loss", LOSS, rg_onnx_loss, rg_run_loss),
    ENTRY("Dropout", ONNX, dropout, false, "", "data=x ratio# training_mode#", "output=y mask",
          "ratio:float=0.5 training_mode:int=0 seed:int=0", rg_onnx_dropout, rg_run_dropout),
    ENTRY("DropoutGrad", RUNTIME, dropout, true, "", "dY=dy mask ratio# training_mode#", "dX=dx",
          "ratio:float=0.5 training_mode:int=1", rg_onnx_several, rg_run_dropout_gradient),

    /* ---- shapes ---- */
    ENTRY("Reshape", ONNX, reshape, false, "", "data=x shape#", "reshaped=y",
          "shape:ints! allowzero:int=0", rg_onnx_reshape, NULL),
    ENTRY("Transpose", ONNX, transpose, false, "", "data=x", "transposed=y", "perm:ints",
          rg_onnx_transpose, NULL),
    ENTRY("Slice", ONNX, slice, false, "", "data=x starts# ends# axes# steps#", "output=y", SLICE,
          rg_onnx_slice, rg_run_slice),
    ENTRY("SliceGrad", RUNTIME, slice, true, "", "dY=dy shape# starts# ends# axes# steps#", "dX=dx",
          "shape:ints! " SLICE, rg_onnx_slice, rg_run_slice_gradient),
    ENTRY("Concat", ONNX, concat, false, "", "inputs=x*", "concat_result=y", "axis:int!",
          rg_onnx_concat, NULL),
    ENTRY("ConcatTraining", RUNTIME, concat, false, "", "inputs=x*",
          "concat_result=y per_input_length", "axis:int!", rg_onnx_concat, rg_run_concat),
    ENTRY("Split", ONNX, slice, false, "", "input=x split#", "outputs*",
          "axis:int=0 split:ints num_outputs:int", rg_onnx_several, rg_run_split),
    ENTRY("Pad", ONNX, pad, false, "", "data=x pads# constant_value# axes#", "output=y",
          "pads:ints! constant_value:float=0 axes:ints mode:text=constant", rg_onnx_pad,
          rg_run_pad),
    ENTRY("PadGrad", RUNTIME, pad, true, "", "dY=dy pads# constant_value# axes#", "dX=dx",
          "pads:ints! constant_value:float=0 axes:ints mode:text=constant", rg_onnx_pad,
          rg_run_pad),
    ENTRY("ReduceSum", ONNX, reduce, false, "kind=sum", "data=x axes#", "reduced=y", REDUCE,
          rg_onnx_reduce, rg_run_reduce),
    ENTRY("ReduceMean", ONNX, reduce, false, "kind=mean", "data=x axes#", "reduced=y", REDUCE,
          rg_onnx_reduce, rg_run_reduce),
    ENTRY("ReduceMin", ONNX, reduce, false, "kind=min", "data=x axes#", "reduced=y", REDUCE,
          rg_onnx_reduce, rg_run_reduce),
    ENTRY("ReduceMax", ONNX, reduce, false, "kind=max", "data=x axes#", "reduced=y", REDUCE,
          rg_onnx_reduce, rg_run_reduce),
    ENTRY("ArgMin", ONNX, reduce, false, "kind=arg_min", "data=x", "reduced=y", ARG,
          rg_onnx_arg_reduce, rg_run_arg_reduce),
    ENTRY("ArgMax", ONNX, reduce, false, "kind=arg_max", "data=x", "reduced=y", ARG,
          rg_onnx_arg_reduce, rg_run_arg_reduce),
    ENTRY("Resize", ONNX, upsample, false, "", "X=x@image roi# scales# sizes#", "Y=y@image", RESIZE,
          rg_onnx_resize, rg_run_resize),
    ENTRY("ResizeGrad", RUNTIME, upsample, true, "", "dY=dy@image X=x@image roi# scales# sizes#",
          "dX=dx@image", RESIZE_GRAD, rg_onnx_resize, rg_run_resize_gradient),

    /* ---- optimizers ---- */
    ENTRY("Adam", PREVIEW, adam, false, "form=mps",
          "R=rate T=step X=parameter G=gradient V=momentum H=velocity",
          "X_new=new_parameter V_new=new_momentum H_new=new_velocity",
          "alpha:float=0.9 beta:float=0.999 epsilon:float=1e-6 norm_coefficient:float=0 "
          "norm_coefficient_post:float=0",
          rg_onnx_adam, rg_run_adam),
    ENTRY("Momentum", PREVIEW, sgd, false, "form=torch momentum=0.9",
          "R=rate T# X=parameter G=gradient V=momentum", "X_new=new_parameter V_new=new_momentum",
          "alpha:float! beta:float! norm_coefficient:float! mode:text! T:int=0", rg_onnx_momentum,
          rg_run_momentum),
    { .name = NULL },
};

RG_PRIVATE_API const rg_onnx_operator *rg_onnx_find(const char *type)
{
    for (const rg_onnx_operator *entry = rg_onnx_operators; entry->name != NULL; entry++) {
        if (strcmp(entry->name, type) == 0)
            return entry;
    }
    return NULL;
}
