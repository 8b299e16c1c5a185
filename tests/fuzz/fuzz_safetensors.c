/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Safetensors: the whole input is the file. All of it is read, then written and read again; and it
 * is tried as the plan that rg_plan_save() writes. */
#include "fuzz.h"

#include <retrograde/files.h>
#include <retrograde/safetensors.h>

typedef struct contents {
    rg_safetensors_entry *entries;
    rg_safetensors_text *texts;
    size_t count, text_count;
} contents;

/* Tensors that can be read, and all texts. */
static contents read_all(const rg_safetensors *file)
{
    const size_t count = rg_safetensors_count(file), texts = rg_safetensors_metadata_count(file);
    contents c = { calloc(count + 1, sizeof *c.entries), calloc(texts + 1, sizeof *c.texts), 0, 0 };
    FUZZ_CHECK(c.entries != NULL && c.texts != NULL);
    for (size_t i = 0; i < count; i++) {
        rg_safetensors_entry *entry = &c.entries[c.count];
        size_t found;
        *entry = (rg_safetensors_entry){ .name = rg_safetensors_name(file, i) };
        FUZZ_CHECK(rg_safetensors_dtype(file, i) != NULL);
        FUZZ_CHECK(rg_safetensors_find(file, entry->name, &found) && found == i);
        rg_tensor *tensor;
        if (FUZZ_TRY(rg_safetensors_load(file, i, fuzz_reader_device(), &tensor)))
            c.entries[c.count++].tensor = tensor;
    }
    for (size_t i = 0; i < texts; i++) {
        const char *key = rg_safetensors_metadata_key(file, i);
        c.texts[c.text_count++] = (rg_safetensors_text){ key, rg_safetensors_metadata(file, key) };
    }
    FUZZ_CHECK(rg_safetensors_name(file, count) == NULL);
    FUZZ_CHECK(rg_safetensors_metadata_key(file, texts) == NULL);
    return c;
}

static void release(contents *c)
{
    for (size_t i = 0; i < c->count; i++)
        rg_tensor_destroy((rg_tensor *)c->entries[i].tensor);
    free(c->entries);
    free(c->texts);
}

static void compare(const contents *a, const contents *b)
{
    FUZZ_CHECK(a->count == b->count && a->text_count == b->text_count);
    for (size_t i = 0; i < a->count; i++) {
        const rg_safetensors_entry *x = &a->entries[i], *y = &b->entries[i];
        const size_t bytes = rg_tensor_bytes(x->tensor);
        FUZZ_CHECK(strcmp(x->name, y->name) == 0 && rg_tensor_bytes(y->tensor) == bytes);
        FUZZ_CHECK(bytes == 0 ||
                   memcmp(rg_tensor_data(x->tensor), rg_tensor_data(y->tensor), bytes) == 0);
    }
    for (size_t i = 0; i < a->text_count; i++)
        FUZZ_CHECK(strcmp(a->texts[i].key, b->texts[i].key) == 0 &&
                   strcmp(a->texts[i].value, b->texts[i].value) == 0);
}

static void round_trip(const contents *c)
{
    rg_safetensors *again;
    const char *path = fuzz_path("again.safetensors");
    FUZZ_CHECK(rg_safetensors_write(path, c->entries, c->count, c->texts, c->text_count) == RG_OK);
    FUZZ_CHECK(rg_safetensors_open(path, &again) == RG_OK);
    contents second = read_all(again);
    compare(c, &second);
    release(&second);
    rg_safetensors_close(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rg_device *device = fuzz_reader_device();
    const char *path = fuzz_file("x.safetensors", data, size);
    rg_safetensors *file;
    rg_plan *plan;
    if (FUZZ_TRY(rg_safetensors_open(path, &file))) {
        contents c = read_all(file);
        round_trip(&c);
        release(&c);
    }
    rg_safetensors_close(file);
    fuzz_input rest = { data, size < 64 ? size : 64 };
    if (FUZZ_TRY(rg_plan_load(device, path, NULL, &plan)))
        fuzz_run_plan(plan, &rest);
    rg_plan_destroy(plan);
    return 0;
}
