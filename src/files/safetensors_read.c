/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Safetensors: files are opened, asked and closed; elements are read when they are asked for. */
#include "files/safetensors_file.h"
#include "files/tensor_pieces.h"

#include <string.h>

/* ---- opening and closing ---- */

static rg_status make_file(const rg_allocator *allocator, const char *path, rg_safetensors **file)
{
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_safetensors), &memory));
    rg_safetensors *made = memory;
    made->allocator = *allocator;
    made->input.file = -1;
    *file = made;
    RG_TRY(rg_allocate(allocator, strlen(path) + 1, &memory));
    made->path = memcpy(memory, path, strlen(path) + 1);
    return RG_OK;
}

rg_status rg_safetensors_open_with(const rg_allocator *allocator, const char *path,
                                   rg_safetensors **file)
{
    RG_CHECK(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, RG_UNSUPPORTED,
             "%s: big-endian machines are not supported by this format", path);
    rg_safetensors *made = NULL;
    rg_status status = make_file(allocator, path, &made);
    if (status == RG_OK)
        status = rg_input_open(&made->input, path);
    if (status == RG_OK)
        status = rg_safetensors_read_header(made);
    if (status != RG_OK) {
        rg_error_prefix("%s: ", path);
        rg_safetensors_close(made);
        return status;
    }
    *file = made;
    return RG_OK;
}

rg_status rg_safetensors_open(const char *path, rg_safetensors **file)
{
    RG_CHECK_NOT_NULL(file);
    *file = NULL;
    RG_CHECK_NOT_NULL(path);
    return rg_safetensors_open_with(&rg_default_allocator, path, file);
}

void rg_safetensors_close(rg_safetensors *file)
{
    if (file == NULL)
        return;
    const rg_allocator allocator = file->allocator;
    rg_input_close(&file->input);
    rg_release(&allocator, file->header, (size_t)file->header_size);
    rg_release(&allocator, file->tensors, file->capacity * sizeof(rg_safetensors_tensor));
    rg_release(&allocator, file->sorted, file->capacity * sizeof(rg_safetensors_tensor *));
    rg_release(&allocator, file->texts,
               rg_safetensors_metadata_count(file) * sizeof(rg_json_value *));
    if (file->json.strings != NULL)
        rg_json_clear(&file->json);
    if (file->path != NULL)
        rg_release(&allocator, file->path, strlen(file->path) + 1);
    rg_release(&allocator, file, sizeof *file);
}

/* ---- asking ---- */

static const rg_safetensors_tensor *info_of(const rg_safetensors *file, size_t index)
{
    return file != NULL && index < file->count ? &file->tensors[index] : NULL;
}

size_t rg_safetensors_count(const rg_safetensors *file)
{
    return file != NULL ? file->count : 0;
}

const char *rg_safetensors_name(const rg_safetensors *file, size_t index)
{
    const rg_safetensors_tensor *t = info_of(file, index);
    return t != NULL ? t->name : NULL;
}

const char *rg_safetensors_dtype(const rg_safetensors *file, size_t index)
{
    const rg_safetensors_tensor *t = info_of(file, index);
    return t != NULL ? t->dtype : NULL;
}

size_t rg_safetensors_bytes(const rg_safetensors *file, size_t index)
{
    const rg_safetensors_tensor *t = info_of(file, index);
    return t != NULL ? (size_t)(t->end - t->begin) : 0;
}

size_t rg_safetensors_metadata_count(const rg_safetensors *file)
{
    return file != NULL && file->metadata != NULL ? file->metadata->count : 0;
}

const char *rg_safetensors_metadata_key(const rg_safetensors *file, size_t index)
{
    return index < rg_safetensors_metadata_count(file) ? file->texts[index]->key : NULL;
}

const char *rg_safetensors_metadata(const rg_safetensors *file, const char *key)
{
    if (file == NULL || file->metadata == NULL || key == NULL)
        return NULL;
    const rg_json_value *v = rg_json_find(file->metadata, key);
    return v != NULL ? v->text : NULL;
}

/* ---- reading ---- */

rg_status rg_safetensors_read_at(const rg_safetensors *file, void *to, size_t size, uint64_t offset)
{
    size_t got;
    RG_TRY(rg_input_read_at(&file->input, to, size, offset, &got));
    RG_CHECK(got == size, RG_IO, "cannot be read: the file was truncated");
    return RG_OK;
}

