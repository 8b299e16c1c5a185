/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Tensors: elements of one dtype, up to 8 dimensions with strides, storage on a device.
 *
 *  A matrix is (rows, columns), a stack of them (matrices, rows, columns), an image batch
 *  (images, height, width, channels). A view shares the storage of the tensor it was made from. */
#ifndef RETROGRADE_TENSOR_H
#define RETROGRADE_TENSOR_H

#include <retrograde/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rg_tensor rg_tensor;
typedef struct rg_commands rg_commands;

/** The shape of a tensor. If dims[d] is 0 or 1, strides[d] may be any number from 0 on. */
typedef struct rg_tensor_desc {
    rg_dtype dtype;
    int32_t rank;                 /**< 0 to RG_MAX_RANK; a rank of 0 is one element */
    int64_t dims[RG_MAX_RANK];    /**< elements along each dimension, at least 0 */
    int64_t strides[RG_MAX_RANK]; /**< distance between indices in elements, at least 0 */
} rg_tensor_desc;

/** A description with the last dimension contiguous and no gaps. A call that uses the
 *  description reports shapes that are out of range. */
RG_API rg_tensor_desc rg_tensor_desc_dense(rg_dtype dtype, int32_t rank, const int64_t dims[]);

/** Allocates a tensor; its elements are undefined until written. */
RG_API rg_status rg_tensor_create(rg_device *device, const rg_tensor_desc *desc,
                                  rg_tensor **tensor);

/** Wraps memory of the caller: element (0, …, 0) is at `data`, which must be aligned to the size
 *  of an element and contain all elements of `desc`. On a GPU it is memory of that GPU, managed
 *  memory or pinned host memory. `release`, which may be NULL, is called once with `context`, on
 *  any thread, after the last use; it is not called on failure. */
RG_API rg_status rg_tensor_wrap(rg_device *device, const rg_tensor_desc *desc, void *data,
                                void (*release)(void *context), void *context, rg_tensor **tensor);

/** Creates a temporary of `commands`. Its storage comes from a heap shared with their other
 *  temporaries. It starts with a read count of 1 (see rg_tensor_read_count). */
RG_API rg_status rg_tensor_create_temporary(rg_commands *commands, const rg_tensor_desc *desc,
                                            rg_tensor **tensor);

/** Releases the tensor. Commands that use it keep its storage alive. NULL is allowed. */
RG_API void rg_tensor_destroy(rg_tensor *tensor);

/* ---- views: no copy; the caller destroys each view ---- */

/** Elements start[d], start[d] + step[d], … (length[d] of them) of each dimension d. `step` may
 *  be NULL, which means 1 in every dimension. */
RG_API rg_status rg_tensor_slice(rg_tensor *tensor, const int64_t start[], const int64_t length[],
                                 const int64_t step[], rg_tensor **view);

/** Dimension d of the view is dimension order[d] of the tensor. */
RG_API rg_status rg_tensor_permute(rg_tensor *tensor, const int32_t order[], rg_tensor **view);

/** The same elements in row-major order with another shape. Fails if the strides require a copy. */
RG_API rg_status rg_tensor_reshape(rg_tensor *tensor, int32_t rank, const int64_t dims[],
                                   rg_tensor **view);

/** Broadcasts dimensions of length 1, and adds new leading dimensions, with stride 0. Such a view
 *  can be read, but not written. */
RG_API rg_status rg_tensor_expand(rg_tensor *tensor, int32_t rank, const int64_t dims[],
                                  rg_tensor **view);

/* ---- queries ---- */

RG_API rg_status rg_tensor_get_desc(const rg_tensor *tensor, rg_tensor_desc *desc);
/** The device, owned by the tensor. */
RG_API rg_device *rg_tensor_device(const rg_tensor *tensor);
/** A name for diagnostics; "" by default. The text is copied, and views have labels of their own.
 *  Must not run while another thread reads the label. */
RG_API rg_status rg_tensor_set_label(rg_tensor *tensor, const char *label);
RG_API const char *rg_tensor_label(const rg_tensor *tensor);
/** The address of element (0, …, 0) in the memory of the device; NULL for a temporary. */
RG_API void *rg_tensor_data(const rg_tensor *tensor);
/** Bytes of storage this tensor owns: 0 for a view and for wrapped memory. */
RG_API size_t rg_tensor_bytes(const rg_tensor *tensor);

/* ---- host access ---- */

/** The order of the elements on the host. */
typedef enum rg_layout {
    RG_LAYOUT_SAME, /**< row-major in the tensor's own order of dimensions */
    RG_LAYOUT_NCHW  /**< the tensor is (n, h, w, c), or (h, w, c); the host has (n, c, h, w), or (c,
                       h, w) */
} rg_layout;

/** Copies all elements to `data`, dense and in the tensor's dtype. `bytes` must be their exact
 *  size. Does not wait: the caller must first wait for the commands that write the tensor. Not
 *  for temporaries. */
RG_API rg_status rg_tensor_read(const rg_tensor *tensor, void *data, size_t bytes,
                                rg_layout layout);

/** Copies all elements from `data`; the inverse of rg_tensor_read. */
RG_API rg_status rg_tensor_write(rg_tensor *tensor, const void *data, size_t bytes,
                                 rg_layout layout);

/* ---- temporaries ---- */

RG_API bool rg_tensor_is_temporary(const rg_tensor *tensor);

/** The number of reads that can still be recorded. Every recorded call that reads a temporary
 *  decrements its count by one, even if the call reads it several times. At 0 its storage is
 *  reused and any further use fails. A view of a temporary is a temporary with its own count;
 *  when that reaches 0 it decrements the count of its parent. Always 0 for other tensors. */
RG_API uint64_t rg_tensor_read_count(const rg_tensor *tensor);

/** Sets the count; 0 releases the storage at once. Fails if the count is 0 and for other tensors.
 */
RG_API rg_status rg_tensor_set_read_count(rg_tensor *tensor, uint64_t count);

/** Adds `amount`, which may be negative, to the count of every distinct temporary among
 *  `tensors` whose count is not 0. Returns the number of distinct tensors. A sum below 0 counts
 *  as 0. */
RG_API size_t rg_tensor_add_read_count(rg_tensor *const tensors[], size_t count, int64_t amount);

#ifdef __cplusplus
}
#endif

#endif
