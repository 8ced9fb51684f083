"""The training job of the end-to-end tests: a linear classifier of MNIST's digits, for one pass.

It runs in the PyTorch image, from a ConfigMap, so it imports nothing of this project, and nothing
that Python 3.8 has not.
"""

from __future__ import annotations

import gzip
import os
import struct
import urllib.request
from typing import Any

LEAST_ACCURACY = 0.8


def parse(packed: bytes) -> tuple[tuple[int, ...], bytes]:
    """Shape and bytes of a gzipped IDX file (two zero bytes, type 8 for bytes, number of dimensions, dimensions)."""
    raw = gzip.decompress(packed)
    zero, kind, dimensions = struct.unpack(">HBB", raw[:4])
    if zero != 0 or kind != 8:
        raise ValueError("not an IDX file of bytes")
    start = 4 + 4 * dimensions
    return struct.unpack(">" + "I" * dimensions, raw[4:start]), raw[start:]


def main() -> None:
    """Downloads, trains and asserts that something was learnt."""
    import torch  # type: ignore[import-not-found] # only there
    from torchmetrics.functional import accuracy  # type: ignore[import-not-found]

    def load(name: str) -> Any:
        with urllib.request.urlopen(os.environ["MNIST_DATASET_URL"] + name + ".gz", timeout=60) as answer:
            shape, data = parse(answer.read())
        return torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(shape)

    def images(name: str) -> Any:
        return load(name).flatten(start_dim=1).float() / 255

    torch.manual_seed(0)
    inputs, labels = images("train-images-idx3-ubyte"), load("train-labels-idx1-ubyte").long()
    model = torch.nn.Linear(inputs.shape[1], 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch, target in zip(inputs.split(64), labels.split(64)):  # noqa: B905 # strict= is newer than some images
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), target).backward()
        optimizer.step()
    with torch.no_grad():
        guesses = model(images("t10k-images-idx3-ubyte")).argmax(dim=1)
    right = accuracy(guesses, load("t10k-labels-idx1-ubyte").long(), task="multiclass", num_classes=10).item()
    print("accuracy", right)
    if right < LEAST_ACCURACY:
        raise SystemExit("nothing was learnt")


if __name__ == "__main__":
    main()
