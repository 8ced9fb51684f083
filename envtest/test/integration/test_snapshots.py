"""Snapshots in files, and files that cannot be restored."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.formats.certificate_authority import CertificateAuthority
from envtest.planes.snapshots import SnapshotError
from envtest.threaded import ThreadedControlPlane
from test.support.config_maps import CONFIG_MAPS, config_map
from test.support.toys import TOYS

SERVICES = "/api/v1/namespaces/default/services"
TOYS_PATH = "/apis/example.com/v1/namespaces/default/toys"
TOY = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "bear"}}
SERVICE = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}


async def write(path: Path) -> None:
    """Write a snapshot with objects of built-in and custom kinds."""
    async with ControlPlane.embedded(crds=[TOYS], service_cluster_ip_range="10.7.0.0/24") as plane:
        async with APIClient(plane) as api:
            await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
            await api.post(TOYS_PATH, TOY)
            await api.post(SERVICES, SERVICE)
        await plane.advance(3600)
        await plane.snapshot(path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot that tests copy before they change it."""
    import asyncio

    path = tmp_path_factory.mktemp("snapshots") / "original"
    asyncio.run(write(path))
    return path


@pytest.fixture
def file(written: Path, tmp_path: Path) -> Path:
    path = tmp_path / "snapshot"
    path.write_bytes(written.read_bytes())
    return path


