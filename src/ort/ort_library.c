/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The library that ONNX Runtime loads: registers gradient operators, one for each type of elements,
 * in the runtime's own domain and in one of ours. */
#include "backend/kernel_lists.h"
#include "ort/ort_call.h"
#include "ort/ort_kernel.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define RG_CPU_TABLES_ort(TABLE, real, isa) \
    TABLE(ort_norm, real, isa)              \
    TABLE(ort_scatter, real, isa) TABLE(ort_loss, real, isa) TABLE(ort_conv, real, isa)
#define RG_CPU_WIDE_F64_ort RG_CPU_TABLES_ort
#define RG_CUDA_TABLES_ort(TABLE)
RG_KERNELS_DEFINE(ort)

/* In which domains an operator is: ONNX Runtime's, ours, and that of ONNX, where the training build
 * has gradients of pooling. */
enum { RUNTIME = 1, OURS = 2, ONNX = 4 };

/* Operators that are registered. */
static const struct {
    const char *name;
    uint32_t domains;
    bool direct; /* the gradient of one op */
} names[] = { { "SoftmaxGrad", RUNTIME | OURS, true },
              { "SoftmaxGrad_13", RUNTIME | OURS, true },
              { "LogSoftmaxGrad", RUNTIME | OURS, true },
              { "LogSoftmaxGrad_13", RUNTIME | OURS, true },
              { "ReluGrad", RUNTIME | OURS, true },
              { "LeakyReluGrad", RUNTIME | OURS, true },
              { "SigmoidGrad", RUNTIME | OURS, true },
              { "TanhGrad", RUNTIME | OURS, true },
              { "GeluGrad", RUNTIME | OURS, true },
              { "FastGeluGrad", RUNTIME | OURS, true },
              { "QuickGeluGrad", RUNTIME | OURS, true },
              { "ConvGrad", RUNTIME | OURS, false },
              { "MaxPoolGrad", RUNTIME | OURS | ONNX, false },
              { "AveragePoolGrad", RUNTIME | OURS | ONNX, false },
              { "BatchNormalizationGrad", RUNTIME | OURS, false },
              { "LayerNormalizationGrad", RUNTIME | OURS, false },
              { "SoftmaxCrossEntropyLossGrad", RUNTIME | OURS, false },
              { "DropoutGrad", RUNTIME | OURS, false },
              { "DivGrad", RUNTIME | OURS, false },
              { "SliceGrad", RUNTIME | OURS, false },
              { "GatherGrad", RUNTIME | OURS, false },
              { "InPlaceAccumulatorV2", RUNTIME | OURS, false },
              { "SGDOptimizerV2", OURS, false },
              { "AdamWOptimizer", OURS, false } };

/* Those that native kernels alone compute, described as in the table of ONNX's operators. The
 * optimizers take one parameter: operators of a library cannot have sequences of tensors. */
static const rg_onnx_operator natives[] = {
    { "GatherGrad", "com.microsoft", &rg_op_slice, true, "", "shape indices dY", "dX", "axis:int=0",
      NULL, NULL },
    { "InPlaceAccumulatorV2", "com.microsoft", &rg_op_slice, true, "",
      "accumulation_buffer value overwrite_flag?", "updated_flag accumulation_buffer_out", "", NULL,
      NULL },
    { "SGDOptimizerV2", "org.retrograde", &rg_op_slice, true, "", "learning_rate weight gradient",
      "new_weight", "", NULL, NULL },
    { "AdamWOptimizer", "org.retrograde", &rg_op_slice, true, "",
      "learning_rate step weight gradient moment_1 moment_2",
      "new_weight new_moment_1 new_moment_2",
      "alpha:float=0.9 beta:float=0.999 epsilon:float=1e-8 weight_decay:float=1e-2 "
      "adam_mode:int=0 correct_bias:int=1",
      NULL, NULL },
};

static const ort_type types[] = { ORT_FLOAT, ORT_DOUBLE, ORT_FLOAT16, ORT_BFLOAT16 };
static const char *const domains[] = { "com.microsoft", "org.retrograde", "" }; /* by bits */

