/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The structs of a plan. */
#ifndef RG_GRAPH_PLAN_H
#define RG_GRAPH_PLAN_H

#include "graph/graph.h"
#include "runtime/objects.h"

#include <retrograde/graph_state.h>

/* A node that runs, with all it needs of the graph: values by their ids, -1 for none. */
typedef struct rg_step {
    const rg_op *op;
    rg_kernel *kernel;
    bool own_kernel;       /* made for a sequence */
    rg_padding_rule *rule; /* places the windows for each layout, or NULL */
    void *rule_context;
    char *label;
    int32_t origin; /* its index among the steps of the plan */
    bool gradient;
    int32_t forward; /* of a gradient: the step whose state it reads, or -1 */
    int32_t given;   /* of a gradient: which of the states that runs are given it reads, or -1 */
    int32_t inputs, outputs;
    int32_t in[RG_MAX_INPUTS], out[RG_MAX_INPUTS]; /* x and y; of a gradient dy and dx */
    int32_t source[RG_MAX_INPUTS];                 /* of a gradient: x, for their shapes */
    int32_t x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS];   /* what it is handed of them */
    bool keeps;                                    /* a forward step whose state a gradient reads */
    bool gone;                   /* part of another step now: rg_sequence_compact() takes it away */
    bool shown;                  /* its state is asked for: it stays, and is that of the node */
    uint64_t add;                /* of a gradient: bit i: out[i] is base[i] with dx added into it */
    int32_t base[RG_MAX_INPUTS]; /* else -1 */
    uint32_t views;              /* bit i: out[i] is in[0] in another shape, and is not written */
    int32_t begin, end;          /* steps that run together with it, in one batch */
} rg_step;

/* A value as the plan knows it. */
typedef struct rg_plan_value {
    rg_value_kind kind;
    int32_t source;     /* of a source: its index */
    int32_t like;       /* of a constant */
    double number;      /* of a constant */
    int32_t parameter;  /* a value that is this parameter, or is assigned to it; else -1 */
    int32_t made, last; /* steps that write it and that read it last; made -1: before all */
    int32_t readers;    /* steps that read it */
    int32_t written;    /* of a parameter: the first step that writes it; INT32_MAX: none */
    int32_t view;       /* the value whose storage it has, in another shape; else -1 */
    bool live, result;
    rg_tensor_desc desc; /* of a parameter */
    char *name;          /* of a source or parameter */
} rg_plan_value;

/* The steps of one layout: those of the plan, changed as its options say. */
typedef struct rg_sequence {
    const struct rg_plan *plan;
    rg_step *steps;
    int32_t steps_count;
    rg_plan_value *slots; /* by value: those of the plan, and further ones */
    int32_t slots_count;
    rg_tensor_desc *descs;                 /* by value */
    size_t steps_capacity, slots_capacity; /* allocated */
    struct rg_links *links;                /* while a pass joins steps; else NULL */
} rg_sequence;

/* A tensor in the storage of a layout: an output of a step, or a tensor of its state. */
typedef struct rg_memory_entry {
    int32_t value; /* -1: a state */
    int32_t step;  /* that makes it; -1: a constant */
    int32_t index; /* among its outputs, or among the tensors of its state */
    int32_t last;  /* of a state: the last step that reads it */
} rg_memory_entry;

/* A state that runs are given, as a layout knows it. */
typedef struct rg_given {
    int64_t images;                  /* that have states of their own; 1: one state serves all */
    bool stacked;                    /* images below rank 4 get a dimension that counts them */
    bool by_image;                   /* its gradients run image by image */
    uint32_t weights;                /* the op's: inputs that are no images */
    int32_t inputs, count;           /* inputs of the forward pass; tensors of each state */
    int32_t first;                   /* its first tensor among the inputs of a run */
    int64_t at;                      /* its first state among those of a layout */
    rg_tensor_desc x[RG_MAX_INPUTS]; /* of the forward pass, as the states have them */
} rg_given;

