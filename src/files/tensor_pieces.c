/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tensors cut along their first dimension, or, where they are dense, anywhere. */
#include "files/tensor_pieces.h"

#include "core/private_api.h"

/* A piece has about this many bytes, or one index of the dimension that is cut if that is more. */
enum { PIECE = 4 << 20 };

static int64_t rows_of_piece(const rg_pieces *p)
{
    const int64_t fit = p->row >= PIECE ? 1 : (int64_t)(PIECE / p->row);
    return fit < p->left ? fit : p->left;
}

/* Expects backend, context and args. */
static void begin(rg_pieces *p)
{
    rg_copy_args *args = &p->args;
    int64_t count = 1;
    for (int32_t d = 0; d < args->rank; d++)
        count *= args->dims[d];
    p->bytes = (size_t)count * (size_t)args->element;
    if (rg_copy_is_dense(args) || count == 0) {
        p->direct = p->backend == &rg_backend_cpu && count > 0 ? args->device : NULL;
        args->rank = 1;
        args->dims[0] = count;
        args->strides[0] = 1;
    }
    while (p->cut + 1 < args->rank && args->dims[p->cut] == 1)
        p->cut++;
    p->left = args->dims[p->cut];
    p->row = (size_t)args->element;
    for (int32_t d = p->cut + 1; d < args->rank && d < RG_MAX_RANK; d++)
        p->row *= (size_t)args->dims[d];
    p->staging = p->direct == NULL ? (size_t)rows_of_piece(p) * p->row : 0;
}

RG_PRIVATE_API rg_status rg_pieces_of_tensor(const rg_tensor *tensor, bool to_host, const char *who,
                                             rg_pieces *pieces)
{
    RG_CHECK(tensor->commands == 0, RG_INVALID_ARGUMENT, "%s: the tensor must not be a temporary",
             who);
    const size_t bytes = (size_t)rg_shape_count(&tensor->desc) * rg_dtype_size(tensor->desc.dtype);
    *pieces = (rg_pieces){ tensor->device->backend, tensor->device->context };
    char some; /* the memory of the host is not known yet */
    RG_TRY(rg_tensor_copy_args(tensor, &some, bytes, RG_LAYOUT_SAME, to_host, who, &pieces->args));
    pieces->args.device = rg_tensor_data(tensor);
    begin(pieces);
    return RG_OK;
}

rg_pieces rg_pieces_of_host(const void *data, const rg_tensor_desc *desc)
{
    rg_pieces pieces = { .backend = &rg_backend_cpu }; /* whose copies need no context */
    pieces.args = (rg_copy_args){ .device = (void *)(uintptr_t)data,
                                  .rank = desc->rank,
                                  .element = (int32_t)rg_dtype_size(desc->dtype),
                                  .to_host = true };
    for (int32_t d = 0; d < desc->rank; d++) {
        pieces.args.dims[d] = desc->dims[d];
        pieces.args.strides[d] = desc->strides[d];
    }
    begin(&pieces);
    return pieces;
}

RG_PRIVATE_API size_t rg_pieces_next(const rg_pieces *pieces)
{
    return (size_t)rows_of_piece(pieces) * pieces->row;
}

RG_PRIVATE_API rg_status rg_pieces_copy(rg_pieces *pieces, void *host)
{
    rg_copy_args *args = &pieces->args;
    const int64_t rows = rows_of_piece(pieces);
    args->host = host;
    args->dims[pieces->cut] = rows;
    RG_TRY(pieces->backend->copy(pieces->context, args));
    pieces->left -= rows;
    if (pieces->left > 0)
        args->device =
            (char *)args->device + rows * args->strides[pieces->cut] * (int64_t)args->element;
    return RG_OK;
}
