"""The training job of the end-to-end tests: a linear classifier of the MNIST digits, trained for one epoch.

It runs in the PyTorch image, from a ConfigMap, so it imports nothing of this project and must run on Python 3.8.
"""

from __future__ import annotations

import gzip
import os
import struct
import urllib.request
from typing import Any

MINIMUM_ACCURACY = 0.8


def parse(packed: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return shape and content of a gzipped IDX file of bytes.

    Its header has two zero bytes, the type (8 for bytes), the number of dimensions, and the dimensions.
    """
    raw = gzip.decompress(packed)
    zero, kind, dimensions = struct.unpack(">HBB", raw[:4])
    if zero != 0 or kind != 8:
        raise ValueError("not an IDX file of bytes")
    start = 4 + 4 * dimensions
    return struct.unpack(">" + "I" * dimensions, raw[4:start]), raw[start:]


def main() -> None:
    """Download the dataset, train, and fail if the accuracy is below :data:`MINIMUM_ACCURACY`."""
    import torch  # type: ignore[import-not-found] # only in the image
    from torchmetrics.functional import accuracy  # type: ignore[import-not-found]

    def load(name: str) -> Any:
        with urllib.request.urlopen(
            os.environ["MNIST_DATASET_URL"] + name + ".gz", timeout=240
        ) as response:
            shape, data = parse(response.read())
        return torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(shape)

    def images(name: str) -> Any:
        return load(name).flatten(start_dim=1).float() / 255

    torch.manual_seed(0)
    inputs, labels = images("train-images-idx3-ubyte"), load("train-labels-idx1-ubyte").long()
    model = torch.nn.Linear(inputs.shape[1], 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch, target in zip(inputs.split(64), labels.split(64)):  # noqa: B905 # strict= needs Python 3.10
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), target).backward()
        optimizer.step()
    with torch.no_grad():
        guesses = model(images("t10k-images-idx3-ubyte")).argmax(dim=1)
    correct = accuracy(
        guesses, load("t10k-labels-idx1-ubyte").long(), task="multiclass", num_classes=10
    ).item()
    print("accuracy", correct)
    if correct < MINIMUM_ACCURACY:
        raise SystemExit(f"the accuracy is below {MINIMUM_ACCURACY}")


if __name__ == "__main__":
    main()