/* Storage and tensors for one set of source shapes. */
typedef struct rg_layout_plan {
    struct rg_layout_plan *next;
    int32_t inputs_count;    /* the sources, then the tensors of given states */
    rg_tensor_desc *sources; /* by input */
    size_t *alignments;      /* by input: see rg_source_alignment() */
    rg_given *given;         /* by given state */
    rg_state **given_states; /* of stand-ins: by given state, then by image */
    int64_t given_count;
    rg_sequence sequence;
    rg_tensor **tensors; /* by value; NULL for sources */
    rg_state **states;   /* by step */
    rg_storage *storage;
    size_t bytes, apart; /* of the storage; of all values and states if none shared */
    size_t scratch;      /* of kernels */
    int64_t launches;
    rg_commands *recorded;
    size_t *ends;            /* by step: where its entries end */
    rg_tensor **stand_ins;   /* by input */
    rg_tensor **copies;      /* by input: where a replay reads it; NULL where none was needed */
    rg_replay *replay;       /* all that is recorded; NULL: it is recorded anew for each run */
    int32_t runs, failures;  /* encoded, up to the replay; attempts to make it */
    rg_memory_entry *memory; /* all tensors in the storage */
    size_t memory_capacity, memory_count;
    void *poison; /* bytes that overwrite what is no longer read, kept by `recorded`; or NULL */
} rg_layout_plan;

/* Where a run is interrupted while it is recorded: after steps, in their order. The function may
 * record more, and commit and continue; it cannot fail. A run that is replayed as a whole calls
 * it at its end. */
typedef struct rg_plan_cuts {
    const int32_t *steps;
    int32_t count;
    void (*reached)(void *context, int32_t cut, rg_commands *commands);
    void *context;
} rg_plan_cuts;

/* A piece of a run: the steps that follow `after`, -1 for the beginning, up to `last`, -1 for the
 * end.
 */
typedef struct rg_plan_piece {
    int32_t after, last;
} rg_plan_piece;

/* A parameter that its data source changes after each run. */
typedef struct rg_plan_update {
    int32_t parameter, gradient; /* values */
    int32_t made;                /* the step that makes the gradient */
    rg_data_source data;
} rg_plan_update;

/* What a run reads, while it is recorded: there may be more of it than a stack holds. The first
 * four have an entry for each source, then one for each tensor of the given states. */
typedef struct rg_input_buffers {
    rg_tensor **tensors;
    rg_tensor_desc *descs;
    size_t *alignments;
    rg_tensor **read; /* what the layout reads: the caller's, or copies */
    size_t capacity;
    int32_t count;                /* used */
    rg_given *given;              /* by given state */
    rg_tensor **wholes, **pieces; /* by source, of a batch of images: put together here; all that is
                                     read */
} rg_input_buffers;

/* States that a run is given: entry k * images + n is the k-th for image n. */
typedef struct rg_given_states {
    rg_state *const *states;
    int64_t images; /* at least 1 */
    bool stacked;   /* see rg_given */
    int32_t rank;   /* rg_plan_images_rank() */
} rg_given_states;

struct rg_plan {
    rg_device *device;
    rg_graph *graph; /* a copy: names, states, data sources */
    rg_queue *queue; /* layouts record for it, and nothing is committed to it */
    rg_plan_options options;
    rg_plan_value *slots;
    int32_t slots_count;
    size_t slots_capacity; /* allocated */
    rg_step *steps;
    int32_t steps_count;
    int32_t *sources; /* their values */
    int32_t sources_count;
    rg_input_buffers buffers;
    int32_t *given; /* states that runs are given: indices in the graph */
    int32_t given_count;
    char **result_names;
    int32_t *results; /* their values */
    int32_t results_count;
    size_t nodes, results_capacity; /* allocated steps, allocated results */
    rg_tensor **parameters;         /* by value */
    int32_t run_slot; /* a further slot: the number of the run; -1: no step reads it */
    int64_t runs;     /* encoded */
    int32_t *listed;  /* values that are parameters of the plan, in order */
    int32_t listed_count;
    rg_layout_plan *layouts, *current;
    int32_t *state_steps; /* of the graph's states: their steps */
    rg_plan_update *updates;
    int32_t updates_count;
    struct rg_host_run *host_run; /* the last run with updates on the host, or NULL */
    rg_queue *own_queue;          /* of rg_plan_run_async(), or NULL */
    const rg_plan_cuts *cuts;     /* of the run that is being encoded; NULL: none */
    const rg_plan_piece *piece;   /* to which it is limited; NULL: all of it */
};

