/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Devices run kernels; queues order the work on a device. */
#ifndef RETROGRADE_DEVICE_H
#define RETROGRADE_DEVICE_H

#include <retrograde/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rg_device rg_device;
typedef struct rg_queue rg_queue;

/** Threads of the caller, for hosts that have a thread pool of their own. `run` calls
 *  task(data, 0) to task(data, count - 1), each once, on any threads, some or all at the same time,
 *  and returns when all have returned. A task needs 512 KiB of stack. */
typedef struct rg_parallel {
    void (*run)(void *context, int32_t count, void (*task)(void *data, int32_t index), void *data);
    void *context; /**< passed to `run` */
} rg_parallel;

/** Options of a device. Initialize with rg_device_options_default(). */
typedef struct rg_device_options {
    uint32_t size;                 /**< of this struct; set by rg_device_options_default() */
    const rg_allocator *allocator; /**< for host memory; copied; NULL (default): the C library's */
    /** CPU only: number of threads that run a kernel, including the calling thread; 1 to 1024.
     * 0 (default) uses the environment variable RG_THREADS, or else all processors of the process.
     */
    int32_t threads;
    /** CPU only: the highest instruction set to use, "base", "avx2" or "avx512". NULL (default)
     * uses the environment variable RG_CPU, or else the highest that the machine supports. */
    union {
        const char *isa;
        const char *rung RG_DEPRECATED("use isa"); /**< the name of `isa` in version 0.1 */
    };
    /** GPU only: lets convolutions and matrix products of f32 tensors round their operands to TF32,
     * which has 10 mantissa bits instead of 23 and is several times as fast; sums stay f32. False
     * by default. Has no effect on a CPU. */
    bool tf32;
    /** CPU only: threads of the caller in place of the device's own; copied, and called by threads
     * that wait for commands, before which nothing runs but what has a completion handler.
     * `threads` is then how many tasks a kernel is shared among. NULL
     * (default): the device starts threads. Values never depend on it. */
    const rg_parallel *parallel;
} rg_device_options;
RG_API rg_device_options rg_device_options_default(void);

/** Opens "cpu", "cuda" or "cuda:N". `options` may be NULL. The same device may be opened
 *  several times with different options; objects of different handles cannot be combined. */
RG_API rg_status rg_device_create(const char *name, const rg_device_options *options,
                                  rg_device **device);

/** Releases the device. Objects created on it keep it alive until they are destroyed. NULL is
 *  allowed. */
RG_API void rg_device_destroy(rg_device *device);

/** Writes the name of the index-th device of this machine into `name`: "cpu", then "cuda:0" and
 *  so on. RG_NO_DEVICE past the last. */
RG_API rg_status rg_device_list(int32_t index, char *name, size_t capacity);

/** The name of the device: "cpu" or "cuda:N". Valid as long as the device. */
RG_API const char *rg_device_name(const rg_device *device);

/** Number of threads that run a kernel; 1 on a GPU. */
RG_API int32_t rg_device_threads(const rg_device *device);

/** The instruction set in use: "base", "avx2" or "avx512", on a GPU its architecture, "sm_90". */
RG_API const char *rg_device_isa(const rg_device *device);
RG_DEPRECATED("use rg_device_isa") RG_API const char *rg_device_rung(const rg_device *device);

/** Writes a description, "NVIDIA H200, 139.8 GiB, …", and a 0 byte into `text`; truncated if it
 *  does not fit. Returns the full length; `text` may be NULL with capacity 0. */
RG_API size_t rg_device_describe(const rg_device *device, char *text, size_t capacity);

/** The CPU instruction sets that this build and machine support, lowest first: index 0 is
 *  "base". NULL past the last. */
RG_API const char *rg_device_isa_list(int32_t index);
RG_DEPRECATED("use rg_device_isa_list") RG_API const char *rg_device_rung_list(int32_t index);

/** Creates a queue. Work of one queue runs in the order of its commits; different queues run in
 *  parallel. */
RG_API rg_status rg_queue_create(rg_device *device, rg_queue **queue);

/** Creates a queue on a stream of the caller, a cudaStream_t of the same GPU (NULL: CUDA's default
 *  stream): work runs in order with the caller's other work on the stream. The stream must outlive
 *  the queue and its work; CUDA's last error of a thread that commits is cleared. RG_UNSUPPORTED on
 *  the CPU. */
RG_API rg_status rg_queue_wrap(rg_device *device, void *stream, rg_queue **queue);

/** Releases the queue. Committed work still runs to its end, on a thread of the queue if no thread
 *  waits for it. NULL is allowed. */
RG_API void rg_queue_destroy(rg_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
