#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""`retrograde export` and `import`: what they write is read by the program, checked by `onnx` and run by `onnxruntime`.

usage: onnx_export_test.py PROGRAM

Without the Python packages the first part alone is tested, which counts as a failure where CI=true.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

from onnx_made import BOOL, INT64, classifier, external, model, network, node, port, tensor

PROGRAM = pathlib.Path(sys.argv[1]).resolve()

# Every op that has a counterpart, with fields that matter, on images of 12 x 12 with 4 channels.
LAYERS = """
        pad mode=mirror before=0,1,2,0 after=0,1,0,0
        conv 8 window=3 stride=2 padding.policy=same groups=2
first:  batch_norm neuron.kind=tanh
second: conv 8 window=3 padding.top=1 padding.left=1 padding.bottom=1 padding.right=1
        batch_norm
third:  neuron kind=prelu
        arithmetic from third, first
        lrn window=3 alpha=0.5 beta=0.75
        pool kind=max window=3 stride=2 padding.policy=same
        pool kind=average window=2 stride=1 edge=clamp padding.bottom=1 padding.right=1
        upsample kind=bilinear grid=half_pixel
        conv_transpose 6 window=3 stride=2 padding.policy=same
        group_norm groups=2
        neuron kind=gelu
        group_norm groups=0
        neuron kind=swish
        group_norm groups=1 axis=-1
        pool kind=l2 window=2 stride=2
        neuron kind=elu
wide:   conv 6 window=1 neuron.kind=relu
        concat from wide, wide
        slice start=0,1 length=-1,-1
        softmax axis=-1
        neuron kind=linear a=2 b=-1
        dense 12 neuron.kind=sigmoid
        dense classes
"""

# Activations side by side, each of the same convolution.
NEURONS = """none; relu a=0.1; linear a=2 b=1; hard_sigmoid; tanh a=2 b=0.5; absolute; softplus b=2; softsign; elu a=0.7; relun
relun a=0 b=0.3; relun a=0.2 b=0.3; power c=2; power a=0.5 b=4 c=0.5; exponential; exponential a=0.5 c=2; logarithm b=9
logarithm a=0.1 b=5 c=2; gelu; gelu_tanh; swish a=1.702; prelu; sigmoid""".replace("\n", "; ").split("; ")

# Ops with a gradient that can be written.
GRADIENTS = ("""
        conv 6 window=3 padding.policy=same neuron.kind=elu
        conv 6 window=3 stride=2 padding.policy=same groups=2 neuron.kind=relu
        batch_norm neuron.kind=sigmoid
        neuron kind=prelu
half:   pool kind=average window=2 edge=clamp
other:  neuron kind=gelu
        concat from other, half
        slice start=0,1,1 length=-1,2,2
norm:   group_norm groups=1 axis=-1
soft:   softmax
        arithmetic kind=multiply from soft, norm
        neuron kind=softplus b=2
        neuron kind=relun b=2
        reduce kind=mean dims=1,2
        dense 12 neuron.kind=tanh
        dense classes
""", """
        conv 5 window=3 neuron.kind=relu
        pool kind=max window=3 stride=2 edge=clamp padding.policy=same
        neuron kind=swish a=1.5
        neuron kind=hard_sigmoid
        neuron kind=softsign
        neuron kind=linear a=3
        neuron kind=absolute
exp:    neuron kind=exponential a=0.5
        neuron kind=logarithm b=3
power:  neuron kind=power a=0.5 b=2 c=1.5
        arithmetic kind=divide from power, exp
        dense 7 neuron.kind=relu
        dense 8 neuron.kind=gelu_tanh
        dense classes
""", """
        conv 9 window=3
        lrn window=5 alpha=0.5 beta=0.75 delta=2
        neuron kind=tanh
        lrn window=3 alpha=2 beta=1.5
        dense classes
""")


def command(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def succeed(*arguments):
    done = command(*arguments)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def refuse(path, *arguments, words=()):
    """Nothing is written, and a sentence says why."""
    done = command("export", *arguments, "-o", path)
    assert done.returncode in (1, 2) and not path.exists(), (arguments, done.stderr)
    assert done.stderr.startswith("retrograde: ") and done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr, (word, done.stderr)


def write_npy(path, dims, values):
    shape = "(" + "".join(f"{dim}," for dim in dims) + ")"
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                     struct.pack(f"<{len(values)}f", *values))


def read_npy(path):
    data = path.read_bytes()
    body = data[10 + struct.unpack("<H", data[8:10])[0]:]
    return struct.unpack(f"<{len(body) // 4}f", body)


