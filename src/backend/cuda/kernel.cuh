/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What CUDA kernels share: loads and stores of every dtype, 16 bytes at a time where they can,
 * walks, and reductions in a fixed order. */
#ifndef RG_BACKEND_CUDA_KERNEL_CUH
#define RG_BACKEND_CUDA_KERNEL_CUH

#include "backend/backend.h"
#include "backend/cuda/target.h"
#include "core/sweep.h"

enum { WARP_THREADS = 32 };

/* ---- dtypes: how elements are stored, and in what we compute ---- */

template <rg_dtype T> struct types {
    typedef uint16_t element; /* f16 and bf16 */
    typedef float real;
};
template <> struct types<RG_F32> {
    typedef float element;
    typedef float real;
};
template <> struct types<RG_F64> {
    typedef double element;
    typedef double real;
};
template <rg_dtype T> using element = typename types<T>::element;
template <rg_dtype T> using real = typename types<T>::real;

/* Elements of a vector, which is 16 bytes. */
template <rg_dtype T> constexpr int VLEN = 16 / (int)sizeof(element<T>);

template <rg_dtype T> static __device__ __forceinline__ real<T> to_real(element<T> e)
{
    if constexpr (T == RG_BF16) {
        return __uint_as_float((uint32_t)e << 16);
    } else if constexpr (T == RG_F16) {
        float f;
        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(e));
        return f;
    } else {
        return e;
    }
}

template <rg_dtype T> static __device__ __forceinline__ element<T> from_real(real<T> x)
{
    if constexpr (T == RG_BF16) {
#if __CUDA_ARCH__ >= 800
        uint16_t e;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(e) : "f"(x));
        return e;
#else
        const uint32_t bits = __float_as_uint(x), odd = bits >> 16 & 1;
        return x != x ? 0x7fff : (uint16_t)((bits + 0x7fff + odd) >> 16);
#endif
    } else if constexpr (T == RG_F16) {
        uint16_t e;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(e) : "f"(x));
        return e;
    } else {
        return x;
    }
}

template <rg_dtype T> static __device__ __forceinline__ real<T> load(const void *data, int64_t i)
{
    return to_real<T>(((const element<T> *)data)[i]);
}

template <rg_dtype T>
static __device__ __forceinline__ void store(void *data, int64_t i, real<T> value)
{
    ((element<T> *)data)[i] = from_real<T>(value);
}

/* Stores a result, or adds it to the old value. */
template <rg_dtype T>
static __device__ __forceinline__ void put(void *data, int64_t i, real<T> value, bool add)
{
    if (add)
        value += load<T>(data, i);
    store<T>(data, i, value);
}

/* The same; `wide`: as f32 beside f16 or bf16. */
template <rg_dtype T>
static __device__ __forceinline__ void put_as(void *data, int64_t i, real<T> value, bool add,
                                              bool wide)
{
    if (wide)
        put<T == RG_F64 ? RG_F64 : RG_F32>(data, i, value, add);
    else
        put<T>(data, i, value, add);
}

/* The address of element i. */
template <rg_dtype T>
static __host__ __device__ __forceinline__ char *at(const void *data, int64_t i)
{
    return (char *)data + i * (int64_t)sizeof(element<T>);
}

/* ---- vectors: VLEN elements in 16 aligned bytes ---- */

static __device__ __forceinline__ uint4 load_vector(const void *from)
{
    return *(const uint4 *)from;
}

/* `stream`: by a streaming store, because it is not read soon. */
static __device__ __forceinline__ void store_vector(void *to, uint4 vector, bool stream)
{
    if (stream)
        __stcs((uint4 *)to, vector);
    else
        *(uint4 *)to = vector;
}

