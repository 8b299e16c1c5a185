/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Devices, which run kernels, and queues, which order their work. */
#ifndef RETROGRADE_DEVICE_H
#define RETROGRADE_DEVICE_H

#include <retrograde/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rg_device rg_device;
typedef struct rg_queue rg_queue;

/** How to open a device. Start from rg_device_options_default(). */
typedef struct rg_device_options {
    uint32_t size;                 /**< of this struct; set by rg_device_options_default() */
    const rg_allocator *allocator; /**< of host memory; copied; NULL (default): the C library's */
    /** CPU alone: threads that share a kernel, the calling one included; 1 to 1024. 0 (default)
     * takes the environment variable RG_THREADS, or else as many as the process may use processors.
     */
    int32_t threads;
    /** CPU alone: the highest instruction set to use, "base", "avx2" or "avx512". NULL (default)
     * takes the environment variable RG_CPU, or else the best that processor and system allow. */
    union {
        const char *isa;
        const char *rung RG_DEPRECATED("use isa"); /**< the name of `isa` in version 0.1 */
    };
    /** GPU alone: lets convolutions and matrix products of f32 tensors round what they multiply to
     * TF32, which has 10 bits behind the point instead of 23, and run several times as fast; sums
     * stay f32. False by default: f32 is f32. A CPU has nothing of the kind. */
    bool tf32;
} rg_device_options;
RG_API rg_device_options rg_device_options_default(void);

/** Opens "cpu", "cuda" or "cuda:N". `options` may be NULL. The same device may be opened many
 *  times, with different options; objects of one opening do not mix with those of another. */
RG_API rg_status rg_device_create(const char *name, const rg_device_options *options,
                                  rg_device **device);

/** Gives the device back. Objects made on it keep it alive until they are destroyed. NULL
 *  allowed. */
RG_API void rg_device_destroy(rg_device *device);

/** Writes the name of the index-th device of this machine into `name`: "cpu", then "cuda:0" and
 *  so on. RG_NO_DEVICE past the last. */
RG_API rg_status rg_device_list(int32_t index, char *name, size_t capacity);

/** What was opened: "cpu" or "cuda:N". Lives as long as the device. */
RG_API const char *rg_device_name(const rg_device *device);

/** Threads that share a kernel; 1 on a GPU. */
RG_API int32_t rg_device_threads(const rg_device *device);

/** The instruction set in use: "base", "avx2" or "avx512", on a GPU its architecture, "sm_90". */
RG_API const char *rg_device_isa(const rg_device *device);
RG_DEPRECATED("use rg_device_isa") RG_API const char *rg_device_rung(const rg_device *device);

/** Writes one line for people, "NVIDIA H200, 139.8 GiB, …", and a 0 byte into `text`; cut if it
 *  does not fit. Returns its whole length, so that `text` may be NULL with capacity 0. */
RG_API size_t rg_device_describe(const rg_device *device, char *text, size_t capacity);

/** The instruction sets of the CPU that this build and machine offer, from the lowest: index 0 is
 *  "base". NULL past the last. */
RG_API const char *rg_device_isa_list(int32_t index);
RG_DEPRECATED("use rg_device_isa_list") RG_API const char *rg_device_rung_list(int32_t index);

/** Makes an ordered stream of work. Work of one queue runs in the order of its commits; queues
 *  run side by side. */
RG_API rg_status rg_queue_create(rg_device *device, rg_queue **queue);

/** Makes a queue over a stream of the caller, a cudaStream_t of the same GPU (NULL: CUDA's default
 *  stream): work runs in order with what else the caller puts there. The stream must outlive the
 *  queue and its work; CUDA's last error of a thread that commits is cleared. RG_UNSUPPORTED on
 *  the CPU. */
RG_API rg_status rg_queue_wrap(rg_device *device, void *stream, rg_queue **queue);

/** Gives the queue back; work already committed still runs to its end, on a thread of the queue
 *  if nobody waits for it. NULL allowed. */
RG_API void rg_queue_destroy(rg_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