def random_images(count, height, width, channels):
    """Numbers between -1 and 1, (n, h, w, c) and (n, c, h, w)."""
    pixels = [((i * 7919) % 2003) / 1001.5 - 1 for i in range(count * height * width * channels)]
    place = lambda n, h, w, c: ((n * height + h) * width + w) * channels + c
    moved = [pixels[place(n, h, w, c)] for n in range(count) for c in range(channels) for h in range(height)
             for w in range(width)]
    return pixels, moved


def close(got, wanted, tolerance):
    largest = max(map(abs, wanted))
    assert len(got) == len(wanted)
    wrong = max(abs(a - b) for a, b in zip(got, wanted))
    assert wrong <= tolerance * largest, (wrong, largest)


# ---- without packages ----

def test_unchanged(folder):
    """A model that is read and written has the same bytes; external data moves into the file."""
    path, out = folder / "in.onnx", folder / "out.onnx"
    path.write_bytes(network())
    succeed("export", path, "-o", out)
    assert out.read_bytes() == path.read_bytes()
    parts = ([node("Add", ["x", "w"], ["y"])], [port("x", ["n", 2])], [port("y", ["n", 2])])
    (folder / "data.bin").write_bytes(struct.pack("<2f", 1.5, -2))
    path.write_bytes(model(*parts, [external("w", [2], "data.bin")]))
    succeed("export", path, "-o", out)
    assert out.read_bytes() == model(*parts, [tensor("w", [2], [1.5, -2])])


def test_layers(folder):
    """A model of our own: the file gives what the model gives, for several operator sets."""
    text, out = folder / "layers.txt", folder / "layers.onnx"
    text.write_text(LAYERS)
    sizes = ["--height", 12, "--width", 12, "--channels", 4]
    pixels, moved = random_images(2, 12, 12, 4)
    write_npy(folder / "x.npy", [2, 12, 12, 4], pixels)
    write_npy(folder / "moved.npy", [2, 4, 12, 12], moved)
    succeed("run", text, f"images={folder}/x.npy", "-o", f"logits={folder}/y.npy")
    wanted = read_npy(folder / "y.npy")
    for options in ([], ["--opset", 13], ["--opset", 24], ["--fold-batch-norm"]):
        succeed("export", text, *sizes, *options, "-o", out)
        succeed("run", out, f"images={folder}/moved.npy", "-o", f"logits={folder}/y.npy")
        close(read_npy(folder / "y.npy"), wanted, 1e-5)
        types = [part for part in (b"BatchNormalization", b"Transpose") if part in out.read_bytes()]
        assert types.count(b"BatchNormalization") == (not options or options[0] == "--opset"), types


def test_refused(folder):
    out = folder / "never.onnx"
    text = folder / "contrast.txt"
    text.write_text("one: local_contrast\n two: spatial_norm\n dense classes\n")
    refuse(out, text, words=("local_contrast (node 'one'", "spatial_norm (node 'two'"))
    refuse(out, "lenet", "--opset", 12, words=("--opset", "13"))
    refuse(out, "lenet", "--dtype", "i32", words=("--dtype",))
    refuse(out, folder / "no.onnx", words=("no.onnx",))
    refuse(folder / "never.txt", "lenet", words=(".onnx",))
    data = network()
    for length in (1, 40, len(data) // 2, len(data) - 1):
        (folder / "cut.onnx").write_bytes(data[:length])
        refuse(out, folder / "cut.onnx", words=("cut.onnx",))


def read_tensors(path):
    """The tensors of a safetensors file: dims and bytes."""
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    entries = json.loads(data[8:start])
    return {name: (entry["shape"], data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]])
            for name, entry in entries.items() if name != "__metadata__"}