template <rg_dtype T>
static __device__ __forceinline__ void unpack(const uint4 &vector, real<T> x[VLEN<T>])
{
    const uint32_t words[4] = { vector.x, vector.y, vector.z, vector.w };
#pragma unroll
    for (int i = 0; i < VLEN<T>; i++) {
        if constexpr (T == RG_F32)
            x[i] = __uint_as_float(words[i]);
        else if constexpr (T == RG_F64)
            x[i] = __hiloint2double((int)words[2 * i + 1], (int)words[2 * i]);
        else
            x[i] = to_real<T>((uint16_t)(words[i / 2] >> i % 2 * 16));
    }
}

/* Two results of 16 bits in a word. */
template <rg_dtype T> static __device__ __forceinline__ uint32_t pack_two(float low, float high)
{
    uint32_t word;
#if __CUDA_ARCH__ >= 800
    if constexpr (T == RG_BF16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#else
    word = (uint32_t)from_real<T>(high) << 16 | from_real<T>(low);
#endif
    return word;
}

template <rg_dtype T> static __device__ __forceinline__ uint4 pack(const real<T> x[VLEN<T>])
{
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (T == RG_F32)
            words[i] = __float_as_uint(x[i]);
        else if constexpr (T == RG_F64)
            words[i] = (uint32_t)(i % 2 ? __double2hiint(x[i / 2]) : __double2loint(x[i / 2]));
        else
            words[i] = pack_two<T>(x[2 * i], x[2 * i + 1]);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Copies 16 aligned bytes to shared memory in the background, until await_copies(). */
static __device__ __forceinline__ void copy_vector(void *shared, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(shared)),
                   "l"(__cvta_generic_to_global(from))
                 : "memory");
#else
    *(uint4 *)shared = *(const uint4 *)from;
#endif
}

static __device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* Copies the first `size` of BYTES to shared memory in the background, and zeros after them.
 * `CACHED`: through the L1 cache. Devices before 8.0 copy all or nothing. */
template <int BYTES, bool CACHED = BYTES != 16>
static __device__ __forceinline__ void copy_async(void *shared, const void *from, int size)
{
#if __CUDA_ARCH__ >= 800
    if constexpr (CACHED)
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
                     "l"(from), "n"(BYTES), "r"(size));
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
                     "l"(from), "n"(BYTES), "r"(size));
#else
    for (int i = 0; i < BYTES / 4; i++)
        ((uint32_t *)shared)[i] = size != 0 ? ((const uint32_t *)from)[i] : 0;
#endif
}

/* BYTES, or zeros where they are not `valid`. */
template <int BYTES>
static __device__ __forceinline__ void copy_or_zero(void *shared, const void *from, bool valid)
{
    copy_async<BYTES>(shared, from, valid ? BYTES : 0);
}

/* After it the thread sees its own copies; other threads see them after a barrier. */
static __device__ __forceinline__ void await_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

/* Copies in steps: end_copies() ends a step, and await_steps waits for the thread's own copies of
 * all steps but the last STEPS. */
static __device__ __forceinline__ void end_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

template <int STEPS> static __device__ __forceinline__ void await_steps()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" : : "n"(STEPS) : "memory");
#endif
}

/* ---- walks ---- */

/* The offset of index `i` of the walk in tensor `t`; divides in 32 bits where that is enough. Not
 * for kernels that must be fast: those ask for a walk of rank 0 or 1. */
static __device__ __noinline__ int64_t walk_offset(const rg_walk &walk, int t, int64_t i)
{
    int64_t offset = 0;
    if (walk.rank <= 1)
        return i * walk.strides[t][0];
    if (walk.count <= INT32_MAX) {
        uint32_t rest = (uint32_t)i;
        for (int32_t d = walk.rank - 1; d > 0; d--) {
            const uint32_t dim = (uint32_t)walk.dims[d], next = rest / dim;
            offset += (rest - next * dim) * walk.strides[t][d];
            rest = next;
        }
        return offset + rest * walk.strides[t][0];
    }
    for (int32_t d = walk.rank - 1; d > 0; d--) {
        const int64_t next = i / walk.dims[d];
        offset += (i - next * walk.dims[d]) * walk.strides[t][d];
        i = next;
    }
    return offset + i * walk.strides[t][0];
}