/* ---- plan.c ---- */

/* Which values a plan of the graph needs, by id. */
rg_status rg_graph_live(const rg_graph *graph, bool live[]);

/* ---- plan_order.c ---- */

/* A graph that is being compiled. */
typedef struct rg_plan_draft {
    const rg_graph *graph;
    bool *live;             /* by value */
    bool *runs;             /* by node */
    int32_t *step_of;       /* by node, or -1 */
    int32_t *readers;       /* by value: nodes that will read it and have no step yet */
    const rg_value **takes; /* by value: the parameter that it is assigned to, or NULL */
} rg_plan_draft;

/* Nodes in the order of the graph, but for those that overwrite a parameter: they wait for all who
 * read it. Rounds go over the graph; a node that waits is looked at again only when what it waits
 * for has come. Fills in `order` and `step_of` for all nodes that run; the readers of all values
 * are 0 before and after. */
rg_status rg_plan_order(rg_plan_draft *draft, const rg_node **order, int32_t *count);

/* ---- plan_query.c ---- */

/* The parameter of this name, or NULL. */
rg_tensor *rg_plan_find_parameter(const rg_plan *plan, const char *name);

/* ---- placement.c ---- */

/* Something that needs `bytes` from step `first` to step `last`. */
typedef struct rg_claim {
    size_t bytes, offset;
    size_t best; /* the offset of the best try so far */
    int32_t first, last;
} rg_claim;

/* Gives every claim an offset, so that claims of overlapping times do not overlap; returns the size
 * of the storage. */
rg_status rg_claims_place(rg_claim claims[], int32_t count, bool reuse, size_t *size);

/* The same for very many claims, in time that grows with n log n and with a little more storage:
 * `bytes` are multiples of the alignment. */
rg_status rg_claims_sweep(rg_claim claims[], int32_t count, size_t *size);

/* The largest sum of claims that are alive at one step, of `steps`: a lower bound of that size; and
 * the first such step. */
rg_status rg_claims_bound(const rg_claim claims[], int32_t count, int32_t steps, size_t *size,
                          int32_t *at);

/* ---- steps.c ---- */

rg_status rg_sequence_create(const rg_plan *plan, rg_sequence *sequence);
void rg_sequence_destroy(rg_sequence *sequence);
/* When values are made and read last, and by how many steps. */
void rg_sequence_times(rg_sequence *sequence);
/* Marks a step as gone: the others keep their indices until rg_sequence_compact(). */
void rg_sequence_drop(rg_sequence *sequence, int32_t step);
/* Notes who makes the outputs of a step that has changed. */
void rg_sequence_note_outputs(rg_sequence *sequence, int32_t step);
/* Takes away the steps that are gone, and finds the times of the others. */
rg_status rg_sequence_compact(rg_sequence *sequence);
/* The value whose storage a value has. */
static inline int32_t rg_sequence_root(const rg_sequence *sequence, int32_t value)
{
    return value >= 0 && sequence->slots[value].view >= 0 ? sequence->slots[value].view : value;
}
/* Values that a step reads, one after the other: index from 0 on, until it returns false; -1 for
 * none. */
bool rg_step_read(const rg_step *step, int32_t index, int32_t *value);
/* Whether a step before `end` writes over the parameter that `value` is, if it is one. */
bool rg_sequence_overwrites(const rg_sequence *sequence, int32_t value, int32_t end);
/* Whether the step's op is the plain sum of its two inputs: `is_sum` of its hooks. */
bool rg_step_is_sum(const rg_step *step);
/* Passes: each leaves times as they are then. Sums come before views, on which they do not depend.
 */
rg_status rg_sequence_sums(rg_sequence *sequence);
void rg_sequence_views(rg_sequence *sequence);
rg_status rg_sequence_batches(rg_sequence *sequence);

/* ---- fuse.c ---- */

rg_status rg_sequence_fuse(rg_sequence *sequence);