def test_import(folder):
    """An ONNX model as a checkpoint, and as text with one: both predict alike and go back to ONNX."""
    start, image = folder / "start.onnx", folder / "image.npy"
    succeed("export", "resnet", "--height", 8, "--width", 8, "--channels", 3, "--classes", 4, "-o", start)
    write_npy(image, [8, 8, 3], random_images(1, 8, 8, 3)[0])
    succeed("import", start, "-o", folder / "kept.safetensors")
    succeed("import", start, "-o", folder / "text.txt")
    said = [json.loads(succeed("predict", path, image, "--json", "--top", 4))["classes"]
            for path in (start, folder / "kept.safetensors", folder / "text.safetensors")]
    for other in said[1:]:
        for a, b in zip(said[0], other):
            assert a["number"] == b["number"] and abs(a["probability"] - b["probability"]) < 1e-5, said
    succeed("export", folder / "kept.safetensors", "--raw-input", "-o", folder / "back.onnx")
    before, after = start.read_bytes(), (folder / "back.onnx").read_bytes()
    assert abs(len(before) - len(after)) < 100
    succeed("export", start, "-o", folder / "a.safetensors")
    succeed("export", folder / "back.onnx", "-o", folder / "b.safetensors")
    assert read_tensors(folder / "a.safetensors") == read_tensors(folder / "b.safetensors")
    succeed("export", folder / "text.safetensors", "-o", folder / "torch.safetensors")
    named, torch = read_tensors(folder / "a.safetensors"), read_tensors(folder / "torch.safetensors")
    assert torch["conv1.weight"] == named["conv1.w"] and torch["conv1.weight"][0] == [16, 3, 3, 3]
    assert torch["batch_norm2.running_var"] == named["batch_norm2.variance"]
    # weights of PyTorch for a model of ours
    succeed("export", "resnet", "--height", 8, "--width", 8, "--channels", 3, "--classes", 4, "-o",
            folder / "torch.safetensors")
    sizes = ["--model", "resnet", "--height", 8, "--width", 8, "--channels", 3]
    succeed("import", folder / "torch.safetensors", *sizes, "--classes", 4, "-o", folder / "again.safetensors")
    other = json.loads(succeed("predict", folder / "again.safetensors", image, "--json", "--top", 4))["classes"]
    for a, b in zip(said[0], other):
        assert a["number"] == b["number"] and abs(a["probability"] - b["probability"]) < 1e-5, other
    # weights of PyTorch for an ONNX model, whose sizes are in its file
    succeed("import", folder / "b.safetensors", "--model", start, "-o", folder / "again.safetensors")
    other = json.loads(succeed("predict", folder / "again.safetensors", image, "--json", "--top", 4))["classes"]
    assert other == said[0] or all(abs(a["probability"] - b["probability"]) < 1e-5 for a, b in zip(said[0], other)), other
    text = folder / "short.txt"
    text.write_text("conv1: conv 16 window=3 bias=false\nlast: dense classes\n")
    for options, word in ((["--classes", 5], "needs"), (["--classes", 4, "--model", text], "not in the file")):
        done = command("import", folder / "torch.safetensors", *sizes, *options, "-o", folder / "never.safetensors")
        assert done.returncode == 1 and word in done.stderr, done.stderr
        assert not (folder / "never.safetensors").exists()
    # what no text can say, and files that lie
    parts = ([node("Mul", ["x", "w"], ["s"]), node("Flatten", ["s"], ["y"])], [port("x", ["n", 1, 2, 2])],
             [port("y", ["n", 4])], [tensor("w", [1, 1, 2, 2], [1.0, 2.0, 3.0, 4.0])])
    (folder / "mul.onnx").write_bytes(model(*parts))
    for out in ("never.txt", "never.safetensors"):
        for data in ([model(*parts)] if out == "never.txt" else []) + [before[:len(before) // 2], b""]:
            (folder / "mul.onnx").write_bytes(data)
            done = command("import", folder / "mul.onnx", "-o", folder / out)
            assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, done.stderr
            assert data != model(*parts) or "arithmetic (node 's'" in done.stderr, done.stderr
            assert not (folder / "never.txt").exists() and not (folder / "never.safetensors").exists()


# ---- with onnx and onnxruntime ----

def test_runtime(folder, np, onnx, runtime):
    """The checker passes, and the runtime agrees, also where models are imported first."""
    text, out, again = folder / "layers.txt", folder / "layers.onnx", folder / "again.onnx"
    text.write_text(LAYERS)
    sizes = ["--height", 12, "--width", 12, "--channels", 4]
    x = np.random.default_rng(1).standard_normal((3, 12, 12, 4)).astype(np.float32)
    np.save(folder / "x.npy", x)
    succeed("run", text, f"images={folder}/x.npy", "-o", f"logits={folder}/y.npy")
    wanted = np.load(folder / "y.npy").reshape(3, 10)
    for options in ([], ["--opset", 13], ["--opset", 22], ["--fold-batch-norm"], ["--dtype", "f16"]):
        succeed("export", text, *sizes, *options, "-o", out)
        loaded = onnx.load(out)
        onnx.checker.check_model(loaded, full_check=True)
        session = runtime.InferenceSession(str(out))
        half = "f16" in options
        y = session.run(None, {"images": x.transpose(0, 3, 1, 2).astype(np.float16 if half else np.float32)})[0]
        assert y.shape == (3, 10)
        np.testing.assert_allclose(y, wanted, rtol=0, atol=(2e-2 if half else 1e-5) * abs(wanted).max())
        if half:
            continue
        succeed("export", out, "--opset", 17, "--dtype", "f32", "-o", again)
        before = {t.name: onnx.numpy_helper.to_array(t) for t in loaded.graph.initializer}
        for t in onnx.load(again).graph.initializer:
            if t.name in before and t.name.split(".")[-1] in ("w", "b", "gamma", "beta", "mean", "variance"):
                assert onnx.numpy_helper.to_array(t).tobytes() == before[t.name].tobytes(), t.name
        y = runtime.InferenceSession(str(again)).run(None, {"images": x.transpose(0, 3, 1, 2)})[0]
        np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-5 * abs(wanted).max())


def test_neurons(folder, np, onnx, runtime):
    """All activations, and arithmetic with factors and bounds."""
    text, out = folder / "neurons.txt", folder / "neurons.onnx"
    lines = ["first: conv 3 window=3"]
    lines += [f"n{i}: neuron kind={kind} from first" for i, kind in enumerate(NEURONS)]
    parts = [f"n{i}" for i in range(len(NEURONS))]
    parts += ["a0", "a1"]
    lines.append("a1: arithmetic kind=maximum secondary_scale=0.5 from n2, n0")
    lines.append("a0: arithmetic kind=subtract primary_scale=2 secondary_scale=0.5 bias=0.1 minimum=-1 maximum=0.7 "
                 "from n1, n2")
    for k in range(0, len(parts), 8):
        lines.append(f"c{k}: concat sources={len(parts[k:k + 8])} from {', '.join(parts[k:k + 8])}")
    joined = [f"c{k}" for k in range(0, len(parts), 8)]
    lines.append(f"concat sources={len(joined)} from {', '.join(joined)}")
    lines.append("reduce kind=mean dims=1,2 weight=3")
    lines.append("dense classes")
    text.write_text("\n".join(lines))
    x = np.random.default_rng(3).standard_normal((2, 6, 6, 2)).astype(np.float32)
    np.save(folder / "x.npy", x)
    succeed("run", text, f"images={folder}/x.npy", "-o", f"logits={folder}/y.npy")
    wanted = np.load(folder / "y.npy").reshape(2, 10)
    for opset in (13, 20):
        succeed("export", text, "--height", 6, "--width", 6, "--channels", 2, "--opset", opset, "-o", out)
        loaded = onnx.load(out)
        onnx.checker.check_model(loaded, full_check=True)
        assert not [n for n in loaded.graph.node if n.op_type == "Transpose"]
        y = runtime.InferenceSession(str(out)).run(None, {"images": x.transpose(0, 3, 1, 2)})[0]
        np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-5 * abs(wanted).max())


