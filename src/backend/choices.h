/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Which strategies run on a device: a name that a harness forces, and a note of those chosen. Any
 * thread may call these functions; without choices (NULL) nothing is forced. Valid C and valid
 * CUDA. */
#ifndef RG_BACKEND_CHOICES_H
#define RG_BACKEND_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { RG_CHOICES_NOTED = 16 };
typedef struct rg_choices {
    const char *forced;                  /* NULL: none. Names are constants. */
    const char *noted[RG_CHOICES_NOTED]; /* each once, NULL after the last */
} rg_choices;

/* Lists that have a strategy of this name take it wherever it accepts; NULL: the first that
 * accepts, as always. */
void rg_choices_force(rg_choices *choices, const char *name);
bool rg_choices_forces(const rg_choices *choices, const char *name);

void rg_choices_note(rg_choices *choices, const char *name);
/* Returns how many were noted since the last call of this function, and their names. */
int32_t rg_choices_take(rg_choices *choices, const char *names[RG_CHOICES_NOTED]);

#ifdef __cplusplus
}
#endif

#endif
