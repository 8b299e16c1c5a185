#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Builds the seed corpus and the dictionaries of the fuzz targets, with the program itself.

usage: make_seeds.py PROGRAM SEED_GRAPHS FOLDER

FOLDER/<target>/ receives the seeds and FOLDER/<target>.dict the words of a target. Nothing but
the standard library of Python is needed.
"""
import base64
import gzip
import io
import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import onnx_made

PROGRAM, SEED_GRAPHS, FOLDER = (pathlib.Path(path).resolve() for path in sys.argv[1:4])

MODELS = [
    "conv 3 window=3 padding.policy=same\nneuron\npool\ndense classes\n",
    "dense 5\nneuron kind=tanh a=1 b=1\ndropout keep=0.5\ndense classes\n",
    "start: conv 4 window=3 padding.policy=same bias=false\nbatch_norm epsilon=1e-5\n"
    "one: neuron\nconv 4 window=1 from one\narithmetic from conv4, one\n"
    "reduce kind=mean dims=1,2\ndense classes\n",
    "conv_transpose 2 window=2 stride=2\nupsample\npool kind=average window=4,4 stride=4,4\n"
    "group_norm groups=1\ndense classes neuron.kind=relu\n",
    "pad\nlrn\nspatial_norm\nlocal_contrast\nslice\nreshape zero_keeps=true dims=0,-1\ndense classes\n",
    "a: neuron kind=prelu\nb: neuron from input\nconcat from a, b\ngram\ndense classes\nsoftmax kind=log\n",
]


def run(*arguments, cwd=None):
    """The output of the program."""
    done = subprocess.run([PROGRAM, *arguments], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def put(target, name, data):
    folder = FOLDER / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def dictionary(target, words):
    lines = []
    for word in sorted({word if isinstance(word, bytes) else word.encode() for word in words if word}):
        lines.append('"%s"' % "".join("\\x%02x" % byte for byte in word))
    (FOLDER / (target + ".dict")).write_text("\n".join(lines) + "\n")


# ---- ops ----

def read_ops():
    """Names of ops, and of each the fields with words that they may hold."""
    names = re.findall(r"^(\w+): ", run("op", "--list"), re.MULTILINE)
    ops = {}
    for name in names:
        text = run("op", name, "--help")
        fields = {}
        for field, kind, default in re.findall(
                r"^  --([a-z_0-9.]+) (\S+).*\(default ([^)]*)\)$", text, re.MULTILINE):
            values = kind.split("|") if "|" in kind else [default]
            fields[field] = [value for value in values if value != "none" or "|" in kind]
        ops[name] = fields
    return ops


def nest(fields):
    """The fields as JSON: "neuron.kind" stands in an object of its own."""
    desc = {}
    for field, values in fields.items():
        if not values:
            continue
        value = values[0]
        if value in ("true", "false"):
            value = value == "true"
        elif re.fullmatch(r"-?\d+(,-?\d+)*", value):
            numbers = [int(number) for number in value.split(",")]
            value = numbers if len(numbers) > 1 else numbers[0]
        elif re.fullmatch(r"-?[\d.]+(e-?\d+)?", value):
            value = float(value)
        place = desc
        for group in field.split(".")[:-1]:
            place = place.setdefault(group, {})
        place[field.split(".")[-1]] = value
    return desc


def seed_ops(ops):
    for number, (name, fields) in enumerate(ops.items()):
        put("kernel_json", name, json.dumps({"retrograde": 1, "op": name, "desc": {}}))
        put("kernel_json", name + "_desc",
            json.dumps({"retrograde": 1, "op": name, "label": "a\u00e9\n", "desc": nest(fields)}))
        text = " ".join(f"{field}={values[-1]}" for field, values in fields.items() if values)
        put("fields", name, bytes([number]) + text.encode())
        for values in fields.items():
            if len(values[1]) > 1:
                put("fields", f"{name}_{values[0]}",
                    bytes([number]) + f"{values[0]}={values[1][0]}".encode())
        for variant in range(4): # op, device; then defaults of all fields, dtype, shapes
            head = bytes([number, variant * 3]) + bytes([1] * len(fields)) + bytes([variant])
            shape = bytes([0x42, 2, 4, 4, 3, 0])
            put("kernel", f"{name}_{variant}", head + shape + bytes([0x00, 0, 0x01, 0, 0x01, 0]) * 3)
            put("kernel", f"{name}_weights_{variant}",
                head + shape + bytes([0x02, 2, 1, 1, 0, 0x01, 0, 0x01, 0]) * 2)
    words = [field for fields in ops.values() for field in fields]
    values = [value for fields in ops.values() for many in fields.values() for value in many]
    return list(ops), words, values


# ---- files ----

def npy(descr, shape, data, order="False"):
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }\n" % (descr, order, shape)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


def npy_seeds():
    files = {
        "f4": npy("<f4", "2, 3", struct.pack("<6f", *range(6))),
        "f8_swapped": npy(">f8", "2,", struct.pack(">2d", 1, 2)),
        "f2_fortran": npy("<f2", "2, 3", bytes(12), "True"),
        "u1": npy("|u1", "4,", bytes(4)),
        "i4_scalar": npy("<i4", "", bytes(4)),
        "i8_empty": npy("<i8", "0, 5", b""),
        "version2": b"\x93NUMPY\x02\x00" + struct.pack("<I", 60)
        + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".ljust(59) + b"\n" + bytes(4),
    }
    for name, data in files.items():
        put("npy", name, b"\0" + data)
        put("npy", name + "_pipe", b"\1" + data)
    dictionary("npy", ["{'descr': '", "'fortran_order': ", "'shape': (", "True", "False", "<f4",
                       ">f8", "|u1", "<i8", "<f2", "), }", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x03\x00"])


def safetensors(tensors, texts):
    header, data = {}, b""
    if texts:
        header["__metadata__"] = texts
    for name, (dtype, shape, bytes_) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def safetensors_seeds():
    put("safetensors", "two", safetensors(
        {"a": ("F32", [2, 2], bytes(16)), "b.c": ("I64", [1], bytes(8))}, {"k": "v\n\u20ac"}))
    put("safetensors", "kinds", safetensors(
        {"f16": ("F16", [3], bytes(6)), "bf16": ("BF16", [], bytes(2)),
         "bool": ("BOOL", [2], bytes(2)), "u8": ("U8", [0, 4], b"")}, {}))
    put("safetensors", "empty", safetensors({}, {}))


def gz(data):
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed:
        packed.write(data)
    return out.getvalue()


def idx_seeds():
    images = struct.pack(">4I", 0x803, 3, 4, 5) + bytes(range(60))
    deep = struct.pack(">5I", 0x804, 2, 4, 3, 2) + bytes(48)
    labels = struct.pack(">2I", 0x801, 3) + bytes([0, 1, 2])
    labels2 = struct.pack(">2I", 0x801, 2) + bytes([1, 0])
    for choice, first, second in ((0, images, labels), (32, deep, labels2), (16, images, labels),
                                  (2 | 2 << 2, gz(images), gz(labels)), (3 | 3 << 2, images, labels),
                                  (2, gz(images) + gz(b""), labels)):
        put("idx", f"seed{choice}_{len(first)}",
            bytes([choice]) + struct.pack("<H", len(first)) + first + second)


def npz_seeds():
    arrays = {"x": npy("|u1", "3, 2, 2", bytes(12)), "y": npy("|u1", "3,", bytes([0, 1, 1]))}
    others = {"x_train": npy("<f4", "2, 4", bytes(32)), "y_train": npy("<i8", "2, 1", bytes(16)),
              "x_test": npy("<f8", "1, 2, 2, 1", bytes(32)), "y_test": npy(">i4", "1,", bytes(4))}
    labels = {"x": npy("|u1", "2, 2, 2", bytes(8)), "y": npy("|u1", "2, 3", bytes([0, 1, 1, 0, 0, 1])),
              "x_test": npy("|u1", "1, 2, 2", bytes(4)), "y_test": npy("|u1", "1, 3", bytes(3))}
    values = {"x": npy("<f4", "2, 1", bytes(8)), "y": npy("<f4", "2, 2", bytes(16)), "y_test": npy("<f8", "1, 2", bytes(16))}
    masks = {"x": npy("|u1", "2, 2, 3, 1", bytes(12)), "y": npy("<i4", "2, 2, 3", bytes(48)),
             "y_test": npy("|u1", "1, 2, 3", bytes([0, 1, 2, 3, 4, 5]))}
    for name, members in (("plain", arrays), ("parts", others), ("labels", labels), ("values", values), ("masks", masks)):
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w", method) as archive:
                for member, data in members.items():
                    archive.writestr(zipfile.ZipInfo(member + ".npy"), data, method)
            for choice in (0, 1):
                put("npz", f"{name}_{method}_{choice}", bytes([choice]) + out.getvalue())
    x, y = arrays["x"], arrays["y"]
    put("npz", "folder", bytes([4]) + struct.pack("<H", len(x)) + x + y)
    x, y = others["x_test"], others["y_test"]
    put("npz", "folder_test", bytes([12]) + struct.pack("<H", len(x)) + x + y)
    dictionary("npz", [b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6", b"PK\6\7", "x.npy", "y_test.npy",
                       "{'descr': '", "'shape': (", "<f4", "|u1", b"\xff\xff\xff\xff"])


def chunk(name, data):
    return (struct.pack(">I", len(data)) + name + data
            + struct.pack(">I", zlib.crc32(name + data)))


def png(width, height, depth, kind, rows, extra=b"", interlaced=0):
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced))
            + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def png_seeds():
    images = {
        "grey": png(3, 2, 8, 0, bytes(8)),
        "rgb": png(2, 2, 8, 2, bytes(14)),
        "grey16_alpha": png(2, 1, 16, 4, bytes(9)),
        "rgba_filtered": png(2, 2, 8, 6, bytes([1] + [7] * 8 + [4] + [9] * 8)),
        "palette": png(4, 1, 2, 3, bytes(2), chunk(b"PLTE", bytes(12)) + chunk(b"tRNS", bytes(2))),
        "bits": png(9, 2, 1, 0, bytes(6)),
        "interlaced": png(3, 3, 8, 0, bytes(3 * 3 + 7), b"", 1),
        "gamma": png(1, 1, 8, 0, bytes(2), chunk(b"gAMA", struct.pack(">I", 45455))
                     + chunk(b"tEXt", b"a\0b")),
    }
    for name, data in images.items():
        put("png", name, b"\0" + data)
        put("png", name + "_repaired", b"\1" + data)
        put("png", name + "_mask", b"\x08" + data)
    first, second = images["grey"], images["rgb"]

    def group(name, members):
        return (bytes([len(name)]) + name
                + b"".join(struct.pack("<H", len(data)) + data for data in members))
    put("png", "folder", b"\3" + group(b"cat", [first, first]) + group(b"dog", [first, second]))
    put("png", "folder_train", b"\7" + group(b"a\xff", [second, first]) + group(b"b", [second, second]))
    deep = png(3, 2, 16, 0, bytes(14))
    put("png", "mask_deep", b"\x08" + deep)
    files = [first, png(3, 2, 2, 3, b"\0\x10\0\x20", chunk(b"PLTE", bytes(9))), first, deep, b"sky\nroad\ncar\n"]
    for name, members in (("masks", files[:4]), ("masks_named", files)):
        put("png", name, b"\x0b" + b"".join(struct.pack("<H", len(data)) + data for data in members))
    dictionary("png", ["IHDR", "IDAT", "IEND", "PLTE", "tRNS", "gAMA", b"\x89PNG\r\n\x1a\n"])


# ---- JPEG and tar ----

JPEGS = {
    "grey": base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYVpQ"
        "YEpRUk//wAALCAAMABQBAREA/8QAFQABAQAAAAAAAAAAAAAAAAAAAAb/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/9oACAEBAAA/AIkAH//Z"
    ),
    "rgb": base64.b64decode(
        "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYVpQ"
        "YEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAAMABQD"
        "ASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAX/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/8QAFgEBAQEAAAAAAAAAAAAAAAAAAAUG/8QA"
        "FBEBAAAAAAAAAAAAAAAAAAAAAP/aAAwDAQACEQMRAD8AjANImAAP/9k="
    ),
}


WEBPS = { # lossy, lossless, with opacity
    "webp_lossy": base64.b64decode(
        "UklGRkYAAABXRUJQVlA4IDoAAAAwAwCdASoUAAwAPm0skkWkIqGYBABABsSgC7LoB+AACEUAAP7sJl/+LORiOzzf/q0PlofLQ/bvKAAA"
    ),
    "webp_lossless": base64.b64decode("UklGRiwAAABXRUJQVlA4TB8AAAAvE8ACALmM6H/sohTR/4CQgDDC/72aOgzDGBMAVOoaAA=="),
    "webp_half": base64.b64decode("UklGRh4AAABXRUJQVlA4TBEAAAAvE8ACEAdQniLXo4CBiOh/AAA="),
}


def rotated_jpegs():
    """Photographs that lie on their side: EXIF data of either byte order."""
    for orientation, order in ((3, ">"), (6, "<"), (8, ">")):
        mark = b"II*\0" if order == "<" else b"MM\0*"
        entry = struct.pack(order + "IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)
        exif = b"Exif\0\0" + mark + entry
        data = JPEGS["rgb"]
        yield "turned%d" % orientation, data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]


def jpeg_seeds():
    for name, data in (JPEGS | WEBPS | dict(rotated_jpegs())).items():
        put("jpeg", name, b"\0" + data)
        put("jpeg", name + "_resized", b"\1" + data)
    members = [JPEGS["grey"], JPEGS["rgb"], WEBPS["webp_lossy"], png(20, 12, 8, 0, bytes(21 * 12))]
    put("jpeg", "folder", b"\2" + b"".join(struct.pack("<H", len(data)) + data for data in members))
    dictionary("jpeg", [b"\xff\xd8", b"\xff\xc0", b"\xff\xc2", b"\xff\xc4", b"\xff\xda", b"\xff\xdd", b"\xff\xee", b"\xff\xe1", b"\x01\x12", b"\x12\x01", "Exif", "Adobe", "RIFF", "WEBP", "VP8 ",
                        "VP8L", "VP8X", "ALPH"])


def tar_seeds():
    for name, form, long in (("gnu", tarfile.GNU_FORMAT, ""), ("gnu_long", tarfile.GNU_FORMAT, "a" * 120),
                             ("pax", tarfile.PAX_FORMAT, "\u00e4" * 80), ("ustar", tarfile.USTAR_FORMAT, "b/" * 60)):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=form) as tar:
            for i, data in enumerate(JPEGS.values()):
                for end, content in (("jpg", data), ("cls", b"%d" % i)):
                    info = tarfile.TarInfo("%s%d.%s" % (long, i, end))
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        packed = file.getvalue().rstrip(b"\0") + bytes(1024)
        packed += bytes(-len(packed) % 512)
        put("tar", name, b"\0" + packed)
        put("tar", name + "_repaired", b"\3" + packed)
    dictionary("tar", ["ustar", ".jpg", ".cls", ".png", "path=", "size=", "././@LongLink"])


# ---- texts ----

def text_seeds(ops, fields, values):
    for number, model in enumerate(MODELS):
        for choice in (0, 0x15, 0x2a):
            put("model", f"{number}_{choice}", bytes([choice, 3, 3, 1, 2, 1, 0, 0]) + model.encode())
    marks = ["=", ":", " from ", ", ", "#", "\n", "classes", "input", "window="]
    dictionary("model", marks + ops + [field + "=" for field in fields] + values)
    dictionary("fields", [field + "=" for field in fields] + values + ["inf", "nan", "-1", "none"])
    keys = ["retrograde", "sources", "parameters", "nodes", "results", "states", "assignments",
            "stops", "gradients", "label", "op", "desc", "x", "y", "dy", "wanted", "gradient_of",
            "name", "value", "node", "dtype", "dims", "constant", "like", "state_of"]
    words = [f'"{word}"' for word in keys + ops + fields + values + ["f32", "bf16", "i64", "inf"]]
    punctuation = ["{", "}", "[", "]", ":", ",", "null", "true", "false", "1e308", "-1", "\\u0000"]
    dictionary("kernel_json", words + punctuation)
    dictionary("graph_json", words + punctuation)
    for number, text in enumerate(["", "[0:2,::2]", "[-1]", "[1:,:2,::3,0]", "[:]", "[9223372036854775807]",
                                   "[::9223372036854775807]", "[-9223372036854775808:]"]):
        put("slice", str(number), bytes([17, 4, 5, 3, 2]) + text.encode())
    dictionary("slice", ["[", "]", ":", "::", ",", "-1", "9223372036854775807"])


def metrics_seeds():
    header = ("epoch,step,train_loss,train_accuracy,validation_loss,validation_accuracy,"
              "learning_rate,images_per_second,seconds\r\n")
    rows = "1,10,0.5,0.25,,,0.001,100,1.5\r\n2,20,nan,1,0.5,0.5,1e-3,inf,3\r\n"
    for number, (first, second) in enumerate([(header + rows, ""), ("", header + rows),
                                              (header + rows, header + rows), (header, header + rows),
                                              (header + rows + "3,30,0.", "")]):
        choice = bool(first) | bool(second) << 1
        put("metrics", str(number),
            bytes([choice, 1 + number % 2]) + struct.pack("<H", len(first)) + (first + second).encode())
    dictionary("metrics", [header, "nan", "inf", "\r\n", ",,", "1,1,"])


def program_seeds():
    """What the program writes: arrays, a checkpoint, its options."""
    work = FOLDER / "work"
    work.mkdir(parents=True, exist_ok=True)
    (work / "x.npy").write_bytes(npy("<f4", "2, 3", struct.pack("<6f", *range(6))))
    run("op", "softmax", "x=x.npy", "-o", "y=y.npy", cwd=work)
    put("npy", "written", b"\0" + (work / "y.npy").read_bytes())
    with zipfile.ZipFile(work / "data.npz", "w") as archive:
        archive.writestr("x.npy", npy("|u1", "6, 4, 4, 1", bytes(range(96))))
        archive.writestr("y.npy", npy("|u1", "6,", bytes([0, 1, 2, 0, 1, 2])))
    put("npz", "written", b"\1" + (work / "data.npz").read_bytes())
    models = []
    for number, model in enumerate(MODELS):
        (work / f"model{number}").write_text(model)
        models.append(f"model{number}")
    for number, optimizer in enumerate(["sgd", "adam"]):
        run("train", "--data", "data.npz", "--model", models[number], "--optimizer", optimizer,
            "--epochs", "1", "--batch", "3", "--validation", "0.34", "--threads", "1",
            "--out", f"run{number}", cwd=work)
        checkpoint = (work / f"run{number}" / "checkpoint.safetensors").read_bytes()
        put("checkpoint", optimizer, checkpoint)
        header = json.loads(checkpoint[8:8 + struct.unpack("<Q", checkpoint[:8])[0]])
        options = header["__metadata__"]["options"]
        put("options", optimizer, b"\0" + options.encode())
        words = "".join("--" + line.replace("=", "\n", 1) + "\n" for line in options.splitlines()
                        if not line.startswith("mirror="))
        put("options", optimizer + "_words", b"\1" + words.encode())
        dictionary("options", re.findall(r"^([\w-]+=)", options, re.MULTILINE) + ["--", "\n", "cosine"])
        dictionary("checkpoint", list(header["__metadata__"]) + ["dense ", "classes", "\\n"])
    (work / "small.onnx").write_bytes(onnx_made.classifier(4))
    run("train", "--data", "data.npz", "--model", "small.onnx", "--epochs", "1", "--batch", "3", "--validation", "0.34",
        "--threads", "1", "--out", "tuned", cwd=work)
    put("checkpoint", "onnx", (work / "tuned" / "checkpoint.safetensors").read_bytes())
    return work, models


def graph_seeds(work, models):
    subprocess.run([SEED_GRAPHS, work, *[work / name for name in models]], check=True)
    for number in range(len(models)):
        choices = bytes([0, 0x60, 2, 4, 4, 2, 0x06, 2]).ljust(24, b"\1")
        put("graph_json", str(number), choices + (work / f"{number}.json").read_bytes())
        put("safetensors", f"plan{number}", (work / f"{number}.safetensors").read_bytes())
    small = {"retrograde": 1, "sources": ["x"],
             "parameters": [{"name": "w", "dtype": "f32", "dims": [4, 2]}],
             "nodes": [{"label": "fc", "op": "dense", "desc": {"bias": False}, "x": ["x", "w"]},
                       {"label": "g", "op": "dense", "gradient_of": "fc", "wanted": [1],
                        "dy": [{"constant": 1, "like": ["fc", 0]}]}],
             "results": [{"name": "dw", "value": ["g", 1]}]}
    put("graph_json", "small", bytes([0, 0x20, 3, 2]).ljust(24, b"\0") + json.dumps(small).encode())
    for op, size in (("dropout", 3), ("pool", 4)):  # dy of 3 by 3 pixels, then the state's x
        given = {"retrograde": 1, "sources": ["dy"],
                 "source_states": [{"name": "s", "op": op, "desc": {"stride": [1, 1]} if op == "pool" else {}}],
                 "nodes": [{"label": "g", "op": op, "gradient_of": None, "state": "s", "dy": ["dy"], "x": [None],
                            "y": [None], "wanted": [0]}],
                 "results": [{"name": "dx", "value": ["g", 0]}]}
        choices = bytes([0, 0x40, 3, 3, 2, 0x40, size, size, 2]).ljust(24, b"\0")
        put("graph_json", "state_" + op, choices + json.dumps(given).encode())


def onnx_seeds():
    for name, data in onnx_made.samples().items():
        for choice in (0, 3):
            put("onnx", f"{name}{choice}", bytes([choice, 1, 0, 0]) + data)
    for name, data in onnx_made.image_samples().items():
        put("onnx", f"images-{name}", bytes([2, 8, 0, 0]) + data)
    dictionary("onnx", ["ConstantOfShape", "Range", "ReduceSum", "ScatterND", "Trilu", "NonZero", "Tile", "Expand", "SpaceToDepth", "LpPool",
                        "Conv", "Relu", "Reshape", "Concat", "Slice", "Gather", "axes", "perm", "pads", "to"])


def external_seeds():
    """A matrix in a file of its own, from its start, from byte 4 of one in a folder, and with a wrong length."""
    for number, (location, offset, length) in enumerate((("w.bin", None, None), ("d/w.bin", 4, 48), ("w.bin", 0, 40),
                                                         ("../w.bin", 0, 48))):
        data = onnx_made.model([onnx_made.node("Flatten", ["x"], ["f"]), onnx_made.node("MatMul", ["f", "w"], ["y"])],
                               [onnx_made.port("x", ["N", 1, 2, 2])], [onnx_made.port("y", ["N", 3])],
                               [onnx_made.external("w", [4, 3], location, offset, length)])
        put("external", str(number), struct.pack("<H", len(data)) + data + struct.pack("<13f", *range(13)))
    dictionary("external", ["location", "offset", "length", "w.bin", "d/w.bin", "d/", "./", "/"])


def operator_seeds():
    """Every name that the program lists with an example of its attributes, on inputs of small images."""
    names = re.findall(r"^(\w+): ", run("op", "--list"), re.MULTILINE)
    words = set(re.findall(r"\b([A-Z]\w+)\b", run("op", "--list")))
    examples = {"Resize": {"sizes": [1, 2, 5, 6], "mode": "nearest", "keep_aspect_ratio_policy": "not_larger"},
                "Slice": {"starts": [-1], "ends": [-100], "steps": [-1], "axes": [2]},
                "MaxPool": {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER", "dilations": [2, 1]},
                "AveragePool": {"kernel_shape": [2, 2], "ceil_mode": 1}, "LpPool": {"kernel_shape": [2, 2], "p": 3},
                "Conv": {"strides": [3, 3], "auto_pad": "SAME_LOWER"}, "Pad": {"pads": [0, 0, 1, -1, 0, 0, 1, 1], "mode": "edge"},
                "ConvTranspose": {"output_shape": [9, 9], "output_padding": [1, 0]}, "Split": {"num_outputs": 2, "axis": 1},
                "Reshape": {"shape": [0, -1]}, "Transpose": {"perm": [0, 2, 3, 1]}, "Concat": {"axis": 1},
                "ReduceMean": {"axes": [1, 2], "keepdims": 0}, "Softmax": {"axis": 1, "opset": 11},
                "LayerNormalization": {"axis": 2}, "GroupNormalization": {"num_groups": 2}, "LRN": {"size": 3},
                "Gemm": {"transA": 1, "beta": 0.5}, "ArgMax": {"axis": -1, "select_last_index": 1},
                "PadGrad": {"pads": [0, 0, 1, -1, 0, 0, 1, 1], "mode": "wrap"}, "LeakyRelu": {"alpha": 0},
                "ReduceMax": {"axes": [-1], "noop_with_empty_axes": 1}, "ConcatTraining": {"axis": -1}}
    image, vector = bytes([32, 1 << 5 | 2 << 2 | 1, 4, 1]), bytes([8, 2, 0, 0])
    for name in sorted(words | set(names)):
        text = json.dumps({"retrograde": 1, "operator": name, "attributes": examples.get(name, {})}).encode()
        put("operator", name, text + b"\n\1" + (image + bytes(range(8))) + vector * 2)
        put("operator", name + "_images", text + b"\n\7" + (image[:3] + b"\0") * 3 + vector * 2)
    attributes = {key for example in examples.values() for key in example}
    dictionary("operator", [f'"{word}"' for word in attributes] + ["[", "]", ",", "-1", "9223372036854775807", "1e30", "nan", "Grad"])


def weights_seeds():
    """Weights by the names of PyTorch, and what a checkpoint of ours has."""
    model = b"conv 2 window=1\nbatch_norm\ndense classes\n"
    floats = lambda *dims: ("F32", list(dims), bytes(4 * math.prod(dims)))
    for number, kind in enumerate((0, 1, 2 | 3 << 4)):
        tensors = {"conv.weight": floats(2, 1, 1, 1), "conv.bias": floats(2), "batch_norm.weight": floats(2),
                   "batch_norm.bias": floats(2), "batch_norm.running_mean": floats(2), "batch_norm.running_var": floats(2),
                   "dense.weight": floats(3, 8), "dense.bias": floats(3), "batch_norm.num_batches_tracked": ("I64", [], bytes(8))}
        if number == 1:
            tensors["dense.weight"] = floats(8, 3)
        put("weights", str(number), bytes([1 | 1 << 3, kind, 2]) + struct.pack("<H", len(model)) + model + safetensors(tensors, {}))
    dictionary("weights", [".weight", ".bias", ".running_mean", "F16", "BF16", "F64", "dense", "classes", "conv"])


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "detect_leaks=0")
    text_seeds(*seed_ops(read_ops()))
    npy_seeds()
    safetensors_seeds()
    idx_seeds()
    npz_seeds()
    png_seeds()
    jpeg_seeds()
    tar_seeds()
    metrics_seeds()
    onnx_seeds()
    external_seeds()
    operator_seeds()
    weights_seeds()
    graph_seeds(*program_seeds())


main()