def test_resized(folder, np, onnx, runtime):
    """Images get exactly the size that they have here, whatever a factor of f32 times the old size is."""
    start, out = folder / "resize.onnx", folder / "resized.onnx"
    x = np.random.default_rng(6).standard_normal((2, 2, 3, 7)).astype(np.float32)
    np.save(folder / "x.npy", x)
    weights = [0.5, -1.0, 0.25, 1.0]
    for mode, grid in (("linear", "half_pixel"), ("nearest", "asymmetric"), ("linear", "align_corners")):
        for sizes, opset in (((5, 11), 14), ((5, 11), 17), ((10, 29), 18), ((19, 5), 24), ((2, 47), 14)):
            more = {"nearest_mode": "floor"} if mode == "nearest" else {}
            start.write_bytes(model(
                [node("Conv", ["x", "w"], ["a"]), node("Shape", ["a"], ["s"]), node("Slice", ["s", "begin", "end"], ["nc"]),
                 node("Concat", ["nc", "hw"], ["to"], axis=0),
                 node("Resize", ["a", "", "", "to"], ["b"], mode=mode, coordinate_transformation_mode=grid, **more),
                 node("Conv", ["b", "w"], ["y"])], [port("x", ["N", 2, 3, 7])], [port("y", ["N", 2, *sizes])],
                [tensor("w", [2, 2, 1, 1], weights), tensor("begin", [1], [0], INT64), tensor("end", [1], [2], INT64),
                 tensor("hw", [2], list(sizes), INT64)]))
            succeed("run", start, f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
            succeed("export", start, "--opset", opset, "-o", out)
            onnx.checker.check_model(onnx.load(out), full_check=True)
            y, wanted = runtime.InferenceSession(str(out)).run(None, {"x": x})[0], np.load(folder / "y.npy")
            np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-5 * abs(wanted).max())