enum {
    NAMES = sizeof names / sizeof names[0],
    TYPES = sizeof types / sizeof types[0],
    DOMAINS = sizeof domains / sizeof domains[0],
    MOST_VARIANTS = 2,
    ENTRIES = NAMES * TYPES * (1 + MOST_VARIANTS)
};

/* Sessions keep pointers to these and to the domains. */
static ort_entry entries[ENTRIES];
static int32_t entry_count;

/* ---- what the runtime asks of an operator ---- */

static const ort_entry *entry_of(const ort_custom_op *op)
{
    return (const ort_entry *)(const void *)op;
}

static const char *get_name(const ort_custom_op *op)
{
    return entry_of(op)->entry->name;
}

static const char *get_provider(const ort_custom_op *op)
{
    return entry_of(op)->cuda ? "CUDAExecutionProvider" : NULL;
}

/* Variants of an operator: other types of some tensors. ONNX's LayerNormalization gives statistics
 * in float whatever the type of its data; the training build has scales and statistics of batch
 * normalization in float beside data of 16 bits, labels and indices in int32, and ratios in any
 * type. 0: the type of the data. */
static const struct {
    const char *op;
    int variant;
    const char *tensors;
    ort_type type;
} variants[] = {
    { "LayerNormalizationGrad", 1, "mean inv_std_dev", ORT_FLOAT },
    { "BatchNormalizationGrad", 1, "mean variance", ORT_FLOAT },
    { "BatchNormalizationGrad", 2, "scale mean variance scale_grad bias_grad", ORT_FLOAT },
    { "SoftmaxCrossEntropyLossGrad", 1, "label", ORT_INT32 },
    { "GatherGrad", 1, "indices", ORT_INT32 },
    { "DropoutGrad", 1, "ratio", 0 },
    { "SliceGrad", 1, "starts ends axes steps", ORT_INT32 },
};

/* Whether a list of words has this one. */
static bool has_word(const char *words, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += length) {
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
            return true;
    }
    return false;
}

/* The type of elements of an input or output. */
static ort_type type_of(const ort_entry *e, const rg_onnx_tensor *tensor)
{
    static const struct {
        const char *name;
        ort_type type;
    } others[] = {
        { "Indices", ORT_INT64 },       { "label", ORT_INT64 },         { "shape", ORT_INT64 },
        { "starts", ORT_INT64 },        { "ends", ORT_INT64 },          { "axes", ORT_INT64 },
        { "steps", ORT_INT64 },         { "mask", ORT_BOOL },           { "ratio", ORT_FLOAT },
        { "training_mode", ORT_BOOL },  { "indices", ORT_INT64 },       { "step", ORT_INT64 },
        { "learning_rate", ORT_FLOAT }, { "overwrite_flag", ORT_BOOL }, { "updated_flag", ORT_BOOL }
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0] && e->variant > 0; i++) {
        if (variants[i].variant == e->variant && strcmp(variants[i].op, e->entry->name) == 0 &&
            has_word(variants[i].tensors, tensor->name))
            return variants[i].type != 0 ? variants[i].type : e->type;
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcmp(others[i].name, tensor->name) == 0)
            return others[i].type;
    }
    return e->type;
}

static ort_type get_input_type(const ort_custom_op *op, size_t index)
{
    return entry_of(op)->input_types[index];
}

static ort_type get_output_type(const ort_custom_op *op, size_t index)
{
    return entry_of(op)->output_types[index];
}

static size_t get_input_count(const ort_custom_op *op)
{
    return (size_t)entry_of(op)->input_count;
}

static size_t get_output_count(const ort_custom_op *op)
{
    return (size_t)entry_of(op)->output_count;
}

static int get_input_kind(const ort_custom_op *op, size_t index)
{
    return entry_of(op)->inputs[index].optional;
}

