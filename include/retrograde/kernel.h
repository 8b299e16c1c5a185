/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Kernels and states: the functions that all ops share.
 *
 *  A kernel is an op with its descriptor, on a device. The op's own rg_<op>_create() creates it;
 *  it is immutable and may be used from any thread. Forward and gradient are two
 *  directions of the same kernel. */
#ifndef RETROGRADE_KERNEL_H
#define RETROGRADE_KERNEL_H

#include <retrograde/commands.h>
#include <retrograde/padding.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rg_kernel rg_kernel;
typedef struct rg_state rg_state;

/* ---- forward and gradient ---- */

/** Records y[] = op(x[]). The arrays have rg_kernel_inputs() and rg_kernel_outputs() entries.
 *  `state` may be NULL if no gradient follows. A kernel that writes only its state (its header says
 *  so) needs a state; y is then NULL. On failure nothing is recorded and no read count changes. */
RG_API rg_status rg_kernel_forward(const rg_kernel *kernel, rg_commands *commands,
                                   rg_tensor *const x[], rg_tensor *const y[], rg_state *state);

/** Records dx[i] = sum over j of dy[j] times dy[j]/dx[i]. A NULL dx[i] is not computed. x[] and
 *  y[] are those of the forward pass; what the gradient does not read may be NULL (each op's
 *  header says what it reads). Bit i of `add` adds into dx[i] instead of overwriting it. If the
 *  header says so, a dy[j] may be NULL, which means 0. Integer outputs, such as indices, are last
 *  and have no gradient: dy[] has no entry for them. */
RG_API rg_status rg_kernel_gradient(const rg_kernel *kernel, rg_commands *commands,
                                    rg_tensor *const dy[], rg_tensor *const x[],
                                    rg_tensor *const y[], rg_state *state, rg_tensor *const dx[],
                                    uint64_t add);

/* ---- forms over a batch of separately allocated images ---- */

/** Forward for `count` images: entry i * count + n is input (or output) i of image n, states[n]
 *  its state (`states` may be NULL). A parameter repeats one pointer; so does a state that the
 *  batch shares, if the op's header allows it or the state has no tensors. No image may read or
 *  write what another image writes. Images that are adjacent in memory run as one launch. Either
 *  all images are recorded or none. */
RG_API rg_status rg_kernel_forward_batch(const rg_kernel *kernel, rg_commands *commands,
                                         int64_t count, rg_tensor *const x[], rg_tensor *const y[],
                                         rg_state *const states[]);

/** Gradient for `count` images, laid out as above. If images share one dx[i], their gradients
 *  are summed in the order of the images. */
RG_API rg_status rg_kernel_gradient_batch(const rg_kernel *kernel, rg_commands *commands,
                                          int64_t count, rg_tensor *const dy[],
                                          rg_tensor *const x[], rg_tensor *const y[],
                                          rg_state *const states[], rg_tensor *const dx[],
                                          uint64_t add);

/* ---- forms that allocate their results ---- */

/** As rg_kernel_forward_batch (count 1: as rg_kernel_forward), with dense results that it creates:
 *  y[] receives outputs * count tensors that the caller destroys, and states[], unless NULL,
 *  `count` states. With `temporary` they are temporaries of `commands`. On failure all entries are
 *  NULL. */
RG_API rg_status rg_kernel_forward_alloc(const rg_kernel *kernel, rg_commands *commands,
                                         int64_t count, rg_tensor *const x[], bool temporary,
                                         rg_tensor *y[], rg_state *states[]);

/** As rg_kernel_gradient_batch. Bit i of `wanted` requests dx[i]; other entries become NULL. The
 *  shape of dx[i] is that of x[i], from x[] if given, else from the state, else (one input)
 *  from y[]. */
RG_API rg_status rg_kernel_gradient_alloc(const rg_kernel *kernel, rg_commands *commands,
                                          int64_t count, rg_tensor *const dy[],
                                          rg_tensor *const x[], rg_tensor *const y[],
                                          rg_state *const states[], uint64_t wanted, bool temporary,
                                          rg_tensor *dx[]);

/* ---- queries ---- */

RG_API int32_t rg_kernel_inputs(const rg_kernel *kernel);
RG_API int32_t rg_kernel_outputs(const rg_kernel *kernel);
/** Whether a forward call, or a gradient call, changes the state that it is given; MPS's
 *  isStateModified. Forward does if its state contains tensors: that of a pooling of kind max
 *  without `indices`, of a reduction of kind min or max, of dropout, of batch and group
 *  normalization, and of layers whose fused neuron needs "z". A gradient does if it writes such
 *  tensors (batch_norm; group_norm with `image_gradients`), and if there are gradients of further
 *  inputs, such as weights and biases: rg_state_tensor() then finds them as "dw" and "db". */