def check_window_gradients(folder, np, runtime, options):
    """Gradients of transposed convolutions, resizing by whole factors and padding, which ONNX Runtime has operators for."""
    rng = np.random.RandomState(5)
    weights = {"v": (6, 2, 3, 3), "b": (6,), "t": (6, 2, 3, 2), "c": (4,), "u": (4, 3, 2, 2)}
    made = model([node("Conv", ["x", "v", "b"], ["a"]), node("Tanh", ["a"], ["d"]), node("Pad", ["d", "pads"], ["e"]),
                  node("ConvTranspose", ["e", "t", "c"], ["f"], strides=[2, 3], pads=[1, 0, 0, 1], group=2, output_padding=[1, 2]),
                  node("Elu", ["f"], ["g"]),
                  node("Resize", ["g", "", "scales"], ["h"], mode="nearest", coordinate_transformation_mode="asymmetric",
                       nearest_mode="floor"),
                  node("ConvTranspose", ["h", "u"], ["i"], dilations=[2, 1]), node("Sigmoid", ["i"], ["y"])],
                 [port("x", ["N", 2, 7, 6])], [port("y", ["N", 3, "h", "w"])],
                 [tensor(name, shape, rng.standard_normal(shape).ravel() / 3) for name, shape in weights.items()] +
                 [tensor("pads", [8], [0, 0, 1, 2, 0, 0, -1, 1], INT64), tensor("scales", [4], [1.0, 1.0, 2.0, 3.0])])
    (folder / "windows.onnx").write_bytes(made)
    x = rng.standard_normal((2, 2, 7, 6)).astype(np.float32)
    np.save(folder / "x.npy", x)
    succeed("run", folder / "windows.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
    dy = rng.standard_normal(np.load(folder / "y.npy").shape).astype(np.float32)
    np.save(folder / "dy.npy", dy)
    succeed("run", folder / "windows.onnx", f"x={folder}/x.npy", "--gradient", f"y={folder}/dy.npy", "-o", folder / "all.safetensors")
    succeed("export", folder / "windows.onnx", "--gradient", "-o", folder / "gradient.onnx")
    session = runtime.InferenceSession(str(folder / "gradient.onnx"), options)
    results = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"x": x, "y_grad": dy})))
    tensors = read_tensors(folder / "all.safetensors")
    assert set(tensors) == set(weights), tensors.keys()
    for name, (shape, data) in tensors.items():
        wanted = np.frombuffer(data, "<f4").reshape(shape)
        np.testing.assert_allclose(results[name + "_grad"], wanted, rtol=0, atol=1e-5 * abs(wanted).max(), err_msg=name)


def check_part_gradients(folder, np, runtime, options):
    """Parts of a batch: those in front of and behind images of an open number, and a softmax over several dimensions."""
    rng = np.random.RandomState(6)
    weights = {"k": (1, 2, 1, 4), "front": (2, 3, 4, 2), "behind": (1, 3, 4, 2), "w": (3, 1, 2)}
    made = model([node("Mul", ["x", "k"], ["a"]), node("Transpose", ["a"], ["b"], perm=[0, 2, 3, 1]), node("Softmax", ["b"], ["c"], axis=1),
                  node("Concat", ["front", "c", "behind"], ["d"], axis=0), node("Mul", ["d", "w"], ["e"]), node("LogSoftmax", ["e"], ["y"], axis=2)],
                 [port("x", ["N", 2, 3, 4])], [port("y", ["M", 3, 4, 2])],
                 [tensor(name, shape, rng.standard_normal(shape).ravel()) for name, shape in weights.items()], opset=12)
    (folder / "parts.onnx").write_bytes(made)
    succeed("export", folder / "parts.onnx", "--gradient", "-o", folder / "gradient.onnx")
    session = runtime.InferenceSession(str(folder / "gradient.onnx"), options)
    for count in (1, 2, 5):
        x, dy = (rng.standard_normal(shape).astype(np.float32) for shape in ((count, 2, 3, 4), (count + 3, 3, 4, 2)))
        np.save(folder / "x.npy", x)
        np.save(folder / "dy.npy", dy)
        succeed("run", folder / "parts.onnx", f"x={folder}/x.npy", "--gradient", f"y={folder}/dy.npy", "-o", folder / "all.safetensors")
        results = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"x": x, "y_grad": dy})))
        tensors = read_tensors(folder / "all.safetensors")
        assert set(tensors) == set(weights), tensors.keys()
        for name, (shape, data) in tensors.items():
            wanted = np.frombuffer(data, "<f4").reshape(shape)
            np.testing.assert_allclose(results[name + "_grad"].reshape(shape), wanted, rtol=0, atol=1e-5 * abs(wanted).max(), err_msg=name)


