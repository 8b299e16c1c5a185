/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Nodes of a session of ONNX Runtime: created with their attributes, computed on its tensors. */
#ifndef RG_ORT_KERNEL_H
#define RG_ORT_KERNEL_H

#include "operators/onnx_node.h"
#include "ort/ort_abi.h"
#include "ort/ort_native.h"

#include <pthread.h>

/* What is registered: an operator for one type of elements on one kind of device. */
typedef struct ort_entry {
    ort_custom_op op; /* first: the runtime hands it back */
    const rg_onnx_operator *entry;
    ort_type type;
    bool cuda;
    int32_t variant; /* of the types of its tensors; 0: the first */
    bool direct;     /* the gradient of one op, all tensors as the op has them */
    bool native;     /* native kernels alone compute it */
    uint32_t domains;
    int32_t input_count, output_count;
    rg_onnx_tensor inputs[RG_ONNX_TENSORS], outputs[RG_ONNX_TENSORS];
    ort_type input_types[RG_ONNX_TENSORS], output_types[RG_ONNX_TENSORS];
    rg_dtype input_dtypes[RG_ONNX_TENSORS];
} ort_entry;

enum { RG_ORT_ATTRIBUTES = 16, RG_ORT_TEXT = 64 };

/* Launches for one set of shapes, with what they are to point to. */
enum { RG_ORT_ENTRIES = 2048, RG_ORT_POINTERS = 16, RG_ORT_HEAP = 16384 };
typedef struct rg_ort_pointer {
    size_t at, offset;
    int32_t tensor; /* -1: into the heap */
} rg_ort_pointer;
typedef struct rg_ort_prepared {
    rg_tensor_desc shapes[2]; /* of the inputs */
    _Alignas(16) char entries[RG_ORT_ENTRIES];
    size_t size, heap_size; /* size 0: there are none */
    rg_ort_pointer pointers[RG_ORT_POINTERS];
    int32_t pointer_count;
} rg_ort_prepared;

/* A node of a session. */
typedef struct rg_ort_node {
    const ort_entry *registered;
    const ort_api *api;
    bool borrows; /* the runtime lends the shapes of tensors */
    rg_device *device;
    int32_t attribute_count;
    rg_attribute attributes[RG_ORT_ATTRIBUTES];
    rg_onnx_spec names[RG_ORT_ATTRIBUTES];
    int64_t ints[RG_ORT_ATTRIBUTES][RG_ONNX_VALUES];
    double floats[RG_ORT_ATTRIBUTES];
    char texts[RG_ORT_ATTRIBUTES][RG_ORT_TEXT];
    uint64_t outputs;     /* bit i: the node has output i */
    rg_operator *general; /* NULL: the gradient of one op, or a native kernel alone */

    /* What native kernels read of the attributes; ort_native.c. */
    const struct rg_ort_native *native; /* NULL: none */
    int64_t axis;
    bool pointwise;     /* ConvGrad with windows of one pixel */
    bool is_small_conv; /* ConvGrad in two dimensions, explicitly padded */
    rg_ort_conv_args conv;
    rg_ort_volume_args volume; /* window 0: that of W */
    int32_t volume_policy;     /* of padding, in the order of auto_pad; -1: no volume */
    int64_t volume_after[3];
    int32_t volume_axes; /* of the attributes; 0: any */
    rg_ort_pool_args pool;
    int64_t after[3];  /* padding */
    int32_t pool_rank; /* of dY */
    int64_t shape[RG_ONNX_VALUES];
    int32_t shape_rank, reduction; /* reduction: none, sum, mean */
    bool has_shape;                /* `shape` is an attribute of the node */
    bool needs_x;                  /* the last input, whose shape does not follow from others */
    rg_ort_loss_args loss;
    rg_ort_update_args update;

    pthread_mutex_t
        lock; /* of what follows: the last kernel and the last stream, to be used again */
    rg_kernel *kernel;
    _Alignas(16) char desc[RG_MAX_DESC]; /* of `kernel` */
    rg_queue *queue;
    void *stream; /* of `queue`, on a GPU */
    rg_ort_prepared prepared;
} rg_ort_node;

/* A computation: tensors of the runtime as ours. */
typedef struct rg_ort_computation {
    rg_ort_node *k;
    ort_context *context;
    uint32_t given; /* bit i: input i is there */
    void *data[RG_ONNX_TENSORS];
    rg_tensor *inputs[RG_ONNX_TENSORS], *outputs[RG_ONNX_TENSORS];
    bool stands;                            /* inputs and outputs are stand-ins */
    bool wrapped;                           /* there may be some of them, to be destroyed */
    void *widened;                          /* inputs that were converted, freed at the end */
    ort_status *status;                     /* of the runtime, where it refused something */
    rg_tensor_desc shapes[RG_ONNX_TENSORS]; /* last: not cleared; rank -1: absent */
} rg_ort_computation;

#define ORT_TRY(c, call)                                                   \
    do {                                                                   \
        (c)->status = (call);                                              \
        if ((c)->status != NULL)                                           \
            return rg_fail(RG_UNSUPPORTED, "ONNX Runtime refused a call"); \
    } while (0)

/* The memory of a result; NULL if the node has none. */
rg_status rg_ort_output(rg_ort_computation *c, int32_t i, const rg_tensor_desc *desc, void **data);

/* Converts input i: data[i] and shapes[i] are then those of elements of `dtype`. */
rg_status rg_ort_widen(rg_ort_computation *c, int32_t i, rg_dtype dtype);

/* Memory until the end of the computation. */
rg_status rg_ort_scratch(rg_ort_computation *c, size_t bytes, void **memory);

/* Reads what native kernels need of the attributes. */
rg_status rg_ort_native_prepare(rg_ort_node *node);
/* Computes the node on the runtime's memory if there is a kernel for it; *done: there was. */
rg_status rg_ort_native_run(rg_ort_computation *c, bool *done);

ort_status *rg_ort_create_kernel(const ort_custom_op *op, const ort_api *api,
                                 const ort_kernel_info *info, void **kernel);
ort_status *rg_ort_compute(void *kernel, ort_context *context);
void rg_ort_destroy_kernel(void *kernel);

/* The runtime's status for a failure of ours, with its sentence. */
ort_status *rg_ort_fail(const ort_api *api, rg_status status);

/* The dtype of elements of one of ONNX's types that operators have. */
rg_dtype rg_ort_dtype_of_any(ort_type type);

/* Whether a runtime that the library was registered with lends the shapes of tensors. */
bool rg_ort_borrows(const ort_api *api);

/* The device of operators: opened with the first, and kept until the library is unloaded. */
rg_status rg_ort_device(bool cuda, rg_device **device);
/* That of the CPU: CUDA may be gone before. */
void rg_ort_close_devices(void);

#endif
