"""A control plane that is stopped and started again with the same data folder."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.apimachinery.errors import GroupResource
from envtest.storage import Store
from envtest.storage.archive import Archive, ArchiveError
from test.support.config_maps import CONFIG_MAPS, config_map
from test.support.toys import TOYS

TOY = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "bear"}}


async def test_restart_restores_objects_identity_and_allocations(tmp_path: Path) -> None:
    async with (
        ControlPlane.embedded(data_dir=tmp_path / "data", crds=[TOYS]) as plane,
        APIClient(plane) as api,
    ):
        before = (plane.ca_pem, plane.token)
        kept = (await api.post(CONFIG_MAPS, config_map("kept", {"k": "v"}, labels={"a": "b"}))).body
        await api.post(CONFIG_MAPS, config_map("gone"))
        delete_code = (await api.delete(f"{CONFIG_MAPS}/gone")).code
        toy = (await api.post("/apis/example.com/v1/namespaces/default/toys", TOY)).body
        service = (await api.post("/api/v1/namespaces/default/services", _service("one"))).body
        assert delete_code == 200
    async with ControlPlane.embedded(data_dir=tmp_path / "data") as plane, APIClient(plane) as api:
        assert (plane.ca_pem, plane.token) == before
        assert (await api.get(f"{CONFIG_MAPS}/kept")).body == kept
        assert (await api.get(f"{CONFIG_MAPS}/gone")).code == 404
        assert (await api.get("/apis/example.com/v1/namespaces/default/toys/bear")).body == toy
        selected = await api.get(CONFIG_MAPS, {"labelSelector": "a=b"})
        assert [item["metadata"]["name"] for item in selected.body["items"]] == ["kept"]
        changed = (await api.merge(f"{CONFIG_MAPS}/kept", {"data": {"k": "w"}})).body
        newer = int(changed["metadata"]["resourceVersion"])
        assert (
            newer
            > int(service["metadata"]["resourceVersion"])
            > int(kept["metadata"]["resourceVersion"])
        )
        other = (await api.post("/api/v1/namespaces/default/services", _service("two"))).body
        assert other["spec"]["clusterIP"] != service["spec"]["clusterIP"]
        async with api.watch(
            CONFIG_MAPS, {"resourceVersion": kept["metadata"]["resourceVersion"]}
        ) as watch:
            assert (await watch.event())["object"]["code"] == 410


def _service(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}]},
    }


def test_changes_are_in_the_folder_of_a_process_that_is_killed(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "data")
    store = Store()
    archive.restore(store)
    resource = GroupResource("", "configmaps")
    kept = store.create(resource, config_map("kept", {"k": "v"}))
    store.delete(resource, store.create(resource, config_map("gone")))
    shutil.copytree(tmp_path / "data", tmp_path / "left")  # what SIGKILL leaves
    archive.close()
    left = Archive(tmp_path / "left")
    restored = Store()
    assert left.restore(restored) == 1
    assert [record.data for record in restored.list(resource)] == [kept.data]
    assert restored.revision == store.revision
    left.close()


async def test_second_process_cannot_use_the_data_folder(tmp_path: Path) -> None:
    async with ControlPlane.embedded(data_dir=tmp_path, controllers=()):
        with pytest.raises(ArchiveError, match="is in use by another process"):
            await ControlPlane.embedded(data_dir=tmp_path, controllers=()).start()


async def test_damaged_data_folder_is_named(tmp_path: Path) -> None:
    async with ControlPlane.embedded(data_dir=tmp_path, controllers=()):
        pass
    with closing(sqlite3.connect(tmp_path / "control-plane.sqlite")) as database:
        database.execute("UPDATE objects SET data = 'x' WHERE resource = 'namespaces'")
        database.commit()
    with pytest.raises(ArchiveError, match=r"the data folder .* is damaged .*: use another folder"):
        await ControlPlane.embedded(data_dir=tmp_path, controllers=()).start()


async def test_unusable_data_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchiveError, match=r"the data folder .* must be a folder"):
        await ControlPlane.embedded(data_dir=tmp_path / "file").start()


async def test_restart_applies_a_schema_that_is_newer_than_the_objects(tmp_path: Path) -> None:
    toys = "/apis/example.com/v1/namespaces/default/toys"
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/toys.example.com"
    async with (
        ControlPlane.embedded(data_dir=tmp_path / "data", crds=[TOYS]) as plane,
        APIClient(plane) as api,
    ):
        assert (await api.post(toys, TOY)).code == 201
        versions = (await api.get(crd)).body["spec"]["versions"]
        schema = versions[0]["schema"]["openAPIV3Schema"]
        schema["properties"] = {"color": {"type": "string", "default": "red"}}
        assert (await api.merge(crd, {"spec": {"versions": versions}})).code == 200
    async with ControlPlane.embedded(data_dir=tmp_path / "data") as plane, APIClient(plane) as api:
        assert (await api.get(f"{toys}/bear")).body["color"] == "red"


async def test_restart_refuses_objects_in_a_removed_version(tmp_path: Path) -> None:
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/toys.example.com"
    async with (
        ControlPlane.embedded(data_dir=tmp_path / "data", crds=[TOYS]) as plane,
        APIClient(plane) as api,
    ):
        assert (await api.post("/apis/example.com/v1/namespaces/default/toys", TOY)).code == 201
        first = (await api.get(crd)).body["spec"]["versions"][0]
        second = {**first, "name": "v2"}
        both = [{**first, "storage": False}, second]
        assert (await api.merge(crd, {"spec": {"versions": both}})).code == 200
        stored = {"status": {"storedVersions": ["v2"]}}
        assert (await api.merge(f"{crd}/status", stored)).code == 200
        assert (await api.merge(crd, {"spec": {"versions": [second]}})).code == 200
    async with ControlPlane.embedded(data_dir=tmp_path / "data") as plane, APIClient(plane) as api:
        listed = await api.get("/apis/example.com/v2/namespaces/default/toys")
        assert listed.code == 429
        found = await api.get("/apis/example.com/v2/namespaces/default/toys/bear")
        assert (found.code, found.body["message"]) == (
            500,
            "request to convert CR from an invalid group/version: example.com/v1",
        )