def check_choice_gradients(folder, np, runtime, options):
    """Bounds, maxima of what is equal, too, and masks: gradients go where the forward pass took its values from."""
    rng = np.random.RandomState(7)
    weights = {"k": (1, 2, 1, 4), "m": (3, 1), "n": (2, 1, 4), "v": (1, 2, 3, 1)}
    made = model([node("Mul", ["x", "k"], ["a"]), node("Clip", ["a", "low", "high"], ["b"]), node("Max", ["b", "m"], ["c"]),
                  node("Min", ["c", "n"], ["d"]), node("Max", ["d", "d"], ["e"]), node("Where", ["fixed", "e", "v"], ["f"]),
                  node("Greater", ["x", "high"], ["g"]), node("Where", ["g", "v", "f"], ["h"]), node("Clip", ["h", "", "high"], ["y"])],
                 [port("x", ["N", 2, 3, 4])], [port("y", ["N", 2, 3, 4])],
                 [tensor(name, shape, [0.3, 0.1, -0.2] if name == "m" else rng.standard_normal(shape).ravel())
                  for name, shape in weights.items()] +
                 [tensor("low", [], [-0.5]), tensor("high", [], [0.75]), tensor("fixed", [3, 4], bytes(i % 3 > 0 for i in range(12)), BOOL)])
    (folder / "choices.onnx").write_bytes(made)
    succeed("export", folder / "choices.onnx", "--gradient", "-o", folder / "gradient.onnx")
    session = runtime.InferenceSession(str(folder / "gradient.onnx"), options)
    x, dy = (rng.standard_normal((3, 2, 3, 4)).astype(np.float32) for _ in range(2))
    np.save(folder / "x.npy", x)
    np.save(folder / "dy.npy", dy)
    succeed("run", folder / "choices.onnx", f"x={folder}/x.npy", "--gradient", f"y={folder}/dy.npy", "-o", folder / "all.safetensors")
    results = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"x": x, "y_grad": dy})))
    tensors = read_tensors(folder / "all.safetensors")
    assert set(weights) <= set(tensors), tensors.keys()
    for name in weights:
        shape, data = tensors[name]
        wanted = np.frombuffer(data, "<f4").reshape(shape)
        got = results[name + "_grad"]
        assert abs(wanted).max() > 0.01 and got.size == wanted.size, (name, wanted, got.shape)
        np.testing.assert_allclose(got.reshape(shape), wanted, rtol=0, atol=1e-5 * abs(wanted).max(), err_msg=name)


def test_gradient(folder, np, onnx, runtime):
    """The gradient graph, run by the runtime with our operators, gives what run --gradient gives."""
    library = PROGRAM.parent / "libretrograde_ort.so"
    if not library.exists():
        return
    rng = np.random.default_rng(4)
    x, labels = rng.standard_normal((3, 12, 12, 2)).astype(np.float32), rng.integers(0, 5, 3).astype(np.int32)
    np.save(folder / "x.npy", x)
    np.save(folder / "one.npy", np.float32(1))
    options = runtime.SessionOptions()
    options.register_custom_ops_library(str(library))
    for number, layers in enumerate(GRADIENTS):
        text, out = folder / "layers.txt", folder / "gradient.onnx"
        text.write_text(layers)
        np.save(folder / "labels.npy", labels.reshape(3, 1, 1))
        succeed("run", text, f"images={folder}/x.npy", f"labels={folder}/labels.npy", "--classes", 5, "--gradient",
                f"loss={folder}/one.npy", "-o", f"loss={folder}/loss.npy", "-o", folder / "all.safetensors")
        succeed("export", text, "--gradient", "--height", 12, "--width", 12, "--channels", 2, "--classes", 5, "-o", out)
        session = runtime.InferenceSession(str(out), options)
        results = session.run(None, {"images": x.transpose(0, 3, 1, 2), "labels": labels})
        results = dict(zip([o.name for o in session.get_outputs()], results))
        np.testing.assert_allclose(results["loss"], np.load(folder / "loss.npy"), rtol=1e-5)
        checked = 0
        for name, (shape, data) in read_tensors(folder / "all.safetensors").items():
            if name.endswith((".mean", ".variance")):
                continue # running statistics, which nothing trains
            wanted = np.frombuffer(data, "<f4").reshape(shape)
            wanted = wanted.transpose(0, 3, 1, 2) if len(shape) == 4 else wanted
            got = results[name + "_grad"]
            np.testing.assert_allclose(got, wanted.reshape(got.shape), rtol=0, atol=1e-5 * max(abs(wanted).max(), 1e-6))
            checked += 1
        assert checked == (13, 8, 4)[number], checked
    succeed("export", "lenet", "-o", folder / "lenet.onnx")
    succeed("export", folder / "lenet.onnx", "--gradient", "-o", folder / "gradient.onnx")
    x, dy = rng.standard_normal((2, 1, 28, 28)).astype(np.float32), rng.standard_normal((2, 10)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "dy.npy", dy)
    succeed("run", folder / "lenet.onnx", f"images={folder}/x.npy", "--gradient", f"logits={folder}/dy.npy", "-o",
            folder / "all.safetensors")
    session = runtime.InferenceSession(str(folder / "gradient.onnx"), options)
    results = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"images": x, "logits_grad": dy})))
    for name, (shape, data) in read_tensors(folder / "all.safetensors").items():
        wanted = np.frombuffer(data, "<f4").reshape(shape)
        np.testing.assert_allclose(results[name + "_grad"], wanted, rtol=0, atol=1e-5 * abs(wanted).max())
    check_window_gradients(folder, np, runtime, options)
    check_part_gradients(folder, np, runtime, options)
    check_choice_gradients(folder, np, runtime, options)
    refuse(folder / "never.onnx", folder / "lrn.txt", "--gradient", words=("lrn.txt",))
    (folder / "lrn.txt").write_text("one: conv 4 window=3\n two: lrn window=4\n dense classes\n")
    refuse(folder / "never.onnx", folder / "lrn.txt", "--gradient", words=("lrn gradient",))


