/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Networks of ONNX models: their tensors by name, elements from the file, views in the order of the
 * file. */
#include "onnx/onnx_train.h"

#include "core/dtype.h"
#include "core/shape.h"

#include <string.h>

static const rg_allocator *const allocator = &rg_default_allocator;

void rg_onnx_network_destroy(rg_onnx_network *network)
{
    if (network == NULL)
        return;
    rg_graph_destroy(network->graph);
    rg_arena_release(&network->arena);
    rg_release(allocator, network->entries, network->entry_capacity * sizeof network->entries[0]);
    rg_names_clear(&network->entries_by_name);
    rg_release(allocator, network, sizeof *network);
}

/* ---- tensors ---- */

/* 1 + the index of an entry of this name; 0: there is none. */
static size_t index_of(const rg_onnx_network *network, const char *name)
{
    return (size_t)(uintptr_t)rg_names_find(&network->entries_by_name, name);
}

rg_status rg_onnx_network_add(rg_onnx_network *network, const rg_onnx_entry *entry)
{
    const size_t same = index_of(network, entry->info.name), own = network->entry_count + 1;
    RG_TRY(rg_grow(allocator, (void **)&network->entries, &network->entry_capacity,
                   network->entry_count, sizeof network->entries[0]));
    if (same == 0)
        RG_TRY(rg_names_add(&network->entries_by_name, entry->info.name, (void *)(uintptr_t)own));
    rg_onnx_entry *added = &network->entries[network->entry_count++];
    *added = *entry;
    added->next = same > 0 ? network->entries[same - 1].next : 0;
    if (same > 0) /* the first of a name stays the one that is found by it alone */
        network->entries[same - 1].next = own;
    return RG_OK;
}

const rg_onnx_entry *rg_onnx_network_entry(const rg_onnx_network *network, rg_onnx_role role,
                                           const char *name)
{
    for (size_t i = index_of(network, name); i > 0; i = network->entries[i - 1].next) {
        if (network->entries[i - 1].info.role == role)
            return &network->entries[i - 1];
    }
    return NULL;
}

rg_graph *rg_onnx_network_graph(rg_onnx_network *network)
{
    return network != NULL ? network->graph : NULL;
}

int32_t rg_onnx_network_tensors(const rg_onnx_network *network)
{
    return network != NULL ? (int32_t)network->entry_count : 0;
}

rg_status rg_onnx_network_tensor(const rg_onnx_network *network, int32_t index,
                                 rg_onnx_tensor_info *info)
{
    RG_CHECK_NOT_NULL(network);
    RG_CHECK_NOT_NULL(info);
    RG_CHECK(index >= 0 && (size_t)index < network->entry_count, RG_INVALID_ARGUMENT,
             "there is no tensor %d; there are %zu", index, network->entry_count);
    *info = network->entries[index].info;
    return RG_OK;
}

static rg_status find(const rg_onnx_network *network, const char *name, const rg_onnx_entry **entry)
{
    const size_t index = index_of(network, name);
    RG_CHECK(index > 0, RG_INVALID_ARGUMENT, "%s: there is no input, output or parameter '%.80s'",
             network->model->name, name);
    *entry = &network->entries[index - 1];
    return RG_OK;
}

rg_status rg_onnx_network_find(const rg_onnx_network *network, const char *name,
                               rg_onnx_tensor_info *info)
{
    const rg_onnx_entry *entry = NULL;
    RG_CHECK_NOT_NULL(network);
    RG_CHECK_NOT_NULL(name);
    RG_CHECK_NOT_NULL(info);
    RG_TRY(find(network, name, &entry));
    *info = entry->info;
    return RG_OK;
}

/* ---- elements ---- */

static void fill_from_array(const rg_array *array, rg_dtype dtype, void *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const rg_element e = rg_array_at(array, i);
        if (dtype == RG_I64)
            ((int64_t *)data)[i] = e.i;
        else
            rg_element_set(data, dtype, i, rg_type_is_integer(array->type) ? (double)e.i : e.f);
    }
}

/* Elements in the order of the file and a dtype; to be released with their size. */
rg_status rg_onnx_network_elements(const rg_onnx_network *network, const rg_onnx_entry *entry,
                                   rg_dtype dtype, void **data, size_t *bytes)
{
    const int64_t count = rg_shape_count(&entry->info.desc);
    void *file;
    size_t file_bytes;
    rg_dtype own = dtype;
    *bytes = (size_t)count * rg_dtype_size(dtype);
    *data = NULL;
    if (entry->tensor == NULL) {
        RG_CHECK(entry->array != NULL, RG_INVALID_ARGUMENT, "'%.80s' is not a constant",
                 entry->info.name);
        RG_TRY(rg_allocate(allocator, *bytes, data));
        fill_from_array(entry->array, dtype, *data, count);
        return RG_OK;
    }
    RG_CHECK(rg_onnx_type_dtype(entry->tensor->type, &own), RG_UNSUPPORTED,
             "'%.80s' has elements of type %s", entry->info.name,
             rg_onnx_type_name(entry->tensor->type));
    RG_TRY(rg_proto_elements(network->model, entry->tensor, &file, &file_bytes));
    if (own == dtype) {
        *data = file;
        return RG_OK;
    }
    rg_status status = rg_allocate(allocator, *bytes, data);
    if (status == RG_OK && count > 0)
        status = rg_convert(*data, dtype, file, own, (size_t)count);
    rg_release(allocator, file, file_bytes);
    return status;
}

