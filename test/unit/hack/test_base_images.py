"""Unit tests of ``hack.base_images``."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack import base_images

DIGEST = f"sha256:{'0a' * 32}"


def write(root: Path, dockerfile: str) -> None:
    for name in base_images.FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "Dockerfile").write_text(dockerfile)


def test_strict_mode_fails_without_digests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, f"FROM python:3.11-slim AS build\nFROM quay.io/x/y:v1@{DIGEST}\n")
    assert base_images.main([], tmp_path) == 0
    assert base_images.main(["--strict"], tmp_path) == 1
    assert "Dockerfile: python:3.11-slim: no digest" in capsys.readouterr().out
    write(tmp_path, f"FROM python:3.11-slim@{DIGEST} AS build\nFROM scratch\n")
    assert base_images.main(["--strict"], tmp_path) == 0


def test_digests_are_added_and_replaced() -> None:
    text = f"FROM python:3.11-slim AS build\nFROM quay.io/x/y:v1@sha256:{'1' * 64}\nFROM scratch\n"
    pinned = base_images.pin(text, lambda _: DIGEST)
    assert (
        pinned
        == f"FROM python:3.11-slim@{DIGEST} AS build\nFROM quay.io/x/y:v1@{DIGEST}\nFROM scratch\n"
    )
    assert base_images.pin(pinned, lambda _: DIGEST) == pinned


def test_files_of_this_repository_name_base_images() -> None:
    texts = {name: (base_images.ROOT / name).read_text() for name in base_images.FILES}
    assert all(base_images.pin(text, lambda _: DIGEST).count(DIGEST) for text in texts.values())
