"""Settings of the end-to-end tests: defaults, validation, and the documentation of each variable."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from test.e2e.mnist import parse
from test.e2e.settings import Settings, unused_variables


def test_every_setting_has_a_default() -> None:
    settings = Settings.from_environment({})
    assert "/" in settings.ray_image
    assert "/" in settings.pytorch_image
    assert settings.mnist_url.startswith("https://")
    assert settings.pip == {}  # pip's own defaults
    assert settings.output is None
    assert (settings.short, settings.medium, settings.long) == (60, 120, 600)


def test_every_variable_is_used() -> None:
    settings = Settings.from_environment(
        {
            "CODEFLARE_TEST_RAY_IMAGE": "registry.test/ray:1",
            "CODEFLARE_TEST_PYTORCH_IMAGE": "registry.test/torch@sha256:00",
            "MNIST_DATASET_URL": "http://files.test/mnist",
            "PIP_INDEX_URL": "http://packages.test/simple",
            "PIP_TRUSTED_HOST": "packages.test",
            "CODEFLARE_TEST_OUTPUT_DIR": "/tmp/logs",
            "CODEFLARE_TEST_TIMEOUT_SHORT": "90s",
            "CODEFLARE_TEST_TIMEOUT_MEDIUM": "2m30s",
            "CODEFLARE_TEST_TIMEOUT_LONG": "1h",
        }
    )
    assert settings == Settings(
        ray_image="registry.test/ray:1",
        pytorch_image="registry.test/torch@sha256:00",
        mnist_url="http://files.test/mnist/",  # file names follow it
        pip={"PIP_INDEX_URL": "http://packages.test/simple", "PIP_TRUSTED_HOST": "packages.test"},
        output=Path("/tmp/logs"),
        short=90,
        medium=150,
        long=3600,
    )


def test_empty_variable_counts_as_unset() -> None:
    documented = re.findall(r"^\| `([A-Z_]+)`", _documentation(), flags=re.MULTILINE)
    assert len(documented) == 11
    assert Settings.from_environment(dict.fromkeys(documented, "")) == Settings.from_environment({})
    assert unused_variables(dict.fromkeys(documented, "")) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CODEFLARE_TEST_TIMEOUT_SHORT", "60"),
        ("CODEFLARE_TEST_TIMEOUT_MEDIUM", "1d"),
        ("CODEFLARE_TEST_TIMEOUT_LONG", "-5m"),
        ("CODEFLARE_TEST_RAY_IMAGE", "ray 2"),
        ("CODEFLARE_TEST_PYTORCH_IMAGE", " torch"),
        ("MNIST_DATASET_URL", "files.test/mnist"),
    ],
)
def test_invalid_value_is_reported_with_its_variable(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name}: {value!r}: must be ")):
        Settings.from_environment({name: value})


def test_variables_without_a_test_are_reported_when_set() -> None:
    lines = unused_variables(
        {"ODH_NAMESPACE": "opendatahub", "NOTEBOOK_IMAGE_STREAM_NAME": "science", "PATH": "/bin"}
    )
    assert [line.split()[0] for line in lines] == ["NOTEBOOK_IMAGE_STREAM_NAME", "ODH_NAMESPACE"]


def test_documentation_lists_each_default() -> None:
    text = _documentation()
    settings = Settings.from_environment({})
    for default in (settings.ray_image, settings.pytorch_image, settings.mnist_url):
        assert f"`{default}`" in text


def test_training_job_reads_idx_files() -> None:
    shape, data = parse(gzip.compress(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, *range(6)])))
    assert (shape, data) == ((2, 3), bytes(range(6)))
    with pytest.raises(ValueError, match="IDX"):
        parse(gzip.compress(bytes([0, 0, 13, 0])))


def _documentation() -> str:
    return (Path(__file__).parents[3] / "docs" / "e2e.md").read_text()
