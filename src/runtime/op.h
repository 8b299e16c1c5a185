/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The op description: one table per op, from which validation, JSON, the command line, checks
 * and benchmarks follow. An op's own code is its shape rule and two functions that record
 * launches. */
#ifndef RG_RUNTIME_OP_H
#define RG_RUNTIME_OP_H

#include "backend/backend.h"
#include "runtime/field.h"

#include <retrograde/kernel.h>

enum { RG_MAX_CALLS = 32, RG_MAX_INPUTS = 8, RG_MAX_OUTPUTS = 5, RG_MAX_STATE = 8 };

/* A tensor that a state holds. */
typedef struct rg_state_slot {
    const char *name;
    rg_tensor_desc desc;
} rg_state_slot;

/* Another name of the op, in MPS or ONNX: a direction, preset fields, and other names for
 * tensors. */
typedef struct rg_op_name {
    const char *name;
    bool gradient;
    const char *fields;          /* "axis=1 flatten=true", on top of the defaults */
    const char *tensors;         /* "dY=dy Y=y dX=dx" */
    int32_t rank_low, rank_high; /* of the first tensor; 0, 0: whatever the op takes */
    const char *follows; /* "stride=window": a field that has the numbers of another where it is not
                            set; NULL: none */
} rg_op_name;

/* What a gradient reads. Input i of the forward pass: RG_READS_X << i; output i: RG_READS_Y <<
 * i. With RG_READS_OR_STATE it reads the state alone where one is given, and the rest where none
 * is; with RG_READS_WITH_STATE the state, too, where one is given, which spares it work. */
enum {
    RG_READS_X = 1 << 0,
    RG_READS_Y = 1 << 8,
    RG_READS_STATE = 1 << 16,
    RG_READS_OR_STATE = 1 << 17,
    RG_READS_WITH_STATE = 1 << 18
};

/* Two tensors of a call that may be one and the same: entry i of what is read, entry k of what is
 * written. Others must not overlap. Lists end with 0. */
typedef enum rg_role { RG_ROLE_X = 1, RG_ROLE_Y, RG_ROLE_DY, RG_ROLE_DX, RG_ROLE_STATE } rg_role;
typedef int32_t rg_alias;
#define RG_ALIAS(read, i, written, k) \
    ((int32_t)(read) << 12 | (i) << 8 | (int32_t)(written) << 4 | (k))
#define RG_X_AS_Y(i, k)   RG_ALIAS(RG_ROLE_X, i, RG_ROLE_Y, k)
#define RG_X_AS_DX(i, k)  RG_ALIAS(RG_ROLE_X, i, RG_ROLE_DX, k)
#define RG_Y_AS_DX(i, k)  RG_ALIAS(RG_ROLE_Y, i, RG_ROLE_DX, k)
#define RG_DY_AS_DX(i, k) RG_ALIAS(RG_ROLE_DY, i, RG_ROLE_DX, k)

typedef struct rg_call rg_call;
typedef struct rg_op rg_op;
typedef struct rg_strategy rg_strategy; /* runtime/strategy.h */

/* What plans may do with an op beyond running it; what is NULL or false they may not. All but
 * views, is_cheap and is_sum change a descriptor and return whether they could. */
typedef struct rg_fusion_hooks {
    /* Bit i: result i of forward, or of the gradient, is a bit-exact copy of the first tensor that
     * it is given, if both have as many elements. */
    uint32_t (*views)(const void *desc, bool gradient);
    bool is_cheap; /* forward is bound by memory: recomputing is cheaper than storing */
    /* There is the first output alone, with the same bits, from as many of the first inputs as it
     * needs. */
    bool (*keep_first_output)(void *desc);
    /* Forward is the sum of both inputs and nothing else. */
    bool (*is_sum)(const void *desc);
    /* One number a channel, the next input, is added to the first output. */
    bool (*take_bias)(void *desc);
    /* `before`, another op, which makes the only input, does the work of both. */
    bool (*join_before)(const void *desc, const rg_op *before, void *before_desc);
    /* This op does the work of both; x is what `before` makes. */
    bool (*take_before)(void *desc, const rg_op *before, const void *before_desc,
                        const rg_tensor_desc *x);
    /* The gradient reads y in place of x, with the same results. */
    bool (*gradient_of_y)(void *desc);
    /* There is one more output: the gradient of x[0] where dy is 1. */
    bool (*with_gradient)(void *desc);
    /* There is one more input: the number of the run, an i64 of rank 0, so that runs draw other
     * random numbers. */
    bool (*with_run_number)(void *desc);
} rg_fusion_hooks;

