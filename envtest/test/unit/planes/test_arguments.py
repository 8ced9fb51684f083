"""Arguments of control planes: lists of strings, users, tokens and paths."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envtest import ControlPlane, EmbeddedControlPlane, SnapshotError, User
from envtest.api_client import APIClient
from envtest.chaos import OperatorCommand, explore
from envtest.configuration.controller_names import KUBE_CONTROLLERS
from envtest.formats.manifests import load_crds
from envtest.planes.local_webhooks import LocalWebhooks
from envtest.planes.real import RealServer
from envtest.threaded import ThreadedControlPlane


@pytest.fixture
def plane() -> EmbeddedControlPlane:
    return ControlPlane.embedded(controllers=())


@pytest.mark.parametrize("groups", ["team", b"team", ("team", 1), None])
def test_groups_of_a_certificate_must_be_a_list_of_strings(
    plane: EmbeddedControlPlane, groups: Any
) -> None:
    with pytest.raises(TypeError, match=r"groups: .*: must be a"):
        plane.client_certificate("bob", groups)


@pytest.mark.parametrize(
    ("user", "seconds", "message"),
    [
        ("", None, "user: must not be empty"),
        (1, None, "user: 1: must be a string"),
        ("a" * 65, None, "user: 'a+': must have at most 64 characters"),
        ("a", -1, "seconds: -1: must be a number of seconds, 0 or more"),
        ("a", "60", "seconds: '60': must be a number of seconds, 0 or more"),
    ],
)
def test_wrong_arguments_of_a_certificate_are_reported(
    plane: EmbeddedControlPlane, user: Any, seconds: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        plane.client_certificate(user, seconds=seconds)


def test_command_of_an_operator_must_be_a_list_of_strings() -> None:
    with pytest.raises(TypeError, match=r"command: 'python operator.py': must be a sequence"):
        OperatorCommand("python operator.py")


@pytest.mark.parametrize("name", ["kinds", "only", "ignore", "ignore_fields"])
async def test_options_of_chaos_must_be_lists_of_strings(name: str) -> None:
    options: dict[str, Any] = {name: "crash"}
    with pytest.raises(TypeError, match=rf"{name}: 'crash': must be a sequence of strings"):
        await explore(["true"], **options)


@pytest.mark.parametrize(
    ("token", "user", "error", "message"),
    [
        ("t", "alice", TypeError, "user: 'alice': must be an envtest.User"),
        ("t", User("alice", groups="team"), TypeError, "user.groups: 'team'"),  # type: ignore[arg-type]
        ("t", User(None), TypeError, "user.name: None"),  # type: ignore[arg-type]
        (b"t", User("alice"), TypeError, "token: a bytes"),
        ("", User("alice"), ValueError, "token: must not be empty"),
        ("two words", User("alice"), ValueError, "token: must not .* contain spaces"),
        ("line\n", User("alice"), ValueError, "token: must not .* control characters"),
    ],
)
def test_users_and_tokens_are_checked_when_they_are_added(
    plane: EmbeddedControlPlane, token: Any, user: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plane.add_user(token, user)


async def test_paths_of_the_embedded_control_plane_can_be_strings(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("t,alice,1\n")
    async with ControlPlane.embedded(
        controllers=(),
        token_auth_file=str(tokens),
        audit_log=str(tmp_path / "audit.log"),
        data_dir=str(tmp_path / "data"),
    ) as plane:
        await plane.snapshot(str(tmp_path / "snapshot"))
    assert (tmp_path / "data").is_dir()
    assert (tmp_path / "audit.log").exists()
    copy = ControlPlane.restore(
        str(tmp_path / "snapshot"), controllers=(), audit_log=str(tmp_path / "copy.log")
    )
    async with copy:
        assert (tmp_path / "copy.log").exists()


@pytest.mark.parametrize("convert", [str, Path])
def test_paths_of_the_real_control_plane_can_be_strings(
    tmp_path: Path, convert: Callable[[Path], Path | str]
) -> None:
    plane = ControlPlane.real(
        assets=convert(tmp_path), audit_log=convert(tmp_path / "audit.log"), controllers=()
    )
    assert isinstance(plane, RealServer)


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("crds", "crd.yaml", TypeError, r"crds: 'crd.yaml': must be a list, .* \['crd.yaml'\]"),
        ("crds", Path("crd.yaml"), TypeError, r"crds: .* must be a list, .* \['crd.yaml'\]"),
        (
            "crds",
            {"kind": "x"},
            TypeError,
            "crds: of type dict: must be a list, each item the path",
        ),
        ("crds", None, TypeError, "crds: of type NoneType: must be a list"),
        (
            "crds",
            [None],
            TypeError,
            "crds: None: must be the path of a file or folder, or an object",
        ),
        ("kubernetes_version", 1.36, TypeError, "Kubernetes version 1.36: must be a string, such"),
        ("kubernetes_version", None, TypeError, "Kubernetes version None: must be a string, such"),
        ("kubernetes_version", "one", ValueError, "Kubernetes version 'one': must be MAJOR.MINOR"),
        (
            "controllers",
            None,
            ValueError,
            "controllers: None: must be a sequence of names, such as",
        ),
        (
            "controllers",
            "gc",
            ValueError,
            "controllers: 'gc': must be a sequence of names, such as",
        ),
        ("controllers", [1], ValueError, "controllers: 1: must be the name of a controller"),
        ("controllers", ["nope"], ValueError, "controller 'nope': must be one of gc, namespace"),
        (
            "controllers",
            ["none", "gc"],
            ValueError,
            "controllers: none, gc: must be names of .*only",
        ),
        ("controllers", ["none", "all"], ValueError, "controllers: none, all: must be names of"),
        ("port", "80", TypeError, "port: '80': must be an integer from 0"),
        ("port", 65536, ValueError, "port: 65536: must be an integer from 0"),
        ("host", None, TypeError, "host: None: must be a string"),
        ("host", "", ValueError, "host: must not be empty"),
        ("host", "https://a", ValueError, "host: 'https://a': must be an IP address or a name"),
        ("host", "a" * 65, ValueError, "host: 'a+': must be .* with at most 64 characters"),
        ("token", 1, TypeError, "token: a int: must be a string"),
        ("token", "", ValueError, "token: must not be empty"),
        ("audit_log", 1, TypeError, "audit_log: 1: must be a path"),
        ("data_dir", 1, TypeError, "data_dir: 1: must be a path"),
        ("data_dir", "", ValueError, "data_dir: must not be empty"),
        ("scenario", "", ValueError, "scenario: must not be empty"),
        ("token_auth_file", 1, TypeError, "token_auth_file: 1: must be a path"),
        ("service_cluster_ip_range", 1, TypeError, "service-cluster-ip-range: 1: must be an IPv4"),
        ("feature_gates", "A=true", TypeError, "feature_gates: 'A=true': must be a mapping"),
        (
            "feature_gates",
            {"A": "yes"},
            TypeError,
            "feature_gates: A: 'yes': must be true or false",
        ),
        ("plaintext", "yes", TypeError, "plaintext: 'yes': must be True or False"),
        ("scenario", ["a"], TypeError, "scenario: .*: must be a path, a mapping or a Scenario"),
    ],
)
def test_wrong_argument_is_reported_by_its_name(
    name: str, value: Any, error: type[Exception], message: str
) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(error, match=message):
        ControlPlane.embedded(**options)


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("port", 70000, ValueError, "port: 70000: must be an integer from 1 to 65535"),
        ("port", "443", TypeError, "port: '443': must be an integer from 1 to 65535"),
        ("namespace", "", ValueError, "namespace: must not be empty"),
        ("name", None, TypeError, "name: None: must be a string"),
        ("url", 5, TypeError, "url: 5: must be a string"),
    ],
)
def test_wrong_argument_of_a_service_is_reported_by_its_name(
    plane: EmbeddedControlPlane, name: str, value: Any, error: type[Exception], message: str
) -> None:
    address = "https://127.0.0.1:9443"
    arguments: dict[str, Any] = {"namespace": "a", "name": "b", "url": address, "port": 443}
    with pytest.raises(error, match=message):
        plane.register_service(**{**arguments, name: value})


@pytest.mark.parametrize("host", ["nope.invalid", "1.2.3.4", "."])
async def test_host_that_is_not_this_machine_is_reported(host: str) -> None:
    plane = ControlPlane.embedded(host=host, controllers=())
    with pytest.raises(ValueError, match=r"host: '.*': must be an IP address or a name of this"):
        await plane.start()


async def test_snapshot_replaces_only_a_snapshot(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_text("mine")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    problems = {
        notes: "exists and is not a snapshot",
        pipe: "must be a file, or a path that does not exist",
        tmp_path: "must be a file, or a path that does not exist",
        tmp_path / "none" / "x": "must be a file in a folder that exists",
        tmp_path / ("a" * 300): "File name too long",
    }
    async with ControlPlane.embedded(controllers=()) as plane:
        for path, problem in problems.items():
            with pytest.raises(SnapshotError, match=problem) as failed:
                await plane.snapshot(path)
            assert "Errno" not in str(failed.value)
        with pytest.raises(ValueError, match="path: must not be empty"):
            await plane.snapshot("")
        for _ in range(2):
            await plane.snapshot(tmp_path / "state")
    assert notes.read_text() == "mine"
    assert pipe.is_fifo()


def test_one_list_instead_of_several_sources_is_an_error() -> None:
    sources: Any = ["crd.yaml"]
    with pytest.raises(TypeError, match=r"a source of type list: must be the path .* as several"):
        load_crds([sources])


def test_controllers_none_is_no_controller_and_all_is_every_one(tmp_path: Path) -> None:
    (tmp_path / "kube-controller-manager").touch()
    assert ControlPlane.embedded(controllers=["none"]).controllers == ()
    assert "pods" in ControlPlane.embedded(controllers=["all"]).controllers
    real = ControlPlane.real(assets=tmp_path, controllers=["all"])
    assert real.controllers == tuple(KUBE_CONTROLLERS)


def test_members_need_a_running_control_plane(plane: EmbeddedControlPlane, tmp_path: Path) -> None:
    thread = ThreadedControlPlane(ControlPlane.embedded(controllers=()))
    uses: list[Callable[[], object]] = [
        lambda: plane.url,
        lambda: plane.ca_pem,
        lambda: plane.token,
        lambda: plane.kubeconfig(tmp_path / "kubeconfig"),
        lambda: plane.faults,
        plane.fork,
        lambda: asyncio.run(plane.install_webhooks({"kind": "x"}, server=tmp_path)),
        lambda: thread.url,
        thread.kubeconfig,
        thread.trace,
        lambda: thread.install_crds("crd.yaml"),
        lambda: thread.run(print),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match="the control plane is not running: it runs between"):
            use()
    thread.stop()


def test_control_plane_is_started_once_and_its_address_ends_with_it() -> None:
    thread = ThreadedControlPlane(ControlPlane.embedded(controllers=()))
    with thread:
        for start in (thread.start, lambda: thread.call(thread.plane.start())):
            with pytest.raises(RuntimeError, match="the control plane is already running"):
                start()
    thread.stop()
    with pytest.raises(RuntimeError, match="the control plane is not running"):
        _ = thread.url


def test_with_instead_of_async_with_names_both_ways(plane: EmbeddedControlPlane) -> None:
    with pytest.raises(TypeError, match=r"needs `async with`; .*ThreadedControlPlane"), plane:
        pass


async def test_client_that_is_not_open_is_an_error(plane: EmbeddedControlPlane) -> None:
    with pytest.raises(RuntimeError, match="the client is not open: use `async with"):
        await APIClient(plane).get("/version")


def test_folder_of_local_webhooks_can_be_a_string(tmp_path: Path) -> None:
    webhooks = LocalWebhooks.prepare(str(tmp_path / "webhooks"))
    assert webhooks.certificate.is_file()


@pytest.mark.parametrize("method", ["kill_program", "stop_program", "start_program"])
async def test_embedded_control_plane_has_no_programs(
    plane: EmbeddedControlPlane, method: str
) -> None:
    with pytest.raises(TypeError, match=r"only the real control plane has programs"):
        await getattr(plane, method)("etcd")
