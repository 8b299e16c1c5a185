#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""The stripped program without code for GPUs stays below 14 MB: what its file holds in memory, section by section.

usage: size_test.py PROGRAM
"""
import pathlib
import struct
import sys

MOST_BYTES = 14_000_000
ALLOCATED, NO_BITS = 2, 8  # a flag and a type of sections


def sections(data):
    """(name, type, flags, bytes) of an ELF file of 64 bits."""
    assert data[:5] == b"\x7fELF\2", "not a file of 64 bits"
    order = "<" if data[5] == 1 else ">"
    offset = struct.unpack_from(order + "Q", data, 0x28)[0]
    size, count, names = struct.unpack_from(order + "3H", data, 0x3A)
    rows = [struct.unpack_from(order + "2I4Q", data, offset + i * size) for i in range(count)]
    for name, kind, flags, _, _, length in rows:
        start = rows[names][4] + name
        yield data[start:data.index(b"\0", start)].decode(), kind, flags, length


def main():
    found = [(length, name) for name, kind, flags, length in sections(pathlib.Path(sys.argv[1]).read_bytes())
             if flags & ALLOCATED and kind != NO_BITS and "nv_fatbin" not in name]
    total = sum(length for length, _ in found)
    print(f"{total} bytes; the largest sections:", *sorted(found, reverse=True)[:4])
    assert 0 < total < MOST_BYTES, total


main()