/* What ops with windows on an image report about them. */
typedef struct rg_window_hooks {
    /* Checks the inputs, and fills in what windows are laid on, and where by the descriptor. */
    rg_status (*place)(const void *desc, const rg_tensor_desc x[], rg_window *window,
                       rg_placement *placement);
    /* Puts these numbers into a descriptor, in place of its policy. */
    void (*set)(void *desc, const rg_padding *padding, const int64_t output[2]);
} rg_window_hooks;

struct rg_op {
    const char *name, *text; /* "softmax", one line for people */
    rg_fields desc;
    const char *const *inputs, *const *outputs; /* all the names there can be, NULL at the end */
    const rg_op_name *names;                    /* in MPS and ONNX; name NULL at the end */
    const rg_alias *aliases;                    /* NULL: none */
    const rg_alias *(*aliases_of)(const void *desc); /* further ones of a descriptor; NULL: none */

    /* How many inputs and outputs a descriptor gives; NULL: as many as there are names. They are
     * the first of `inputs` and of `outputs`, unless input_names and output_names give those of a
     * descriptor. */
    int32_t (*count_inputs)(const void *desc);
    int32_t (*count_outputs)(const void *desc);
    /* How many of the outputs have a gradient, the first ones; NULL: all. The others are integers:
     * the gradient takes no dy for them. */
    int32_t (*count_gradients)(const void *desc);
    const char *const *(*input_names)(const void *desc);
    const char *const *(*output_names)(const void *desc);
    /* Bit i: input i has no gradient (labels, weights, a step); NULL: all inputs have one. */
    uint32_t (*no_gradient)(const void *desc);
    /* Checks of a descriptor beyond the ranges of its fields; may be NULL. */
    rg_status (*check)(const void *desc);
    /* Checks the shapes of the inputs and fills in dtype and dims of the outputs, dense. */
    rg_status (*shapes)(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[]);
    /* Fills in the tensors of a state and returns how many; NULL: none. */
    int32_t (*state)(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[]);
    /* Whether a state made by descriptor `made` for inputs `sources` serves descriptor `desc` with
     * inputs `x`; NULL: only where all of it is the same. */
    bool (*fits)(const void *made, const rg_tensor_desc sources[], const void *desc,
                 const rg_tensor_desc x[]);
    /* Whether kernels write their state alone: forward takes no y, and the gradient needs no dx;
     * NULL: never. */
    bool (*fills_state)(const void *desc);
    /* Whether forward, or the gradient, writes tensors of its state; NULL: forward alone, if the op
     * has `state`. */
    bool (*writes_state)(const void *desc, bool gradient);
    /* Whether images of a batch may share a state, since calls add to it; NULL: never. */
    bool (*shares_state)(const void *desc);
    bool updates; /* an optimizer: inputs `parameter` and `gradient`, outputs `new_<input>` */
    rg_fusion_hooks fusion;
    const rg_window_hooks *windows; /* NULL: it has none */
    /* RG_READS_ bits of the gradient. */
    uint32_t (*reads)(const void *desc);
    uint32_t optional_dy;    /* bit j: dy[j] may be NULL; for 0, unless the op's header says more */
    uint32_t weights;        /* bit i: input i has as many dimensions as images, and is none */
    uint32_t wide_gradients; /* bit i: dx[i] may be f32 beside an x[i] of f16 or bf16 */
    /* Whether images may be joined along dimension 0; NULL: never. */
    bool (*joins)(const void *desc, const rg_tensor_desc x[]);
    /* Changes a descriptor to that of image n of a batch of separate images, which draws random
     * numbers of its own; NULL: all images have the same. */
    void (*image_desc)(void *desc, int64_t n);

    rg_status (*forward)(rg_call *call);
    /* Forward of up to RG_MAX_CALLS images of a batch, so that many small tensors take few
     * launches; NULL: one by one. */
    rg_status (*forward_calls)(rg_call *calls, int32_t count);
    rg_status (*gradient)(rg_call *call); /* NULL: the op has none */
    const rg_kernel_table *kernels;
    const void *own;                 /* constants for functions that several ops share; or NULL */
    const rg_kernel_table *launches; /* of another op, whose kernels this one launches; or NULL */
    /* The lists that forward and gradient choose from, NULL at the end; NULL: there are none. */
    const rg_strategy *const *const *strategies;
};

/* One checked call, as the op's own functions see it. */
struct rg_call {
    const rg_op *op;
    const void *desc;
    rg_commands *commands;
    int32_t inputs, outputs, gradients; /* gradients: entries of dy */
    const char *const *input_names, *const *output_names;
    /* x and y: NULL where the gradient was not given them; dy and dx: NULL in forward, dx where it
     * is not wanted. */
    const rg_tensor *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS];
    const rg_tensor *dy[RG_MAX_OUTPUTS], *dx[RG_MAX_INPUTS];
    rg_state *state; /* or NULL */
    uint64_t add;    /* bit i: add into dx[i] */
    int64_t image;   /* of a batch of separate images: which one */
};