static rg_status view_of(const rg_onnx_entry *entry, rg_tensor *tensor, bool to_file,
                         rg_tensor **view)
{
    int32_t order[RG_MAX_RANK];
    rg_tensor_desc desc;
    RG_TRY(rg_tensor_get_desc(tensor, &desc));
    RG_CHECK(desc.rank == entry->info.desc.rank, RG_INVALID_ARGUMENT,
             "'%.80s' has %d dimensions, not %d", entry->info.name, entry->info.desc.rank,
             desc.rank);
    for (int32_t d = 0; d < desc.rank; d++)
        order[to_file ? entry->info.order[d] : d] = to_file ? d : entry->info.order[d];
    return rg_tensor_permute(tensor, order, view);
}

static rg_status load_entry(const rg_onnx_network *network, const rg_onnx_entry *entry,
                            rg_tensor *tensor)
{
    rg_tensor *view = NULL;
    rg_tensor_desc desc;
    void *data = NULL;
    size_t bytes = 0;
    RG_TRY(rg_tensor_get_desc(tensor, &desc));
    RG_TRY(view_of(entry, tensor, true, &view));
    rg_status status = rg_onnx_network_elements(network, entry, desc.dtype, &data, &bytes);
    if (status == RG_OK)
        status = rg_tensor_write(view, data, bytes, RG_LAYOUT_SAME);
    rg_release(allocator, data, bytes);
    rg_tensor_destroy(view);
    return status;
}

rg_status rg_onnx_network_load(const rg_onnx_network *network, rg_plan *plan)
{
    RG_CHECK_NOT_NULL(network);
    RG_CHECK_NOT_NULL(plan);
    for (size_t i = 0; i < network->entry_count; i++) {
        const rg_onnx_entry *entry = &network->entries[i];
        rg_tensor *tensor;
        /* a plan keeps what its results need: parameters that it does not have are ignored */
        if (entry->info.role != RG_ONNX_PARAMETER ||
            rg_plan_parameter(plan, entry->info.name, &tensor) != RG_OK)
            continue;
        const rg_status status = load_entry(network, entry, tensor);
        if (status != RG_OK) {
            rg_error_prefix("%s: parameter '%.80s': ", network->model->name, entry->info.name);
            return status;
        }
    }
    return RG_OK;
}

rg_status rg_onnx_network_constant(const rg_onnx_network *network, const char *name,
                                   rg_device *device, rg_tensor **tensor)
{
    const rg_onnx_entry *entry = NULL;
    void *data = NULL;
    size_t bytes = 0;
    RG_CHECK_NOT_NULL(tensor);
    *tensor = NULL;
    RG_CHECK_NOT_NULL(network);
    RG_CHECK_NOT_NULL(name);
    RG_TRY(find(network, name, &entry));
    const rg_tensor_desc desc =
        rg_tensor_desc_dense(entry->info.desc.dtype, entry->info.desc.rank, entry->info.desc.dims);
    rg_status status = rg_onnx_network_elements(network, entry, desc.dtype, &data, &bytes);
    if (status == RG_OK)
        status = rg_tensor_create(device, &desc, tensor);
    if (status == RG_OK)
        status = rg_tensor_write(*tensor, data, bytes, RG_LAYOUT_SAME);
    rg_release(allocator, data, bytes);
    if (status != RG_OK) {
        rg_tensor_destroy(*tensor);
        *tensor = NULL;
    }
    return status;
}

static rg_status make_view(const rg_onnx_network *network, const char *name, rg_tensor *tensor,
                           bool to_file, rg_tensor **view)
{
    const rg_onnx_entry *entry = NULL;
    RG_CHECK_NOT_NULL(view);
    *view = NULL;
    RG_CHECK_NOT_NULL(network);
    RG_CHECK_NOT_NULL(name);
    RG_CHECK_NOT_NULL(tensor);
    RG_TRY(find(network, name, &entry));
    return view_of(entry, tensor, to_file, view);
}

rg_status rg_onnx_network_view(const rg_onnx_network *network, const char *name, rg_tensor *tensor,
                               rg_tensor **view)
{
    return make_view(network, name, tensor, false, view);
}

rg_status rg_onnx_network_file_view(const rg_onnx_network *network, const char *name,
                                    rg_tensor *tensor, rg_tensor **view)
{
    return make_view(network, name, tensor, true, view);
}
