/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The messages of an ONNX file, written: tensors, inputs and outputs. */
#include "onnx/onnx_write.h"

#include "core/dtype.h"
#include "core/shape.h"

#include <string.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* Fields of TensorProto: dims 1, data_type 2, name 8, raw_data 9. */
void rg_proto_write_tensor(rg_writer *writer, uint32_t number, const char *name, int32_t type,
                           int32_t rank, const int64_t dims[], const void *data, size_t bytes)
{
    const size_t begin = rg_write_begin(writer);
    for (int32_t d = 0; d < rank; d++)
        rg_write_varint(writer, 1, (uint64_t)dims[d]);
    rg_write_varint(writer, 2, (uint64_t)type);
    rg_write_text(writer, 8, name);
    rg_write_bytes(writer, 9, data, bytes);
    if (writer->failed == RG_OK && bytes > 0)
        rg_proto_byte_order(writer->data + writer->size - bytes, bytes, rg_onnx_type_size(type));
    rg_write_end(writer, number, begin);
}

/* ValueInfoProto: name 1, type 2; TypeProto: tensor_type 1; its elem_type 1 and shape 2; dim 1 with
 * dim_value 1 or dim_param 2. */
void rg_proto_write_port(rg_writer *writer, uint32_t number, const char *name, int32_t type,
                         int32_t rank, const int64_t dims[])
{
    const size_t begin = rg_write_begin(writer);
    rg_write_text(writer, 1, name);
    const size_t type_begin = rg_write_begin(writer), tensor_begin = type_begin;
    rg_write_varint(writer, 1, (uint64_t)type);
    const size_t shape_begin = rg_write_begin(writer);
    for (int32_t d = 0; d < rank; d++) {
        const size_t dim_begin = rg_write_begin(writer);
        if (dims[d] == RG_ONNX_ANY_DIM)
            rg_write_text(writer, 2, "batch");
        else if (dims[d] != RG_ONNX_OTHER_DIM)
            rg_write_varint(writer, 1, (uint64_t)dims[d]);
        rg_write_end(writer, 1, dim_begin);
    }
    rg_write_end(writer, 2, shape_begin);
    rg_write_end(writer, 1, tensor_begin);
    rg_write_end(writer, 2, type_begin);
    rg_write_end(writer, number, begin);
}

static rg_status read_as(const rg_tensor *tensor, rg_dtype dtype, void *data, size_t bytes)
{
    rg_tensor_desc desc;
    void *own;
    RG_TRY(rg_tensor_get_desc(tensor, &desc));
    if (desc.dtype == dtype)
        return rg_tensor_read(tensor, data, bytes, RG_LAYOUT_SAME);
    const size_t count = (size_t)rg_shape_count(&desc);
    const size_t own_bytes = count * rg_dtype_size(desc.dtype);
    RG_TRY(rg_allocate(allocator, own_bytes, &own));
    rg_status status = rg_tensor_read(tensor, own, own_bytes, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_convert(data, dtype, own, desc.dtype, count);
    rg_release(allocator, own, own_bytes);
    return status;
}

rg_status rg_plan_elements(rg_plan *plan, const char *name, const int32_t order[], rg_dtype dtype,
                           void **data, size_t *bytes)
{
    int32_t inverse[RG_MAX_RANK];
    rg_tensor *tensor, *view = NULL;
    rg_tensor_desc desc;
    *data = NULL;
    *bytes = 0;
    RG_TRY(rg_plan_parameter(plan, name, &tensor));
    RG_TRY(rg_tensor_get_desc(tensor, &desc));
    for (int32_t d = 0; d < desc.rank; d++)
        inverse[order[d]] = d;
    RG_TRY(rg_tensor_permute(tensor, inverse, &view));
    *bytes = (size_t)rg_shape_count(&desc) * rg_dtype_size(dtype);
    rg_status status = rg_allocate(allocator, *bytes, data);
    if (status == RG_OK && *bytes > 0)
        status = read_as(view, dtype, *data, *bytes);
    rg_tensor_destroy(view);
    if (status != RG_OK) {
        rg_release(allocator, *data, *bytes);
        *data = NULL;
    }
    return status;
}

rg_status rg_writer_save(rg_writer *writer, rg_status status, const char *path)
{
    if (status == RG_OK)
        status = writer->failed;
    if (status == RG_OK)
        status = rg_file_write(path, writer->data, writer->size);
    rg_writer_release(writer);
    return status;
}
