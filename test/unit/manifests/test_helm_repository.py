"""The Helm repository that ``make helm-repository`` writes: its packages, and the index that Helm reads."""

from __future__ import annotations

import hashlib
import tarfile
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from urllib.parse import urljoin
from urllib.request import urlopen

import pytest
import yaml

from hack import ROOT
from hack.files import ToolError
from hack.release.helm_repository import CHARTS, index_of, package_of, write_repository

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def package_with_version(version: str) -> bytes:
    """Return the package of a chart that has nothing but a name and ``version``."""
    chart = yaml.safe_dump({"apiVersion": "v2", "name": "small", "version": version}).encode()
    archived = BytesIO()
    with tarfile.open(fileobj=archived, mode="w:gz") as archive:
        member = tarfile.TarInfo("small/Chart.yaml")
        member.size = len(chart)
        archive.addfile(member, BytesIO(chart))
    return archived.getvalue()


def test_each_chart_can_be_installed_from_any_http_server(tmp_path: Path) -> None:
    write_repository(tmp_path, NOW)
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        index = yaml.safe_load(read(urljoin(address, "index.yaml")))
        assert index["apiVersion"] == "v1"
        assert {f"deploy/charts/{name}" for name in index["entries"]} == set(CHARTS)
        for name, (entry,) in index["entries"].items():
            package = read(urljoin(address, entry["urls"][0]))
            assert hashlib.sha256(package).hexdigest() == entry["digest"]
            assert entry.items() >= content_of(ROOT / "deploy/charts" / name / "Chart.yaml").items()
            assert unpacked(package) == {
                f"{name}/{path.relative_to(ROOT / 'deploy/charts' / name)}": path.read_bytes()
                for path in (ROOT / "deploy/charts" / name).rglob("*")
                if path.is_file()
            }
        server.shutdown()


def test_earlier_versions_stay_and_the_newest_one_is_first(tmp_path: Path) -> None:
    for version in ("0.9.0", "0.10.0", "0.10.0-rc.1"):
        (tmp_path / f"small-{version}.tgz").write_bytes(package_with_version(version))
    write_repository(tmp_path, NOW)
    entries = content_of(tmp_path / "index.yaml")["entries"]
    assert [entry["version"] for entry in entries["small"]] == ["0.10.0", "0.10.0-rc.1", "0.9.0"]
    assert entries.keys() == {"small", "catalog", "codeflare-operator"}


def test_released_version_never_changes(tmp_path: Path) -> None:
    package, *_ = write_repository(tmp_path, NOW)
    written = package.read_bytes()
    write_repository(tmp_path, NOW)
    assert package.read_bytes() == written
    package.write_bytes(written + b"\0")
    with pytest.raises(ToolError, match="exists with other content"):
        write_repository(tmp_path, NOW)
    assert package.read_bytes() == written + b"\0"


def test_package_does_not_depend_on_times(tmp_path: Path) -> None:
    chart = tmp_path / "small"
    chart.mkdir()
    (chart / "Chart.yaml").write_text("name: small\nversion: 1.0.0\n")
    before = package_of(chart)
    (chart / "Chart.yaml").touch()
    assert package_of(chart) == before


def test_package_without_a_chart_is_an_error() -> None:
    empty = BytesIO()
    tarfile.open(fileobj=empty, mode="w:gz").close()
    with pytest.raises(ToolError, match=r"broken-1\.tgz: has no Chart\.yaml"):
        index_of({"broken-1.tgz": empty.getvalue()}, NOW)


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder without a line on stderr for each request."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing."""


def read(url: str) -> bytes:
    with urlopen(url) as response:
        content: bytes = response.read()
    return content


def content_of(path: Path) -> dict[str, object]:
    content: dict[str, object] = yaml.safe_load(path.read_text())
    return content


def unpacked(package: bytes) -> dict[str, bytes]:
    """Return the content of each file in a package, by its path."""
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=BytesIO(package), mode="r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            files[member.name] = content.read()
    return files