static int get_output_kind(const ort_custom_op *op, size_t index)
{
    (void)index; /* what is not wanted has no name in the node */
    return entry_of(op)->output_count > 1;
}

static int get_input_memory(const ort_custom_op *op, size_t index)
{
    (void)op, (void)index;
    return 0;
}

static int get_first_version(const ort_custom_op *op)
{
    (void)op;
    return 1;
}

static int get_last_version(const ort_custom_op *op)
{
    (void)op;
    return INT_MAX;
}

/* ---- registration ---- */

static void add_entry(const rg_onnx_operator *found, int number, ort_type type, bool cuda,
                      int32_t variant)
{
    ort_entry *e = &entries[entry_count++];
    *e = (ort_entry){ .op = { .version = ORT_API_VERSION,
                              .get_name = get_name,
                              .get_provider = get_provider,
                              .get_input_type = get_input_type,
                              .get_input_count = get_input_count,
                              .get_output_type = get_output_type,
                              .get_output_count = get_output_count,
                              .destroy_kernel = rg_ort_destroy_kernel,
                              .get_input_kind = get_input_kind,
                              .get_output_kind = get_output_kind,
                              .get_input_memory = get_input_memory,
                              .create_kernel_v2 = rg_ort_create_kernel,
                              .compute_v2 = rg_ort_compute,
                              .get_first_version = get_first_version,
                              .get_last_version = get_last_version },
                      .entry = found,
                      .type = type,
                      .cuda = cuda,
                      .variant = variant,
                      .direct = names[number].direct,
                      .native =
                          found->convert == NULL && found->run == NULL && found->op == &rg_op_slice,
                      .domains = names[number].domains };
    const void *defaults = found->op->desc.defaults;
    e->input_count = rg_onnx_tensors(found, defaults, found->inputs, e->inputs);
    e->output_count = rg_onnx_tensors(found, defaults, found->outputs, e->outputs);
    for (int32_t i = 0; i < e->input_count; i++)
        e->input_types[i] = type_of(e, &e->inputs[i]);
    for (int32_t i = 0; i < e->input_count; i++)
        e->input_dtypes[i] = rg_ort_dtype_of_any(e->input_types[i]);
    for (int32_t i = 0; i < e->output_count; i++)
        e->output_types[i] = type_of(e, &e->outputs[i]);
}

static const rg_onnx_operator *find(const char *name)
{
    for (size_t i = 0; i < sizeof natives / sizeof natives[0]; i++) {
        if (strcmp(natives[i].name, name) == 0)
            return &natives[i];
    }
    return rg_onnx_find(name);
}

/* Sums of gathered rows are made in the result, which 16 bits do not hold. */
static bool has_type(const char *name, ort_type type)
{
    return strcmp(name, "GatherGrad") != 0 || type == ORT_FLOAT || type == ORT_DOUBLE;
}

/* Those that differ from the operator itself for this type of data. */
static void add_variants(const rg_onnx_operator *found, int number, ort_type type)
{
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        const bool same = type == ORT_FLOAT && variants[i].type != ORT_INT32;
        const bool narrow = type == ORT_FLOAT16 || type == ORT_BFLOAT16;
        const bool batch_norm = strcmp(found->name, "BatchNormalizationGrad") == 0;
        if (strcmp(variants[i].op, found->name) == 0 && !same && (narrow || !batch_norm) &&
            has_type(found->name, type))
            add_entry(found, number, type, false, variants[i].variant);
    }
}

/* Operators of a GPU only where there is one. */
static void make_entries(void)
{
    char device[64];
    const bool cuda = rg_device_list(1, device, sizeof device) == RG_OK;
    for (int i = 0; i < NAMES; i++) {
        const rg_onnx_operator *found = find(names[i].name);
        for (int t = 0; found != NULL && t < TYPES * (cuda && names[i].direct ? 2 : 1); t++) {
            if (has_type(names[i].name, types[t % TYPES]))
                add_entry(found, i, types[t % TYPES], t >= TYPES, 0);
        }
        for (int t = 0; found != NULL && t < TYPES; t++)
            add_variants(found, i, types[t]);
    }
}