/* Pointers that the runtime fills in, by name: args begin with their pointers, and are a variable
 * or *pointer. The launch of a kernel that reads k->x and writes k->y has
 *      RG_ARGS(args), .tensors = { RG_BIND(args, x, call->x[0]), RG_BIND(args, y, call->y[0]) }
 * A member that is no pointer does not compile, nor does one beyond RG_MAX_POINTERS; binding one
 * twice is a warning. */
enum { RG_MAX_POINTERS = 16 };
#define RG_ARGS(structure)                 .args = &(structure), .args_size = sizeof(structure)
#define RG_BIND(structure, member, tensor) [RG_POINTER(structure, member)] = (tensor)
/* The number of a pointer among those of its struct. */
#define RG_POINTER(structure, member) RG_POINTER_OF(__typeof__(structure), member)
#define RG_POINTER_OF(type, member) \
    (offsetof(type, member) / sizeof(void *) + 0 * sizeof(((type *)NULL)->member == NULL))

/* One launch: a kernel of the op's table over `units` independent pieces of work. The args are
 * copied. A pointer that nothing is bound to stays NULL. */
typedef struct rg_launch {
    int32_t kernel;
    rg_dtype dtype;
    const void *args; /* RG_ARGS */
    size_t args_size;
    const rg_tensor *tensors[RG_MAX_POINTERS]; /* RG_BIND */
    const rg_tensor *const *list; /* `length` more, for the pointers from number list_at on */
    int32_t length, list_at;
    int64_t units;
    int64_t grain;  /* units that make one tile, 0: one; by shape alone, never by threads */
    bool backwards; /* units are taken from the last to the first: a second pass over tensors finds
                       in each thread's cache what the first one left there */
    int64_t bytes;  /* moved in all: decides whether other threads are worth waking */
    size_t scratch; /* bytes, for the length of the launch; a GPU's kernel may ask for more */
    size_t thread_scratch;  /* bytes for each thread of a CPU; a multiple of RG_ALIGNMENT. Those of
                               thread rg_thread_pool_index() are the index-th */
    const char *fault_text; /* the sentence for a fault that the kernel reports */
    int32_t scratch_at, thread_scratch_at, fault_at; /* the pointers to these: RG_POINTER */
} rg_launch;
rg_status rg_record(rg_call *call, const rg_launch *launch);
/* Whether the device has this kernel: there may be one for a CPU alone. */
bool rg_call_finds(const rg_call *call, int32_t kernel, rg_dtype dtype);

/* Whether a result of `bytes` should use streaming stores. */
bool rg_call_streams(const rg_call *call, int64_t bytes);
/* The same for work that is as fast as memory, copies above all, and moves `all` bytes: up to some
 * size both sides stay in the last-level cache, and results are written there. */
bool rg_call_copy_streams(const rg_call *call, int64_t bytes, int64_t all);

/* Makes a kernel of `op`; what every rg_<op>_create() calls. */
rg_status rg_kernel_create(rg_device *device, const rg_op *op, const void *desc,
                           rg_kernel **kernel);

/* Changes a descriptor of an op with windows: the numbers that a rule, or, if it is NULL, the
 * descriptor itself gives for inputs x. */
rg_status rg_op_place(const rg_op *op, void *desc, const rg_tensor_desc x[], rg_padding_rule *rule,
                      void *context);

/* The tensors of a state, in the order of the op's slots. */
const rg_tensor *rg_state_slot_tensor(const rg_state *state, int32_t index);

int32_t rg_op_inputs(const rg_op *op, const void *desc);
int32_t rg_op_outputs(const rg_op *op, const void *desc);
int32_t rg_op_gradients(const rg_op *op, const void *desc);
const char *const *rg_op_input_names(const rg_op *op, const void *desc);
const char *const *rg_op_output_names(const rg_op *op, const void *desc);
bool rg_op_differentiates(const rg_op *op, const void *desc, int32_t input);
bool rg_op_fills_state(const rg_op *op, const void *desc);
/* RG_READS_ bits of the gradient, with a state or without: RG_READS_OR_STATE is resolved. */
uint32_t rg_op_reads(const rg_op *op, const void *desc, bool has_state);
/* Whether the pair may be one tensor. */
bool rg_op_may_alias(const rg_op *op, const void *desc, rg_alias pair);

#endif
