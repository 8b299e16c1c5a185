# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Resizing beside Pillow's: 100 random images, within one grey level. JPEG, PNG and WebP files of all orientations are
turned as Pillow turns them.

    python3 image_peer_test.py RESIZE_STEPS
"""
import io
import os
import random
import subprocess
import sys

try:
    from PIL import Image, ImageOps, features
except ImportError:
    SYSTEM_PYTHON = "/usr/bin/python3"  # the one that Debian's python3-pil belongs to
    if os.path.exists(SYSTEM_PYTHON) and os.path.realpath(sys.executable) != os.path.realpath(SYSTEM_PYTHON):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    print("skipped: there is no Pillow (Debian: python3-pil)")
    sys.exit(1 if os.environ.get("CI") == "true" else 77)


def cover(image, height, width):
    """The smallest size with the proportions of the image that covers this one, and its middle."""
    scale = max(height / image.height, width / image.width)
    whole = (max(width, int(image.width * scale + 0.5)), max(height, int(image.height * scale + 0.5)))
    left, top = (whole[0] - width) // 2, (whole[1] - height) // 2
    return image.resize(whole, Image.BILINEAR).crop((left, top, left + width, top + height))


def draw(source, number):
    """Noise, a smooth image or a pattern of stripes, of any size."""
    height, width, channels = source.randint(1, 300), source.randint(1, 300), source.choice((1, 3))
    if number % 3 == 0:
        pixels = source.randbytes(height * width * channels)
    else:
        a, b, c = (source.randint(1, 90) for _ in range(3))
        pixels = bytes((i // (width * channels) * a // 10 + i % (width * channels) * b // 10) * c // (10 if number % 3 == 1 else 1) % 256
                       for i in range(height * width * channels))  # fmt: skip
    return Image.frombytes("L" if channels == 1 else "RGB", (width, height), pixels)


def orientations(program):
    """Photographs with an orientation, of one channel and three, as they are and resized."""
    source = random.Random(9)
    formats = ("JPEG", "PNG", "WEBP") if features.check("webp") else ("JPEG", "PNG")
    for number in range(36 * len(formats)):
        orientation, big, form = number % 9, number % 2, formats[number // 36]  # 0 is none
        image = draw(source, 3 * number + 1).resize((source.randint(3, 60), source.randint(3, 60)))
        file = io.BytesIO()
        exif = Image.Exif()
        exif[0x010F] = "camera"
        exif[0x0112] = orientation
        exif.endian = ">" if big else "<"
        image.save(file, form, quality=95, lossless=True, exif=exif.tobytes())
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(file.getvalue())))
        assert orientation < 5 or upright.size == image.size[::-1]
        for size in ((upright.height, upright.width), (24, 31)):
            told = b"0 %d %d %d %d\n" % (len(file.getvalue()), len(upright.getbands()), *size) + file.getvalue()
            got = subprocess.run([program], input=told, stdout=subprocess.PIPE, check=True).stdout
            wanted = cover(upright, *size).tobytes()
            off = [abs(a - b) for a, b in zip(got, wanted)]
            if len(got) != len(wanted) or max(off) > 1:
                sys.exit("%s, orientation %d, %dx%d pixels: differs by %d" % (form, orientation, *size, max(off)))


def main(program):
    orientations(program)
    source = random.Random(7)
    images, told = [], b""
    for number in range(100):
        image, size = draw(source, number), (source.randint(1, 256), source.randint(1, 256))
        images.append((image, size))
        told += b"%d %d %d %d %d\n" % (image.height, image.width, len(image.getbands()), *size) + image.tobytes()
    made = subprocess.run([program], input=told, stdout=subprocess.PIPE, check=True).stdout
    largest = different = count = 0
    for image, size in images:
        wanted = cover(image, *size).tobytes()
        got, made = made[: len(wanted)], made[len(wanted) :]
        off = [abs(a - b) for a, b in zip(got, wanted)]
        largest, different, count = max(largest, *off), different + sum(map(bool, off)), count + len(off)
        if len(got) != len(wanted) or max(off) > 1:
            sys.exit("an image of %dx%d, resized to %dx%d, differs by %d" % (*image.size, *size[::-1], max(off)))
    assert not made
    print("100 images: the largest difference is %d, %d of %d bytes differ" % (largest, different, count))


main(*sys.argv[1:])
