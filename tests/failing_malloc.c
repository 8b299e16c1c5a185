/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Memory that runs out, for LD_PRELOAD: the FAIL_AT-th allocation fails, with FAIL_ON all from
 * there on. At its end the process writes into FAIL_COUNT how many there were. */
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

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAIL_AT"), *on = getenv("FAIL_ON");
    fail_on = on != NULL;
    calls = 0;
    fail_at = at != NULL ? atol(at) : 0;
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