/* The same for a walk of rank 0 or 1. */
static __device__ __forceinline__ int64_t straight_offset(const rg_walk &walk, int t, int64_t i)
{
    return i * walk.strides[t][0];
}

/* Either of them, by rank: kernels that are mostly given a walk of rank 0 or 1 call no function. */
static __device__ __forceinline__ int64_t offset_at(const rg_walk &walk, int t, int64_t i)
{
    return walk.rank <= 1 ? straight_offset(walk, t, i) : walk_offset(walk, t, i);
}

/* ---- functions ---- */

/* e^x; for 16-bit results by the unit that has 2^x, where the smallest numbers become 0. */
template <rg_dtype T> static __device__ __forceinline__ real<T> exp_of(real<T> x)
{
    if constexpr (T == RG_F64) {
        return exp(x);
    } else if constexpr (T == RG_F32) {
        return expf(x);
    } else {
        float power;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));
        return power;
    }
}

/* The larger, or the sum. fmax drops NaN; the sum that follows brings it back. */
template <class REAL> static __device__ __forceinline__ REAL join(REAL a, REAL b, const bool max)
{
    return max ? fmax(a, b) : a + b;
}

/* ---- reductions: a binary tree over the threads, neighbours first ---- */

/* Over `group` threads, a power of two: all threads of the block where it is more than 32, and
 * then `partial` holds 32 values. Every thread gets the result. */
template <class REAL>
static __device__ __forceinline__ REAL reduce(REAL value, int group, REAL *partial, const bool max)
{
    for (int m = 1; m < 32 && m < group; m *= 2)
        value = join(value, __shfl_xor_sync(~0u, value, m), max);
    if (group <= 32)
        return value;
    const int thread = (int)threadIdx.x % 32, warps = group / 32;
    if (thread == 0)
        partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[thread & (warps - 1)];
    for (int m = 1; m < warps; m *= 2)
        value = join(value, __shfl_xor_sync(~0u, value, m), max);
    return value;
}

/* Over the threads of a block that have the same threadIdx.x % across, for VALUES values each;
 * `across` is a power of two. `partial` holds VALUES values of every thread, and may be written
 * again after the next barrier. */
template <int VALUES, class REAL>
static __device__ __forceinline__ void reduce_down(REAL value[VALUES], int across, REAL *partial,
                                                   const bool max)
{
    for (int m = across; m < 32; m *= 2) {
#pragma unroll
        for (int e = 0; e < VALUES; e++)
            value[e] = join(value[e], __shfl_xor_sync(~0u, value[e], m), max);
    }
    const int x = (int)threadIdx.x & (across - 1), span = across < 32 ? 32 : across;
    const int part = (int)threadIdx.x / span, parts = (int)blockDim.x / span;
    const bool keeps = (int)threadIdx.x % span == x; /* one thread for each value of a part */
    const int all = parts * across;                  /* the values of one e, contiguous */
    if (parts == 1)
        return;
    REAL *const own = partial + part * across + x;
    if (keeps) {
#pragma unroll
        for (int e = 0; e < VALUES; e++)
            own[e * all] = value[e];
    }
    for (int m = 1; m < parts; m *= 2) {
        __syncthreads();
        if (keeps && part % (2 * m) == 0) {
#pragma unroll
            for (int e = 0; e < VALUES; e++)
                own[e * all] = join(own[e * all], own[e * all + m * across], max);
        }
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < VALUES; e++)
        value[e] = partial[x + e * all];
}

/* ---- host side ---- */

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The least power of two that is not less, from `low` to `high`. */
static inline int power_of_two(int64_t value, int low, int high)
{
    int power = low;
    while (power < value && power < high)
        power *= 2;
    return power;
}