async def test_restore_continues_with_the_same_state(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    async with ControlPlane.embedded(crds=[TOYS], service_cluster_ip_range="10.7.0.0/24") as plane:
        async with APIClient(plane) as api:
            kept = (await api.post(CONFIG_MAPS, config_map("kept"))).body
            toy = (await api.post(TOYS_PATH, TOY)).body
            service = (await api.post(SERVICES, SERVICE)).body
            time = await plane.advance(3600)
            await plane.snapshot(path)
            later = (await api.post(CONFIG_MAPS, config_map("later"))).body
        identity = (plane.ca_pem, plane.token)
        for _ in range(2):
            async with ControlPlane.restore(path) as restored, APIClient(restored) as api:
                assert (restored.ca_pem, restored.token) == identity
                assert restored.clock.now() >= time
                assert (await api.get(f"{CONFIG_MAPS}/kept")).body == kept
                assert (await api.get(TOYS_PATH)).body["items"] == [toy]
                assert (await api.get(f"{CONFIG_MAPS}/later")).code == 404
                other = (await api.post(SERVICES, {**SERVICE, "metadata": {"name": "other"}})).body
                assert other["spec"]["clusterIP"].startswith("10.7.0.")
                assert other["spec"]["clusterIP"] != service["spec"]["clusterIP"]
                assert int(other["metadata"]["resourceVersion"]) >= int(
                    later["metadata"]["resourceVersion"]
                )
                async with api.watch(
                    CONFIG_MAPS, {"resourceVersion": toy["metadata"]["resourceVersion"]}
                ) as watch:
                    assert (await watch.event())["object"]["code"] == 410
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_snapshot_and_restore_from_a_thread(tmp_path: Path) -> None:
    with ThreadedControlPlane(ControlPlane.embedded()) as thread:
        thread.snapshot(tmp_path / "snapshot")
        token = thread.token
    with ThreadedControlPlane(ControlPlane.restore(tmp_path / "snapshot")) as restored:
        assert restored.token == token


async def test_file_of_a_data_folder_can_be_restored_and_a_snapshot_used_as_one(
    file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file.rename(folder / "control-plane.sqlite")
    async with ControlPlane.embedded(data_dir=folder) as plane, APIClient(plane) as api:
        assert (await api.get(f"{CONFIG_MAPS}/a")).code == 200
        await api.post(CONFIG_MAPS, config_map("b"))
    async with (
        ControlPlane.restore(folder / "control-plane.sqlite") as plane,
        APIClient(plane) as api,
    ):
        assert (await api.get(f"{CONFIG_MAPS}/b")).code == 200


async def test_failed_snapshot_keeps_the_existing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "snapshot"
    path.write_bytes(b"SQLite format 3\0earlier")

    def fail(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("envtest.planes.snapshots._rows_of", fail)
    async with ControlPlane.embedded(controllers=()) as plane:
        with pytest.raises(SnapshotError, match=r"cannot write the snapshot .*: no space left"):
            await plane.snapshot(path)
        with pytest.raises(SnapshotError, match="cannot write the snapshot"):
            await plane.snapshot(tmp_path / "missing" / "snapshot")
    assert path.read_bytes() == b"SQLite format 3\0earlier"
    assert list(tmp_path.iterdir()) == [path]


async def error_of(path: Path) -> str:
    with pytest.raises(SnapshotError) as caught:
        await ControlPlane.restore(path, controllers=()).start()
    return str(caught.value)


async def test_missing_file_folder_and_fifo(tmp_path: Path) -> None:
    assert "cannot read the snapshot" in await error_of(tmp_path / "missing")
    assert "cannot read" in await error_of(tmp_path) or "not a snapshot" in await error_of(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    assert "is not a snapshot" in await error_of(tmp_path / "fifo")


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"SQLite format 3", b"\0" * 4096], ids=["empty", "json", "short", "nul"]
)
async def test_foreign_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert await error_of(path) == f"{path} is not a snapshot of envtest"


def execute(*statements: str) -> Callable[[sqlite3.Connection], None]:
    def change(database: sqlite3.Connection) -> None:
        for statement in statements:
            database.execute(statement)

    return change


def setting(name: str, value: bytes) -> Callable[[sqlite3.Connection], None]:
    return lambda database: (
        database.execute("UPDATE settings SET value = ? WHERE name = ?", (value, name)) and None
    )


def config_map_data(**fields: Any) -> Callable[[sqlite3.Connection], None]:
    """Replace fields of the ConfigMap ``a``; its metadata is merged."""

    def change(database: sqlite3.Connection) -> None:
        where = "WHERE resource = 'configmaps' AND name = 'a'"
        ((data,),) = database.execute(f"SELECT data FROM objects {where}").fetchall()
        obj = orjson.loads(data)
        metadata = {**obj["metadata"], **fields.pop("metadata", {})}
        obj = {**obj, "metadata": metadata, **fields}
        database.execute(f"UPDATE objects SET data = ? {where}", (orjson.dumps(obj),))

    return change


def crd_data(edit: Callable[[Any], Any]) -> Callable[[sqlite3.Connection], None]:
    def change(database: sqlite3.Connection) -> None:
        where = "WHERE resource = 'customresourcedefinitions'"
        ((data,),) = database.execute(f"SELECT data FROM objects {where}").fetchall()
        crd = orjson.loads(data)
        edit(crd)
        database.execute(f"UPDATE objects SET data = ? {where}", (orjson.dumps(crd),))

    return change


ENDLESS = (
    "CREATE VIEW objects AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
    "SELECT 'g' AS api_group, 'r' AS resource, '' AS namespace, 'n' AS name, x AS revision, x'00' AS data FROM n"
)

BAD: dict[str, tuple[Callable[[sqlite3.Connection], None], str]] = {
    "newer format": (setting("format", b"2"), "has format 2, this version reads 1. Use the version of envtest"),
    "newer format with other tables": (
        execute("UPDATE settings SET value = x'32' WHERE name = 'format'", "ALTER TABLE objects ADD x TEXT"),
        "has format 2",
    ),
    "unknown format": (setting("format", b"\xff"), "this version reads 1"),
    "other tables": (execute("CREATE TABLE more (x TEXT)"), "is not a snapshot"),
    "endless view": (execute("DROP TABLE objects", ENDLESS), "is not a snapshot"),
    "settings are a view": (
        execute("DROP TABLE settings", "CREATE VIEW settings AS SELECT 'format' AS name, x'31' AS value"),
        "is not a snapshot",
    ),
    "trigger": (
        execute("CREATE TRIGGER t AFTER INSERT ON objects BEGIN DELETE FROM objects; END"),
        "is not a snapshot",
    ),
    "no CA": (execute("DELETE FROM settings WHERE name = 'ca.key'"), "the setting ca.key is missing"),
    "invalid CA": (setting("ca.crt", b"no certificate"), "the setting ca.crt is invalid"),
    "key of another CA": (setting("ca.key", CertificateAuthority().pair.key), "the key does not belong"),
    "invalid token key": (setting("token-key", b"no key"), "the setting token-key is invalid"),
    "empty token": (setting("token", b""), "the setting token is invalid: is empty"),
    "time goes backwards": (setting("clock-offset", b"-1"), "the setting clock-offset is invalid"),
    "no time": (setting("clock-offset", b"nan"), "the setting clock-offset is invalid"),
    "invalid network": (setting("service-network", b"0.0.0.0/0"), "the setting service-network is invalid"),
    "unknown version": (setting("kubernetes-version", b"1.2"), "the setting kubernetes-version is invalid"),
    "invalid revision": (setting("revision", b"9" * 40), "is damaged: revision"),
    "object of the future": (execute("UPDATE objects SET revision = 1000000"), "newer than revision"),
    "column of another type": (execute("UPDATE objects SET name = x'00' WHERE name = 'a'"), "of another type"),
    "revision of another type": (execute("UPDATE objects SET revision = 'x' WHERE name = 'a'"), "of another type"),
    "object is not JSON": (execute("UPDATE objects SET data = x'7b' WHERE name = 'a'"), "configmaps default/a: "),
    "object is a list": (execute("UPDATE objects SET data = CAST('[]' AS BLOB) WHERE name = 'a'"), "configmaps"),
    "another name": (config_map_data(metadata={"name": "b"}), "its metadata does not match its key"),
    "another kind": (config_map_data(kind="Secret"), "is Secret of v1"),
    "labels are no map": (config_map_data(metadata={"labels": ["a"]}), "configmaps default/a: "),
    "data is no map": (config_map_data(data="text"), "configmaps default/a: "),
    "invalid CRD": (crd_data(lambda crd: crd["spec"].pop("versions")), "customresourcedefinitions"),
    "invalid schema": (
        crd_data(lambda crd: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].update(pattern="(")),
        "customresourcedefinitions",
    ),
    "CRD without status": (crd_data(lambda crd: crd.update(status=[])), "customresourcedefinitions"),
    "custom object without uid": (
        execute("UPDATE objects SET data = CAST(replace(CAST(data AS TEXT), '\"uid\"', '\"x\"') AS BLOB) "
                "WHERE resource = 'toys'"),
        "toys.example.com default/bear: metadata is incomplete",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
async def test_hostile_file_is_rejected(file: Path, case: str) -> None:
    change, message = BAD[case]
    with closing(sqlite3.connect(file)) as database, database:
        change(database)
    found = await error_of(file)
    assert message in found
    assert str(file) in found
    assert len(found) < 1000


async def test_damaged_file_is_rejected(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for position in range(4096, len(content), 512):
        content[position : position + 64] = os.urandom(64)
    file.write_bytes(content)
    assert str(file) in await error_of(file)
    file.write_bytes(content[: len(content) // 2])
    assert str(file) in await error_of(file)


async def test_file_that_is_too_large_is_rejected(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envtest.planes.snapshots.MAX_OBJECTS", 3)
    assert "the maximum is 3" in await error_of(file)
    monkeypatch.setattr("envtest.planes.snapshots.MAX_BYTES", 100)
    assert "the maximum is 100" in await error_of(file)


async def test_one_value_that_is_too_large_is_rejected(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envtest.planes.snapshots.MAX_VALUE_BYTES", 1000)
    assert "cannot read the snapshot" in await error_of(file)