RG_API bool rg_kernel_modifies_state(const rg_kernel *kernel, bool gradient);
/** The op's name, such as "softmax". */
RG_API const char *rg_kernel_op(const rg_kernel *kernel);
/** The device, owned by the kernel. */
RG_API rg_device *rg_kernel_device(const rg_kernel *kernel);
/** Fills y[], rg_kernel_outputs() entries, with the shapes that forward gives for inputs x[]. */
RG_API rg_status rg_kernel_shapes(const rg_kernel *kernel, const rg_tensor_desc x[],
                                  rg_tensor_desc y[]);

/** A kernel whose padding and output size are the numbers that the rule, or with a NULL rule the
 *  kernel's own policy, gives for inputs x[], `count` of them: MPS's
 *  destinationImageDescriptorForSourceImages:, which sets `offset`. Shapes of results follow from
 *  rg_kernel_shapes() of the new kernel. On failure *placed is NULL. RG_UNSUPPORTED for an op
 *  without windows. */
RG_API rg_status rg_kernel_place(const rg_kernel *kernel, const rg_tensor_desc x[], int32_t count,
                                 rg_padding_rule *rule, void *context, rg_kernel **placed);

/** Writes a description, "softmax kind=log axis=1", and a 0 byte into `text`; truncated if it
 *  does not fit. Returns the full length without the 0 byte; `text` may be NULL with capacity 0. */
RG_API size_t rg_kernel_describe(const rg_kernel *kernel, char *text, size_t capacity);
/** Whether two kernels are the same op with equal descriptors. Device and label do not matter. */
RG_API bool rg_kernel_equal(const rg_kernel *a, const rg_kernel *b);
/** Equal kernels have equal hashes, in every process. */
RG_API uint64_t rg_kernel_hash(const rg_kernel *kernel);

/** A name for diagnostics; "" by default. The text is copied. Must not run while another thread
 *  reads the label. */
RG_API rg_status rg_kernel_set_label(rg_kernel *kernel, const char *label);
RG_API const char *rg_kernel_label(const rg_kernel *kernel);

/** An equal kernel, with the same label, on another device; NULL means the same device. */
RG_API rg_status rg_kernel_copy(const rg_kernel *kernel, rg_device *device, rg_kernel **copy);

/** Releases the kernel; recorded work does not need it. NULL is allowed. */
RG_API void rg_kernel_destroy(rg_kernel *kernel);

/* ---- states: data of a forward pass for its gradient ---- */

/** Creates a state for inputs x[]. It records the kernel's descriptor and the shapes of x[], and
 *  contains the tensors that the op's header names. It can be used with any kernel of the same op
 *  and descriptor or, if the op's header says so, of another phase and number of images. Other
 *  commands can read it once the commands that write it are committed. Commands that fail, or are
 *  destroyed without commit, reset it like rg_state_reset(). */
RG_API rg_status rg_state_create(const rg_kernel *kernel, rg_tensor *const x[], rg_state **state);

/** The same with storage from `commands`, and a read count of 1. A state without tensors is
 *  never temporary. */
RG_API rg_status rg_state_create_temporary(const rg_kernel *kernel, rg_commands *commands,
                                           rg_tensor *const x[], rg_state **state);
RG_API void rg_state_destroy(rg_state *state);

/** The tensors of the state: how many, their names, and each by its name. They belong to the
 *  state. The gradients of all inputs but the first, as the last gradient call with this state made
 *  them, are found as "d<input>": "dw" and "db" of a convolution are MPS's gradientForWeights and
 *  gradientForBiases. They are the tensors of that call, not counted here, kept until the next
 *  call that makes them, rg_state_reset() or rg_state_destroy(); temporaries are not kept, and of
 *  a plan they are results instead. */
RG_API int32_t rg_state_count(const rg_state *state);
RG_API const char *rg_state_name(const rg_state *state, int32_t index);
RG_API rg_status rg_state_tensor(rg_state *state, const char *name, rg_tensor **tensor);
/** Bytes of storage of all tensors; 0 for a temporary. */
RG_API size_t rg_state_bytes(const rg_state *state);
/** The shape of input i as recorded. */
RG_API rg_status rg_state_source(const rg_state *state, int32_t input, rg_tensor_desc *desc);

/** Discards the data of the forward pass. */
RG_API rg_status rg_state_reset(rg_state *state);
/** As rg_kernel_describe: "state of softmax kind=log …, x f32[2, 3]". */
RG_API size_t rg_state_describe(const rg_state *state, char *text, size_t capacity);
/** Whether two states are of the same op, descriptor and source shapes. */
RG_API bool rg_state_equal(const rg_state *a, const rg_state *b);
/** Equal states have equal hashes, in every process. */
RG_API uint64_t rg_state_hash(const rg_state *state);
RG_API rg_status rg_state_set_label(rg_state *state, const char *label);
RG_API const char *rg_state_label(const rg_state *state);

RG_API bool rg_state_is_temporary(const rg_state *state);
/** As for tensors; a call that reads or rewrites the state counts as a read. */
RG_API uint64_t rg_state_read_count(const rg_state *state);
RG_API rg_status rg_state_set_read_count(rg_state *state, uint64_t count);
RG_API size_t rg_state_add_read_count(rg_state *const states[], size_t count, int64_t amount);

#ifdef __cplusplus
}
#endif

#endif