/* The tensor, if it can be read. */
static rg_status readable(const rg_safetensors *file, size_t index, const char *who,
                          const rg_safetensors_tensor **info)
{
    char name[RG_QUOTED];
    RG_CHECK(file != NULL, RG_INVALID_ARGUMENT, "%s: file is NULL", who);
    const rg_safetensors_tensor *t = info_of(file, index);
    RG_CHECK(t != NULL, RG_INVALID_ARGUMENT, "%s: %s: tensor %zu does not exist; the file has %zu",
             who, file->path, index, file->count);
    RG_CHECK(t->known, RG_UNSUPPORTED,
             "%s: the dtype of %s is %s; F32, F64, F16, BF16, U8, I32 and I64 are supported",
             file->path, rg_text_quoted(t->name, name), t->dtype);
    RG_CHECK(t->rank <= RG_MAX_RANK, RG_UNSUPPORTED, "%s: %s has %zu dimensions, more than %d",
             file->path, rg_text_quoted(t->name, name), t->rank, RG_MAX_RANK);
    *info = t;
    return RG_OK;
}

static uint64_t first_byte(const rg_safetensors *file, const rg_safetensors_tensor *t)
{
    return 8 + file->header_size + t->begin;
}

/* Puts file and tensor before the sentence of a failure. */
static rg_status named(const rg_safetensors *file, const rg_safetensors_tensor *t, rg_status status)
{
    char name[RG_QUOTED];
    if (status != RG_OK)
        rg_error_prefix("%s: %s: ", file->path, rg_text_quoted(t->name, name));
    return status;
}

rg_status rg_safetensors_desc(const rg_safetensors *file, size_t index, rg_tensor_desc *desc)
{
    const rg_safetensors_tensor *t = NULL;
    RG_CHECK_NOT_NULL(desc);
    RG_TRY(readable(file, index, __func__, &t));
    *desc = t->desc;
    return RG_OK;
}

rg_status rg_safetensors_read(const rg_safetensors *file, size_t index, void *data, size_t bytes)
{
    const rg_safetensors_tensor *t = NULL;
    RG_TRY(readable(file, index, __func__, &t));
    const size_t size = (size_t)(t->end - t->begin);
    if (bytes != size)
        return named(
            file, t,
            rg_fail(RG_INVALID_ARGUMENT, "has %zu bytes, but the size given is %zu", size, bytes));
    RG_CHECK(data != NULL || bytes == 0, RG_INVALID_ARGUMENT, "%s: data is NULL", __func__);
    return named(file, t, rg_safetensors_read_at(file, data, bytes, first_byte(file, t)));
}

static rg_status read_pieces(const rg_safetensors *file, const rg_safetensors_tensor *t,
                             rg_tensor *tensor)
{
    rg_pieces pieces;
    RG_TRY(rg_pieces_of_tensor(tensor, false, "rg_safetensors_read_tensor", &pieces));
    uint64_t at = first_byte(file, t);
    if (pieces.direct != NULL)
        return rg_safetensors_read_at(file, pieces.direct, pieces.bytes, at);
    void *staging;
    RG_TRY(rg_allocate(&file->allocator, pieces.staging, &staging));
    rg_status status = RG_OK;
    size_t size;
    while (status == RG_OK && (size = rg_pieces_next(&pieces)) > 0) {
        status = rg_safetensors_read_at(file, staging, size, at);
        at += size;
        if (status == RG_OK)
            status = rg_pieces_copy(&pieces, staging);
    }
    rg_release(&file->allocator, staging, pieces.staging);
    return status;
}

rg_status rg_safetensors_read_tensor(const rg_safetensors *file, size_t index, rg_tensor *tensor)
{
    const rg_safetensors_tensor *t = NULL;
    char here[RG_SHAPE_TEXT], there[RG_SHAPE_TEXT];
    RG_CHECK_NOT_NULL(tensor);
    RG_TRY(readable(file, index, __func__, &t));
    if (tensor->desc.dtype != t->desc.dtype || !rg_shape_same_dims(&tensor->desc, &t->desc))
        return named(file, t,
                     rg_fail(RG_INVALID_ARGUMENT, "is %s in the file, but the tensor is %s",
                             rg_shape_text(&t->desc, there), rg_shape_text(&tensor->desc, here)));
    return named(file, t, read_pieces(file, t, tensor));
}

rg_status rg_safetensors_load(const rg_safetensors *file, size_t index, rg_device *device,
                              rg_tensor **tensor)
{
    RG_CHECK_NOT_NULL(tensor);
    *tensor = NULL;
    RG_CHECK_NOT_NULL(device);
    const rg_safetensors_tensor *t = NULL;
    RG_TRY(readable(file, index, __func__, &t));
    rg_tensor *made;
    RG_TRY(named(file, t, rg_tensor_create(device, &t->desc, &made)));
    const rg_status status = rg_safetensors_read_tensor(file, index, made);
    if (status != RG_OK)
        rg_tensor_destroy(made);
    else
        *tensor = made;
    return status;
}