def agrees(folder, np, session, images, name, scale=None, run="run"):
    """The first output of the session, as probabilities, is what predict prints."""
    for n in range(3):
        np.save(folder / "image.npy", images[n])
        said = json.loads(succeed("predict", folder / run, folder / "image.npy", "--json", "--top", 3))
        wanted = np.zeros(3)
        for entry in said["classes"]:
            wanted[entry["number"]] = entry["probability"]
        x = images[n].transpose(2, 0, 1)[None].astype(np.float32) / 255
        x = x if scale is None else (x - scale[0]) / scale[1]
        logits = session.run(None, {name: x})[0][0]
        np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(), wanted, atol=1e-5)


def test_trained(folder, np, onnx, runtime):
    """Networks trained on images of u8, and trained further from a file: the runtime agrees with predict."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 120)
    images = (rng.integers(0, 60, (120, 12, 12, 3)) + 60 * labels[:, None, None, None]).astype(np.uint8)
    np.savez(folder / "set.npz", x_train=images, y_train=labels.astype(np.int64), x_test=images[:20],
             y_test=labels[:20].astype(np.int64))
    train = ["--data", folder / "set.npz", "--epochs", 1, "--batch", 20, "--threads", 1]
    succeed("train", *train, "--model", "resnet", "--out", folder / "run")
    succeed("export", folder / "run", "-o", folder / "trained.onnx", "--probabilities")
    onnx.checker.check_model(onnx.load(folder / "trained.onnx"), full_check=True)
    session = runtime.InferenceSession(str(folder / "trained.onnx"))
    agrees(folder, np, session, images, "images")
    logits, probabilities = session.run(None, {"images": np.ones((1, 3, 12, 12), np.float32)})
    np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(), probabilities, atol=1e-6)

    succeed("export", "resnet", "--height", 12, "--width", 12, "--channels", 3, "--classes", 3, "-o",
            folder / "start.onnx")
    shutil.rmtree(folder / "run")
    succeed("train", folder / "start.onnx", *train, "--out", folder / "run")
    for options in ([], ["--fold-batch-norm"], ["--opset", 21]):
        succeed("export", folder / "run", *options, "-o", folder / "tuned.onnx")
        tuned, start = onnx.load(folder / "tuned.onnx"), onnx.load(folder / "start.onnx")
        onnx.checker.check_model(tuned, full_check=True)
        assert [p.name for p in tuned.graph.output] == ["logits"]
        agrees(folder, np, runtime.InferenceSession(str(folder / "tuned.onnx")), images, "images")
        if not options: # two nodes in front, and all others as they were
            assert [n.op_type for n in tuned.graph.node[:2]] == ["Sub", "Div"]
            assert [n.output for n in tuned.graph.node[2:]] == [n.output for n in start.graph.node]
            weights = {t.name: t.raw_data for t in tuned.graph.initializer}
            scale = [np.frombuffer(weights[f"images.{word}"], "<f4").reshape(3, 1, 1) for word in ("mean", "deviation")]
            assert all(weights[t.name] != t.raw_data for t in start.graph.initializer if t.name.endswith(".w"))
    succeed("export", "resnet", "--height", 12, "--width", 12, "--channels", 3, "--classes", 7, "-o",
            folder / "seven.onnx")
    seven = onnx.load(folder / "seven.onnx")  # initializers are inputs, too, as in older files
    seven.graph.input.extend(onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in seven.graph.initializer)
    seven.ir_version = 3
    onnx.save(seven, folder / "seven.onnx")
    succeed("train", folder / "seven.onnx", *train, "--head", 3, "--out", folder / "headed")
    succeed("export", folder / "headed", "-o", folder / "headed.onnx")
    onnx.checker.check_model(onnx.load(folder / "headed.onnx"), full_check=True)
    assert runtime.InferenceSession(str(folder / "headed.onnx")).get_outputs()[0].shape[1] == 3
    agrees(folder, np, runtime.InferenceSession(str(folder / "headed.onnx")), images, "images", run="headed")
    (folder / "softmax.onnx").write_bytes(classifier(12, 3))
    succeed("train", folder / "softmax.onnx", *train, "--out", folder / "softmax")
    for options in ([], ["--opset", 21]):  # the softmax that training leaves out is part of the file
        succeed("export", folder / "softmax", *options, "-o", folder / "whole.onnx")
        y = runtime.InferenceSession(str(folder / "whole.onnx")).run(None, {"x": np.ones((2, 3, 12, 12), np.float32)})[0]
        np.testing.assert_allclose(y.sum(1), 1, atol=1e-5)

    succeed("export", folder / "run", "--raw-input", "-o", folder / "raw.onnx")
    raw = onnx.load(folder / "raw.onnx")
    assert [n.SerializeToString() for n in raw.graph.node] == [n.SerializeToString() for n in start.graph.node]
    agrees(folder, np, runtime.InferenceSession(str(folder / "raw.onnx")), images, "images", scale)


def test_trained_with_channels_last(folder, np, onnx, runtime):
    """A file with images (n, h, w, c) keeps its input, and its output of pixels, however it is written."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 40)
    images = (rng.integers(0, 60, (40, 10, 12, 3)) + 60 * labels[:, None, None, None]).astype(np.uint8)
    for pixels in (False, True):
        y = np.broadcast_to(labels[:, None, None], (40, 10, 12)) if pixels else labels
        np.savez(folder / "set.npz", x_train=images, y_train=y.astype(np.int64), x_test=images[:20], y_test=y[:20].astype(np.int64))
        end = [node("Transpose", ["c"], ["y"], perm=[0, 2, 3, 1])] if pixels else [
            node("GlobalAveragePool", ["c"], ["p"]), node("Flatten", ["p"], ["y"])]
        shape = ["N", 10, 12, 3] if pixels else ["N", 3]
        (folder / "last.onnx").write_bytes(model(
            [node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]), node("Conv", ["t", "w"], ["c"], pads=[1, 1, 1, 1]), *end],
            [port("x", ["N", 10, 12, 3])], [port("y", shape)], [tensor("w", [3, 3, 3, 3], rng.standard_normal(81))]))
        shutil.rmtree(folder / "run", ignore_errors=True)
        succeed("train", folder / "last.onnx", "--data", folder / "set.npz", "--epochs", 1, "--batch", 20, "--threads", 1,
                "--out", folder / "run")
        x, wanted = images[:4].astype(np.float32) / 255, None
        for options in ([], ["--opset", 14], ["--opset", 21, "--fold-batch-norm"], ["--probabilities"], ["--dtype", "f16"]):
            half = "f16" in options
            succeed("export", folder / "run", *options, "-o", folder / "out.onnx")
            onnx.checker.check_model(onnx.load(folder / "out.onnx"), full_check=True)
            session = runtime.InferenceSession(str(folder / "out.onnx"))
            assert session.get_inputs()[0].shape[1:] == [10, 12, 3], (options, session.get_inputs()[0].shape)
            got = session.run(None, {"x": x.astype(np.float16) if half else x})
            wanted = got[0] if wanted is None else wanted
            assert got[0].shape == wanted.shape == (4, *shape[1:]), options
            np.testing.assert_allclose(got[0], wanted, rtol=0, atol=(1e-2 if half else 1e-5) * abs(wanted).max())
            if len(got) > 1:
                np.testing.assert_allclose(got[1], np.exp(wanted) / np.exp(wanted).sum(-1, keepdims=True), atol=1e-5)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for test in (test_unchanged, test_layers, test_refused, test_import):
            test(folder)
        try:
            import numpy
            import onnx
            import onnxruntime
        except ImportError as missing:
            print(f"skipped: {missing}")
            sys.exit(1 if os.environ.get("CI") == "true" else 77)
        onnxruntime.set_default_logger_severity(3)
        for test in (test_runtime, test_neurons, test_resized, test_gradient, test_trained, test_trained_with_channels_last):
            test(folder, numpy, onnx, onnxruntime)


if __name__ == "__main__":
    main()
