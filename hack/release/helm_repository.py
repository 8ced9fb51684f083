"""Writes a Helm repository: ``python -m hack.release.helm_repository FOLDER``.

The packages of the charts in this tree are added to those that the folder already has, and ``index.yaml`` lists them
all, so ``helm repo add`` accepts the address from which any HTTP server serves the folder. A package is made of
sorted files without times and owners: one tree always gives the same bytes. A package that exists with other content is
an error, because it may be installed.

Source of facts: the `chart repository guide`_.

.. _chart repository guide: https://helm.sh/docs/topics/chart_repository/
"""

from __future__ import annotations

import gzip
import hashlib
import sys
import tarfile
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import yaml

from hack import ROOT
from hack.files import ToolError
from hack.release.semver import Version

CHARTS: Final = ("deploy/charts/catalog", "deploy/charts/codeflare-operator")


def chart_of(package: bytes, name: str) -> dict[str, Any]:
    """Return the ``Chart.yaml`` of a package. Raises :class:`~hack.files.ToolError`, with ``name``, if it has none."""
    with tarfile.open(fileobj=BytesIO(package), mode="r:gz") as archive:
        for member in archive:
            folder, _, file = member.name.partition("/")
            content = archive.extractfile(member)
            if folder and file == "Chart.yaml" and content is not None:
                chart: dict[str, Any] = yaml.safe_load(content)
                return chart
    raise ToolError(f"{name}: has no Chart.yaml")


def package_of(chart: Path) -> bytes:
    """Return the package of the chart in the folder ``chart``: a compressed tar archive of a folder with its name."""
    archived = BytesIO()
    with tarfile.open(fileobj=archived, mode="w") as archive:
        for path in sorted(chart.rglob("*")):
            if not path.is_file():
                continue
            content = path.read_bytes()
            member = tarfile.TarInfo(f"{chart.name}/{path.relative_to(chart).as_posix()}")
            member.size = len(content)
            member.mode = 0o644
            archive.addfile(member, BytesIO(content))
    return gzip.compress(archived.getvalue(), mtime=0)


def index_of(packages: dict[str, bytes], now: datetime) -> dict[str, Any]:
    """Return the index of ``packages`` (by file name), the newest version of a chart first."""
    created = now.isoformat(timespec="seconds")
    entries: dict[str, list[dict[str, Any]]] = {}
    for name, package in packages.items():
        chart = chart_of(package, name)
        entry = {
            **chart,
            "created": created,
            "digest": hashlib.sha256(package).hexdigest(),
            "urls": [name],
        }
        entries.setdefault(chart["name"], []).append(entry)
    for versions in entries.values():
        versions.sort(key=lambda entry: Version.parse(entry["version"]), reverse=True)
    return {"apiVersion": "v1", "entries": entries, "generated": created}


def write_repository(folder: Path, now: datetime) -> list[Path]:
    """Write the packages of all charts and the index to ``folder``; return the written files.

    Raises :class:`~hack.files.ToolError` for a package that exists with other content.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for chart in CHARTS:
        package = package_of(ROOT / chart)
        metadata = chart_of(package, chart)
        path = folder / f"{metadata['name']}-{metadata['version']}.tgz"
        if path.exists() and path.read_bytes() != package:
            raise ToolError(f"{path}: exists with other content; a released version never changes")
        path.write_bytes(package)
        written.append(path)
    packages = {path.name: path.read_bytes() for path in sorted(folder.glob("*.tgz"))}
    index = folder / "index.yaml"
    index.write_text(yaml.safe_dump(index_of(packages, now)))
    return [*written, index]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m hack.release.helm_repository FOLDER")
    try:
        for written_file in write_repository(Path(sys.argv[1]), datetime.now(UTC)):
            print(written_file)
    except ToolError as error:
        sys.exit(f"hack.release.helm_repository: {error}")
