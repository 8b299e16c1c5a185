/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Memory that runs out, for LD_PRELOAD: the FAIL_AT-th allocation fails, with FAIL_ON all from
 * there on. Those before main() are not counted: libraries that are linked in (the runtime of CUDA)
 * allocate there, and end the process if they cannot. At its end the process writes into FAIL_COUNT
 * how many there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static atomic_long calls;
static long fail_at;
static int fail_on;

typedef int program(int argc, char **argv, char **environment);
typedef int start(program *main, int argc, char **argv, program *init, void (*fini)(void),
                  void (*end)(void), void *stack);
static program *real_main;

static int begin(int argc, char **argv, char **environment)
{
    const char *at = getenv("FAIL_AT"), *on = getenv("FAIL_ON");
    fail_on = on != NULL;
    calls = 0;
    fail_at = at != NULL ? atol(at) : 0;
    return real_main(argc, argv, environment);
}

start __libc_start_main;
int __libc_start_main(program *main, int argc, char **argv, program *init, void (*fini)(void),
                      void (*end)(void), void *stack)
{
    start *real;
    *(void **)&real = dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = main;
    return real(begin, argc, argv, init, fini, end, stack);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("FAIL_COUNT");
    const long count = calls;
    fail_at = 0;
    FILE *file = path != NULL ? fopen(path, "w") : NULL;
    if (file == NULL)
        return;
    fprintf(file, "%ld", count);
    fclose(file);
}

static int fails(void)
{
    const long call = ++calls;
    if (fail_at <= 0 || call < fail_at || (call > fail_at && !fail_on))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return fails() ? NULL : __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size)
{
    return fails() ? NULL : __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **to, size_t alignment, size_t size)
{
    void *made = fails() ? NULL : __libc_memalign(alignment, size);
    if (made != NULL)
        *to = made;
    return made != NULL ? 0 : ENOMEM;
}
