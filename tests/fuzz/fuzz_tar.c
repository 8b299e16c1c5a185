/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Tar: a byte of choices, then an archive, whose checksums are made right if the choice says so:
 * its members are listed, then it is a data set of its own. */
#include "fuzz_data.h"

#include "train/data_source.h"
#include "train/tar_members.h"

enum { BLOCK = 512, SUM = 148, SUM_BYTES = 8, SIZE = 124 };

/* Writes the right checksum into every block that has the place for one. */
static void repair(uint8_t *data, size_t size)
{
    for (size_t at = 0; at + BLOCK <= size; at += BLOCK) {
        unsigned sum = 0;
        char text[SUM_BYTES];
        for (int i = 0; i < BLOCK; i++)
            sum += i >= SUM && i < SUM + SUM_BYTES ? ' ' : data[at + (size_t)i];
        if (data[at] == 0 || data[at + SIZE] == 0)
            continue;
        snprintf(text, sizeof text, "%06o", sum & 0777777);
        memcpy(data + at + SUM, text, sizeof text);
    }
}

static void list(const char *path)
{
    rg_tar tar = { .next = 0 };
    rg_tar_member member;
    bool found = true;
    uint64_t last = 0;
    if (!FUZZ_TRY(rg_regular_open(path, &tar.file, &tar.size)))
        return;
    while (found && FUZZ_TRY(rg_tar_next(&tar, &member, &found)) && found) {
        FUZZ_CHECK(member.at > last && member.at <= tar.size &&
                   member.size <= tar.size - member.at);
        FUZZ_CHECK(memchr(member.name, 0, sizeof member.name) != NULL);
        last = member.at;
    }
    rg_regular_close(tar.file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = { data, size };
    const uint8_t choice = fuzz_byte(&input);
    size_t taken;
    uint8_t *archive = fuzz_take(&input, input.size, &taken);
    if ((choice & 1) != 0)
        repair(archive, taken);
    fuzz_clear();
    list(fuzz_file("train.tar", archive, taken));
    fuzz_use_dataset(fuzz_path((choice & 2) != 0 ? "train.tar" : ""));
    fuzz_clear();
    free(archive);
    return 0;
}
