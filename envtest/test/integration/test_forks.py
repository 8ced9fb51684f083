"""Copies of a running control plane: they start with the same state, and then change independently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envtest import ControlPlane, User
from envtest.api_client import APIClient
from envtest.faults import Fault
from envtest.threaded import ThreadedControlPlane
from test.support.config_maps import CONFIG_MAPS, config_map
from test.support.toys import TOYS

SERVICES = "/api/v1/namespaces/default/services"
TOYS_PATH = "/apis/example.com/v1/namespaces/default/toys"
TOY = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "bear"}}


def service(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}


async def names(api: APIClient, path: str = CONFIG_MAPS) -> set[str]:
    return {item["metadata"]["name"] for item in (await api.get(path)).body["items"]} - {
        "kube-root-ca.crt"
    }


async def test_writes_and_watches_are_isolated() -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        shared = (await api.post(CONFIG_MAPS, config_map("shared"))).body
        version = shared["metadata"]["resourceVersion"]
        async with plane.fork() as copy, APIClient(copy) as other:
            assert copy.url != plane.url
            assert (await other.get(f"{CONFIG_MAPS}/shared")).body == shared
            async with (
                api.watch(CONFIG_MAPS, {"resourceVersion": version}) as here,
                other.watch(CONFIG_MAPS, {"resourceVersion": version}) as there,
            ):
                await other.delete(f"{CONFIG_MAPS}/shared")
                await other.post(CONFIG_MAPS, config_map("in-the-copy"))
                await api.post(CONFIG_MAPS, config_map("in-the-original"))
                assert (await there.event())["type"] == "DELETED"
                assert (await there.event())["object"]["metadata"]["name"] == "in-the-copy"
                assert (await here.event())["object"]["metadata"]["name"] == "in-the-original"
            assert await names(other) == {"in-the-copy"}
            assert await names(api) == {"shared", "in-the-original"}
        assert await names(api) == {"shared", "in-the-original"}


async def test_history_before_the_copy_can_be_watched_in_it() -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        first = (await api.post(CONFIG_MAPS, config_map("first"))).body
        await api.post(CONFIG_MAPS, config_map("second"))
        async with plane.fork() as copy, APIClient(copy) as other:
            version = first["metadata"]["resourceVersion"]
            async with other.watch(CONFIG_MAPS, {"resourceVersion": version}) as watch:
                assert (await watch.event())["object"]["metadata"]["name"] == "second"


async def test_crds_are_isolated() -> None:
    crd = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{TOYS['metadata']['name']}"
    async with ControlPlane.embedded(crds=[TOYS]) as plane, APIClient(plane) as api:
        await api.post(TOYS_PATH, TOY)
        async with plane.fork() as copy, APIClient(copy) as other:
            assert await names(other, TOYS_PATH) == {"bear"}
            schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
            patch = [
                {
                    "op": "replace",
                    "path": "/spec/versions/0/schema/openAPIV3Schema",
                    "value": schema,
                }
            ]
            assert (
                await other.request("PATCH", crd, patch, content_type="application/json-patch+json")
            ).code == 200
            sized = {**TOY, "metadata": {"name": "duck"}, "size": "big"}
            assert (await other.post(TOYS_PATH, sized)).code == 422
            assert (await api.post(TOYS_PATH, sized)).code == 201
            assert (await api.delete(crd)).code == 200
            assert (await api.get(TOYS_PATH)).code == 404
            assert await names(other, TOYS_PATH) == {"bear"}
            assert (await other.delete(crd)).code == 200
            assert (await other.get(TOYS_PATH)).code == 404


async def test_crd_that_is_installed_in_a_copy_is_not_served_by_the_original() -> None:
    async with (
        ControlPlane.embedded(controllers=()) as plane,
        APIClient(plane) as api,
        plane.fork() as copy,
        APIClient(copy) as other,
    ):
        await copy.install_crds(TOYS)
        assert (await other.get(TOYS_PATH)).code == 200
        assert (await api.get(TOYS_PATH)).code == 404


async def test_allocated_addresses_are_isolated() -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        taken = (await api.post(SERVICES, service("taken"))).body["spec"]
        async with plane.fork() as copy, APIClient(copy) as other:
            there = (await other.post(SERVICES, service("there"))).body["spec"]
            here = (await api.post(SERVICES, service("here"))).body["spec"]
            assert taken["clusterIP"] != there["clusterIP"] == here["clusterIP"]
            assert (
                taken["ports"][0]["nodePort"]
                != there["ports"][0]["nodePort"]
                == here["ports"][0]["nodePort"]
            )


async def test_users_and_tokens_are_valid_in_both_and_new_users_are_isolated() -> None:
    async with ControlPlane.embedded() as plane, APIClient(plane) as api:
        plane.add_user("before", User("alice", groups=("system:masters",)))
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = "/api/v1/namespaces/kube-system/serviceaccounts"
        await api.post(path, {"metadata": {"name": "robot"}})
        token = (await api.post(f"{path}/robot/token", request)).body["status"]["token"]
        async with plane.fork() as copy, APIClient(copy) as other:
            copy.add_user("after", User("bob", groups=("system:masters",)))
            assert (copy.token, copy.ca_pem) == (plane.token, plane.ca_pem)
            for client, expected in ((api, (200, 401, 403)), (other, (200, 200, 403))):
                codes = [
                    (
                        await client.get(CONFIG_MAPS, headers={"Authorization": f"Bearer {each}"})
                    ).code
                    for each in ("before", "after", token)
                ]
                assert tuple(codes) == expected


async def test_faults_audit_and_time_are_isolated() -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        plane.faults.add(Fault(verbs=("create",), code=500))
        async with plane.fork() as copy, APIClient(copy) as other:
            assert copy.audit.events == []
            assert (await other.post(CONFIG_MAPS, config_map("a"))).code == 201
            assert (await api.post(CONFIG_MAPS, config_map("a"))).code == 500
            copy.faults.add(Fault(verbs=("list",), code=503))
            assert (await other.get(CONFIG_MAPS)).code == 503
            assert (await api.get(CONFIG_MAPS)).code == 200
            await copy.advance(86400)
            assert (copy.clock.time() - plane.clock.time()) == pytest.approx(86400, abs=60)


async def test_controllers_of_the_copy_continue() -> None:
    async with ControlPlane.embedded() as plane, APIClient(plane) as api:
        owner = (await api.post(CONFIG_MAPS, config_map("owner"))).body
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
        }
        owned = config_map("owned")
        owned["metadata"]["ownerReferences"] = [reference]
        await api.post(CONFIG_MAPS, owned)
        async with plane.fork() as copy, APIClient(copy) as other:
            async with other.watch(CONFIG_MAPS, {"fieldSelector": "metadata.name=owned"}) as watch:
                assert (await watch.event())["type"] == "ADDED"
                await other.delete(f"{CONFIG_MAPS}/owner")
                assert (await watch.event())["type"] == "DELETED"
            assert await names(api) == {"owner", "owned"}


async def test_copy_outlives_the_original_and_can_be_copied() -> None:
    plane = ControlPlane.embedded(controllers=())
    await plane.start()
    first = plane.fork()
    await plane.stop()
    async with first, APIClient(first) as api:
        await api.post(CONFIG_MAPS, config_map("a"))
        async with first.fork() as second, APIClient(second) as other:
            assert await names(other) == {"a"}


async def test_copy_is_the_state_at_the_call_and_starts_once() -> None:
    async with ControlPlane.embedded(controllers=()) as plane, APIClient(plane) as api:
        copy = plane.fork()
        await api.post(CONFIG_MAPS, config_map("later"))
        async with copy, APIClient(copy) as other:
            assert await names(other) == set()
        with pytest.raises(RuntimeError, match="only once"):
            await copy.start()


async def test_fork_needs_a_running_control_plane() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        ControlPlane.embedded().fork()


def test_fork_on_a_thread_of_its_own() -> None:
    with ThreadedControlPlane(ControlPlane.embedded(crds=[TOYS])) as thread, thread.fork() as copy:
        assert copy.url != thread.url
        assert copy.install_crds(TOYS) == ["toys.example.com"]
        before = copy.advance(0)
        assert (copy.advance(60) - before).total_seconds() >= 60


def test_real_control_plane_cannot_be_copied() -> None:
    thread = ThreadedControlPlane(ControlPlane.real(assets=Path("missing")))
    with pytest.raises(TypeError, match="only the embedded"):
        thread.fork()