/* ---- recompute.c ---- */

/* Makes cheap values again for the backward pass, until storage fits or nothing more can be
 * dropped. */
rg_status rg_sequence_fit(rg_sequence *sequence, size_t budget);

/* ---- claims.c ---- */

/* What needs storage: values, then the tensors of states in the order of their steps. */
typedef struct rg_claims {
    rg_claim *list;
    int32_t count, values; /* in all; for values alone */
    int32_t *of_value;     /* by value: its claim, or -1 */
    size_t apart;          /* bytes, if none shared */
    size_t list_capacity, values_capacity;
} rg_claims;
rg_status rg_claims_make(const rg_sequence *sequence, rg_claims *claims);
void rg_claims_free(rg_claims *claims);

/* ---- layout.c ---- */

/* The layout for the inputs in the plan's buffers: an existing one, or a new one. */
rg_status rg_plan_layout(rg_plan *plan, rg_layout_plan **layout);
void rg_layout_destroy(rg_plan *plan, rg_layout_plan *layout);
/* How a source is aligned, as far as recording looks at it: whether it begins at a multiple of 16
 * bytes, where kernels of the backend want scratch of their own that depends on it. So there are
 * two layouts for a shape at most. */
static inline size_t rg_source_alignment(const rg_plan *plan, const rg_tensor *source)
{
    const bool aligned = ((uintptr_t)source->storage->data + source->offset) % 16 == 0;
    return aligned || plan->device->backend->scratch == NULL ? 0
                                                             : rg_dtype_size(source->desc.dtype);
}
/* Whether the runs of a plan are to be launched as one: sources are then dense and aligned, or
 * copied. */
bool rg_plan_may_replay(const rg_plan *plan);
/* Whether the recorded commands can read the source where it is; else they read a copy. */
bool rg_layout_reads(const rg_plan *plan, const rg_layout_plan *layout, const rg_tensor *source,
                     int32_t index);
/* Records a run of the layout with the inputs in the plan's buffers. */
rg_status rg_layout_encode(const rg_plan *plan, rg_layout_plan *layout, rg_commands *commands);
/* A tensor in the storage of a layout. */
rg_status rg_layout_tensor(const rg_plan *plan, const rg_layout_plan *layout,
                           const rg_tensor_desc *desc, size_t offset, rg_tensor **tensor);
/* Puts the names of the steps that make the inputs of a step before the sentence about it. */
void rg_layout_name_inputs(const rg_plan *plan, const rg_step *step, const rg_tensor_desc descs[]);
/* Writes a number into all elements, and waits for it. */
rg_status rg_layout_fill(rg_tensor *tensor, double number);

/* ---- layout_record.c ---- */

/* Records a run of a new layout, to be repeated. */
rg_status rg_layout_record(rg_plan *plan, rg_layout_plan *layout, const rg_claims *c);
/* The tensor of a value, or the stand-in of a source; NULL for -1. */
rg_tensor *rg_layout_value(const rg_layout_plan *layout, int32_t value);

/* ---- given_state.c ---- */

/* Notes which states the gradient nodes that run are given. */
rg_status rg_plan_note_given(rg_plan *plan, const bool runs[]);
/* Puts the states after the sources in the plan's buffers, if they fit. With `commands` they
 * must also be ready to be read. */
rg_status rg_plan_take_given(rg_plan *plan, const rg_commands *commands,
                             const rg_given_states *given, const char *who);
/* The shape of input i of the forward pass, of all images together. */
rg_tensor_desc rg_given_shape(const rg_given *given, int32_t i);
/* Whether two layouts are for states of the same shapes. */
bool rg_given_same(const rg_given *a, const rg_given *b);
/* States of a new layout whose tensors are stand-ins. */
rg_status rg_layout_make_given(const rg_plan *plan, rg_layout_plan *layout);
/* Records a gradient whose images have states of their own. */
rg_status rg_layout_record_images(const rg_layout_plan *layout, const rg_step *step);
/* Temporary states must have a read left for every step that reads them; then lowers them. */
rg_status rg_plan_check_given_counts(const rg_plan *plan, const rg_given_states *given,
                                     const char *who);