/* Whether vectors can be loaded from tensor `t` at every index of the walk. */
template <rg_dtype T> static bool is_aligned(const void *data, const rg_walk *walk, int t)
{
    bool aligned = (uintptr_t)data % 16 == 0;
    for (int32_t d = 0; d < walk->rank; d++)
        aligned &= walk->strides[t][d] % VLEN<T> == 0;
    return aligned;
}

/* Launches with `shared` bytes of dynamic shared memory. A kernel's limit is always set to the same
 * number, since other threads may launch it too. */
template <class... PARAMETERS, class... ARGUMENTS>
static void launch(void (*kernel)(PARAMETERS...), int64_t blocks, int threads, int64_t shared,
                   const rg_cuda_target *target, ARGUMENTS... arguments)
{
    if (shared > 48 << 10)
        (void)cudaFuncSetAttribute((const void *)kernel,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, target->shared);
    kernel<<<(unsigned)blocks, (unsigned)threads, (size_t)shared, target->stream>>>(arguments...);
}

/* Lets a kernel have more shared memory than it can without asking; false where the device has not
 * so much. */
static inline bool allow_shared(const void *kernel, size_t bytes)
{
    const bool allowed = bytes <= 48 << 10 ||
                         cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)bytes) == cudaSuccess;
    (void)cudaGetLastError();
    return allowed;
}

/* ---- programmatic dependent launch ---- */

/* Waits for the launch before, where this one began early: see launch_dependent. */
static __device__ __forceinline__ void wait_for_previous_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* As launch; where this build and the device know it, blocks begin while the launch before still
 * runs, until they call wait_for_previous_launch(). */
template <class... PARAMETERS, class... ARGUMENTS>
static void launch_dependent(void (*kernel)(PARAMETERS...), dim3 blocks, int64_t threads,
                             const rg_cuda_target *target, ARGUMENTS... arguments)
{
    cudaFuncAttributes attributes;
    const bool early = cudaFuncGetAttributes(&attributes, (const void *)kernel) == cudaSuccess &&
                       attributes.ptxVersion >= 90;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = dim3((unsigned)threads);
    config.stream = target->stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    void *pointers[] = { (void *)&arguments... };
    (void)cudaLaunchKernelExC(&config, (const void *)kernel, pointers);
}

/* ---- dtypes of host functions ---- */

/* An initializer: a function template over dtypes, and over what else is given, for every dtype of
 * data in their order. A launch that other files call is such an array, indexed by the dtype. */
#define RG_EVERY_DTYPE(name, ...)                                                              \
    {                                                                                          \
        name<RG_F32, ##__VA_ARGS__>, name<RG_F64, ##__VA_ARGS__>, name<RG_F16, ##__VA_ARGS__>, \
            name<RG_BF16, ##__VA_ARGS__>                                                       \
    }
enum { RG_CUDA_DTYPES = 4 };

/* ---- tables: nothing is defined without being listed ---- */

/* Ends <name>_cuda.cu, with rows for the kernels of the file and, where they choose a strategy at
 * launch, the function that names these. */
#define RG_CUDA_TABLE(name, rows, ...)                                                      \
    extern "C" const rg_cuda_table rg_cuda_##name;                                          \
    extern "C" const rg_cuda_table rg_cuda_##name = { rows, sizeof(rows) / sizeof(rows[0]), \
                                                      ##__VA_ARGS__ }

/* Kernel `id`: a function template over dtypes, and over what else is given. */
#define RG_CUDA_ROW(id, name, ...)              \
    {                                           \
        id, RG_EVERY_DTYPE(name, ##__VA_ARGS__) \
    }

/* The same, with the function that returns its scratch. */
#define RG_CUDA_ROW_SCRATCH(id, name, scratch)            \
    {                                                     \
        id, RG_EVERY_DTYPE(name), RG_EVERY_DTYPE(scratch) \
    }

#endif
