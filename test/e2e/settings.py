"""What the end-to-end tests take from the environment: the variables that the Go operator's tests read, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from cfo.config.durations import parse_duration

__all__ = ["Settings", "unused"]

_Read = TypeVar("_Read")

# pip reads these by itself, where it runs
_PIP: Final = ("PIP_INDEX_URL", "PIP_TRUSTED_HOST")

_NO_TEST: Final = "no test here starts an ODH notebook: the operator has no part in them"
_UNUSED: Final = {"NOTEBOOK_IMAGE_STREAM_NAME": _NO_TEST, "ODH_NAMESPACE": _NO_TEST}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Images, addresses and patience of the end-to-end tests.

    ``short``, ``medium`` and ``long`` are how many seconds a test waits for what needs one controller, for what needs
    several, and for what pulls images and runs in them. ``pip`` is the environment of a ``pip`` in the cluster.
    """

    ray_image: str
    pytorch_image: str
    mnist_url: str
    pip: Mapping[str, str]
    output: Path | None
    short: float
    medium: float
    long: float

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Settings:
        """The settings that ``environ`` says; empty variables count as not set.

        Raises :class:`ValueError`, naming the variable, for a value that cannot be used.
        """

        def read(name: str, default: str, convert: Callable[[str], _Read]) -> _Read:
            value = environ.get(name) or default
            try:
                return convert(value)
            except ValueError as error:
                raise ValueError(f"{name}: {value!r}: {error}") from None

        output = environ.get("CODEFLARE_TEST_OUTPUT_DIR")
        mnist = "https://ossci-datasets.s3.amazonaws.com/mnist/"
        return cls(
            ray_image=read("CODEFLARE_TEST_RAY_IMAGE", "quay.io/modh/ray:2.35.0-py311-cu121", _image),
            pytorch_image=read("CODEFLARE_TEST_PYTORCH_IMAGE", "pytorch/pytorch:2.4.1-cuda12.1-cudnn9-runtime", _image),
            mnist_url=read("MNIST_DATASET_URL", mnist, _url),
            pip={name: environ[name] for name in _PIP if environ.get(name)},
            output=Path(output) if output else None,
            short=read("CODEFLARE_TEST_TIMEOUT_SHORT", "1m", _seconds),
            medium=read("CODEFLARE_TEST_TIMEOUT_MEDIUM", "2m", _seconds),
            long=read("CODEFLARE_TEST_TIMEOUT_LONG", "10m", _seconds),
        )


def unused(environ: Mapping[str, str]) -> list[str]:
    """A line for each variable that is set and that no test here reads: which, and why."""
    return [f"{name} is set and not used: {why}" for name, why in _UNUSED.items() if environ.get(name)]


def _image(text: str) -> str:
    if text != text.strip() or " " in text:
        raise ValueError("must be an image reference without spaces")
    return text


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("must be an http or https URL")
    return text.rstrip("/") + "/"


def _seconds(text: str) -> float:
    seconds = parse_duration(text).total_seconds()
    if seconds <= 0:
        raise ValueError("must be more than nothing")
    return seconds