void rg_plan_count_given(const rg_plan *plan, const rg_given_states *given);

/* ---- encode.c ---- */

/* Allocates memory for `count` inputs of a run. */
rg_status rg_plan_reserve_inputs(rg_plan *plan, int64_t count);
/* rg_plan_prepare() and rg_plan_encode() with states. */
rg_status rg_plan_prepare_given(rg_plan *plan, const rg_tensor_desc sources[],
                                const rg_given_states *given, const char *who);
rg_status rg_plan_encode_given(rg_plan *plan, rg_commands *commands, rg_tensor *const sources[],
                               const rg_given_states *given, const char *who);
/* Refuses a tensor of another device, or one that the run writes. */
rg_status rg_plan_check_input(const rg_plan *plan, const rg_commands *commands, const char *who,
                              const char *kind, const char *name, const rg_tensor *tensor);

/* ---- plan_images.c ---- */

bool rg_plan_is_one_tensor(rg_tensor *const images[], int64_t count);
bool rg_plan_is_one_state(rg_state *const states[], int64_t count);
/* The highest rank among sources that are images, and among the inputs that states of images are
 * of: 3 are images (h, w, c), without a dimension for them. */
int32_t rg_plan_images_rank(const rg_plan *plan, int64_t count, rg_tensor *const sources[],
                            rg_state *const states[]);
/* Whether source i, one tensor for all images, is an image that is repeated, and not one tensor
 * that serves all; `rank`: rg_plan_images_rank(). */
bool rg_plan_repeats_image(const rg_plan *plan, int32_t i, int64_t count, int32_t rank,
                           const rg_tensor *image);

/* ---- plan_run.c ---- */

/* rg_plan_encode_batch() with states, which are NULL for a plan that is given none. */
rg_status rg_plan_encode_images(rg_plan *plan, rg_commands *commands, int64_t count,
                                rg_tensor *const sources[], rg_state *const states[],
                                const char *who);

/* ---- plan_describe.c ---- */

/* Lists the tensors in the storage of a layout, values and then states. */
rg_status rg_layout_list_memory(rg_layout_plan *layout);
/* Notes which steps leave the states that the graph asks for; `step_of`: by node. */
rg_status rg_plan_note_states(rg_plan *plan, const int32_t step_of[]);

/* ---- parameter_source.c ---- */

/* The gradient that a parameter's data source reads after each run; NULL: none. */
rg_value *rg_value_updates_by(const rg_value *parameter);
/* Loads the parameters of a new plan, but for those that it shares with another one. */
rg_status rg_plan_load_new(rg_plan *plan);
/* Lists what has to be updated, in the order in which gradients are complete. */
rg_status rg_plan_note_updates(rg_plan *plan);
/* Before a run is recorded: waits for updates of the one before, or refuses. */
rg_status rg_plan_wait_updates(rg_plan *plan);
/* After it: lets data sources record their updates, or get their gradients on the host. */
rg_status rg_plan_encode_updates(rg_plan *plan, rg_commands *commands);
void rg_plan_forget_updates(rg_plan *plan);

/* ---- encode_cut.c ---- */

/* As rg_plan_encode(), with cuts. */
rg_status rg_plan_encode_cut(rg_plan *plan, rg_commands *commands, rg_tensor *const sources[],
                             const rg_plan_cuts *cuts);
/* As rg_plan_encode(), a piece of a run. All pieces are encoded in their order, with the same
 * sources, before the plan is used for anything else. */
rg_status rg_plan_encode_piece(rg_plan *plan, rg_commands *commands, rg_tensor *const sources[],
                               const rg_plan_piece *piece);
rg_status rg_layout_encode_piece(const rg_plan *plan, const rg_layout_plan *layout,
                                 rg_commands *commands, const rg_stand_ins *stand_ins);
/* The step that makes a result, in the layout prepared or encoded last. */
rg_status rg_plan_result_step(const rg_plan *plan, const char *name, int32_t *step);
rg_status rg_layout_encode_cut(const rg_plan *plan, const rg_layout_plan *layout,
                               rg_commands *commands, const rg_stand_ins *stand_ins);

#endif