static ort_status *make_domain(const ort_api *api, int number, ort_domain **made)
{
    ort_domain *domain = NULL;
    ort_status *status = ort_create_domain(api, domains[number], &domain);
    for (int32_t i = 0; i < entry_count && status == NULL; i++) {
        if (entries[i].domains >> number & 1)
            status = ort_domain_add(api, domain, &entries[i].op);
    }
    if (status != NULL && domain != NULL)
        ort_release_domain(api, domain);
    *made = status == NULL ? domain : NULL;
    return status;
}

/* Domains are made once for each runtime of the process, and serve all of its sessions. They go
 * with the library, which the runtime unloads after the last of them. */
typedef struct runtime {
    const ort_api *api;
    bool borrows; /* has ORT_BORROWED_SHAPE */
    ort_domain *domains[DOMAINS];
} runtime;
enum { RUNTIMES = 8 };
static runtime runtimes[RUNTIMES];
static pthread_mutex_t runtimes_lock = PTHREAD_MUTEX_INITIALIZER;

/* With the lock. */
static runtime *find_runtime(const ort_api *api)
{
    for (int i = 0; i < RUNTIMES; i++) {
        if (runtimes[i].api == api || runtimes[i].api == NULL) {
            runtimes[i].api = api;
            return &runtimes[i];
        }
    }
    return NULL;
}

static ort_status *add_domains(const ort_api *api, bool borrows, ort_session_options *options)
{
    pthread_mutex_lock(&runtimes_lock);
    runtime *r = find_runtime(api);
    ort_status *status =
        r == NULL ? ort_fail(api, ORT_FAIL, "retrograde: too many runtimes in one process") : NULL;
    if (r != NULL)
        r->borrows = borrows;
    for (int i = 0; i < DOMAINS && status == NULL; i++) {
        if (r->domains[i] == NULL)
            status = make_domain(api, i, &r->domains[i]);
        if (status == NULL)
            status = ort_add_domain(api, options, r->domains[i]);
    }
    pthread_mutex_unlock(&runtimes_lock);
    return status;
}

bool rg_ort_borrows(const ort_api *api)
{
    pthread_mutex_lock(&runtimes_lock);
    const runtime *r = find_runtime(api);
    const bool borrows = r != NULL && r->borrows;
    pthread_mutex_unlock(&runtimes_lock);
    return borrows;
}

/* When the library is unloaded. */
__attribute__((destructor)) static void unload(void)
{
    for (int i = 0; i < RUNTIMES && runtimes[i].api != NULL; i++) {
        for (int d = 0; d < DOMAINS; d++) {
            if (runtimes[i].domains[d] != NULL)
                ort_release_domain(runtimes[i].api, runtimes[i].domains[d]);
        }
    }
    rg_ort_close_devices();
}

/* Whether the runtime has a version of the table: release 1.n has version n. By the release,
 * because the runtime complains on the standard error about a version that it does not have. */
static bool is_since(const ort_api_base *base, uint32_t version)
{
    unsigned major = 0, minor = 0;
    return sscanf(base->get_version(), "%u.%u", &major, &minor) == 2 &&
           (major > 1 || minor >= version) && base->get_api(version) != NULL;
}

__attribute__((visibility("default"))) ort_status *RegisterCustomOps(ort_session_options *options,
                                                                     const ort_api_base *base);

ort_status *RegisterCustomOps(ort_session_options *options, const ort_api_base *base)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const ort_api *api = base->get_api(ORT_API_VERSION);
    if (api == NULL) { /* 0.. of the table are the same in every version */
        api = base->get_api(1);
        return api == NULL ? NULL
                           : ort_fail(api, ORT_NOT_IMPLEMENTED,
                                      "retrograde needs ONNX Runtime 1.21 or later");
    }
    pthread_once(&once, make_entries);
    return add_domains(api, is_since(base, ORT_API_BORROWED_SHAPES), options);
}
