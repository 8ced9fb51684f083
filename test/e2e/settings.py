"""The settings of the end-to-end tests, from the same environment variables as the Go operator's tests.

``docs/e2e.md`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from cfo.runtime.objects import parse_duration

__all__ = ["Settings", "unused_variables"]

_Value = TypeVar("_Value")

# pip in the training job reads these itself
_PIP: Final = ("PIP_INDEX_URL", "PIP_TRUSTED_HOST")

_NO_TEST: Final = "no test starts an ODH notebook, which the operator does not manage"
_UNUSED: Final = {"NOTEBOOK_IMAGE_STREAM_NAME": _NO_TEST, "ODH_NAMESPACE": _NO_TEST}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Images, URLs and timeouts of the end-to-end tests.

    The timeouts are in seconds: ``short`` for results of one controller, ``medium`` for results of several, ``long``
    for pulling images and running containers. ``pip`` is the environment of pip in the cluster.
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
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings from ``environ``; empty variables count as unset.

        Raises :class:`ValueError`, which names the variable, for an invalid value.
        """

        def read(name: str, default: str, convert: Callable[[str], _Value]) -> _Value:
            value = environ.get(name) or default
            try:
                return convert(value)
            except ValueError as error:
                raise ValueError(f"{name}: {value!r}: {error}") from None

        output = environ.get("CODEFLARE_TEST_OUTPUT_DIR")
        mnist = "https://ossci-datasets.s3.amazonaws.com/mnist/"
        return cls(
            ray_image=read(
                "CODEFLARE_TEST_RAY_IMAGE", "quay.io/modh/ray:2.35.0-py311-cu121", _image
            ),
            pytorch_image=read(
                "CODEFLARE_TEST_PYTORCH_IMAGE",
                "pytorch/pytorch:2.4.1-cuda12.1-cudnn9-runtime",
                _image,
            ),
            mnist_url=read("MNIST_DATASET_URL", mnist, _url),
            pip={name: environ[name] for name in _PIP if environ.get(name)},
            output=Path(output) if output else None,
            short=read("CODEFLARE_TEST_TIMEOUT_SHORT", "1m", _seconds),
            medium=read("CODEFLARE_TEST_TIMEOUT_MEDIUM", "2m", _seconds),
            long=read("CODEFLARE_TEST_TIMEOUT_LONG", "10m", _seconds),
        )


def unused_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a line with the reason for each variable that is set and that no test reads."""
    return [
        f"{name} is set but not used: {reason}"
        for name, reason in _UNUSED.items()
        if environ.get(name)
    ]


def _image(value: str) -> str:
    if value != value.strip() or " " in value:
        raise ValueError("must be an image reference without spaces")
    return value


def _url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError("must be an http or https URL")
    return value.rstrip("/") + "/"


def _seconds(value: str) -> float:
    seconds = parse_duration(value).total_seconds()
    if seconds <= 0:
        raise ValueError("must be greater than 0")
    return seconds
