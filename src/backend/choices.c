/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Forced and noted strategies of a device. */
#include "backend/choices.h"

#include <string.h>

void rg_choices_force(rg_choices *choices, const char *name)
{
    __atomic_store_n(&choices->forced, name, __ATOMIC_RELEASE);
}

bool rg_choices_forces(const rg_choices *choices, const char *name)
{
    const char *forced =
        choices != NULL ? __atomic_load_n(&choices->forced, __ATOMIC_ACQUIRE) : NULL;
    return forced != NULL && strcmp(forced, name) == 0;
}

void rg_choices_note(rg_choices *choices, const char *name)
{
    for (int32_t i = 0; choices != NULL && i < RG_CHOICES_NOTED; i++) {
        const char *there = __atomic_load_n(&choices->noted[i], __ATOMIC_ACQUIRE);
        if (there == NULL && __atomic_compare_exchange_n(&choices->noted[i], &there, name, false,
                                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return;
        if (there != NULL && strcmp(there, name) == 0)
            return;
    }
}

int32_t rg_choices_take(rg_choices *choices, const char *names[RG_CHOICES_NOTED])
{
    int32_t count = 0;
    for (int32_t i = 0; i < RG_CHOICES_NOTED; i++) {
        const char *name = __atomic_exchange_n(&choices->noted[i], NULL, __ATOMIC_ACQ_REL);
        if (name != NULL)
            names[count++] = name;
    }
    return count;
}
