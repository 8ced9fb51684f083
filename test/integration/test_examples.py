"""The programs of examples/ behave as their READMEs promise; programs 01, 05 and 06 run as separate processes.

Those that end at once do so in forks.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import pytest
import structlog
import yaml
from aiohttp import web
from structlog.testing import capture_logs

from cfo.runtime import (
    CONFIG_MAP,
    DEPLOYMENT,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Client,
    ClientConfig,
    Forbidden,
    Invalid,
    NamespacedName,
    Object,
    controller_of,
    find_condition,
    gvk_of,
    is_controlled_by,
    key_of,
    name_of,
    resource_version_of,
    uid_of,
)
from cfo.runtime.client import connect
from cfo.runtime.objects import (
    EVENT,
    LEASE,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
    custom_resource_definitions,
    new_object,
)
from envtest import ControlPlane
from envtest.api_client import APIClient
from envtest.command import command as envtest_command
from test.support.config_map_webhooks import free_url
from test.support.preloaded import run_preloaded
from test.support.raycluster_environment import eventually

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FOLDERS = sorted(
    path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name[0].isdigit()
)
LOOPBACK = "127.0.0.1:0"
BUILTIN_KINDS = (
    "configmap",
    "configmaps",
    "deployment",
    "deployments",
    "lease",
    "secret",
    "serviceaccount",
    "serviceaccounts",
    "services",
)


def program_of(folder: str) -> Path:
    """Return the only program in the folder."""
    (program,) = (EXAMPLES / folder).glob("*.py")
    return program


def load(folder: str) -> ModuleType:
    """Import the program of the folder."""
    spec = importlib.util.spec_from_file_location(f"example_{folder[:2]}", program_of(folder))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def objects(folder: str, file: str = "obj.yaml") -> list[Object]:
    """Return the objects of a manifest in the folder."""
    return list(yaml.safe_load_all((EXAMPLES / folder / file).read_text()))


class User:
    """A user of the control plane with one namespace, as kubectl would act on it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def create(self, folder: str, **spec: Any) -> Object:
        """Create the sample objects of the folder, with other values of ``spec`` in the last one; return that one."""
        samples = objects(folder)
        samples[-1]["spec"].update(spec)
        created: Object = {}
        for sample in samples:
            sample["metadata"]["namespace"] = self.namespace
            created = await self.client.create(sample)
        return created

    async def get(self, obj: Object) -> Object:
        """Return the current state of an object that must exist."""
        found = await self.client.get(gvk_of(obj), key_of(obj))
        assert found is not None
        return found

    async def patch(self, obj: Object, **fields: Any) -> Object:
        """Merge ``fields`` into the object."""
        return await self.client.patch(gvk_of(obj), key_of(obj), fields)

    async def delete(self, obj: Object) -> None:
        """Request the deletion of the object."""
        assert await self.client.delete(gvk_of(obj), key_of(obj))

    async def exists(self, obj: Object) -> bool:
        """Return whether the object exists."""
        return await self.client.get(gvk_of(obj), key_of(obj)) is not None

    async def deleted(self, obj: Object) -> None:
        """Wait until the object no longer exists."""

        async def is_deleted() -> bool:
            return not await self.exists(obj)

        await eventually(is_deleted, f"{obj['kind']} {name_of(obj)} is deleted")


@pytest.fixture
def user(kube_client: Client, namespace: str, install_crds: Callable[..., list[str]]) -> User:
    install_crds(*(EXAMPLES / folder / "crd.yaml" for folder in FOLDERS))
    return User(kube_client, namespace)


@pytest.fixture
def config(control_plane: ControlPlane) -> ClientConfig:
    return ClientConfig.for_control_plane(control_plane)


class Program:
    """A running example."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log

    async def logged(self, pattern: str) -> re.Match[str]:
        """Wait for a log line that matches."""

        async def match() -> re.Match[str] | None:
            assert self.process.returncode is None, self.log.read_text()
            return re.search(pattern, self.log.read_text())

        found: re.Match[str] = await eventually(match, f"{pattern!r} is logged")
        return found

    async def port(self, endpoint: str) -> int:
        """Return the port of the server named ``endpoint``."""
        return int((await self.logged(rf"Serving .*endpoint={endpoint} port=(\d+)"))[1])

    async def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 120)


@pytest.fixture
def run(kubeconfig: Path, tmp_path: Path) -> Callable[..., Any]:
    """A function that runs the program of a folder until the end of a block."""

    default = kubeconfig

    @asynccontextmanager
    async def run(
        folder: str, *arguments: str, kubeconfig: Path = default
    ) -> AsyncIterator[Program]:
        log = tmp_path / f"{folder}-{len(list(tmp_path.iterdir()))}.log"
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(program_of(folder)), *arguments),
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                cwd=tmp_path,
                stdout=out,
                stderr=out,
            )
        try:
            yield Program(process, log)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    return run


async def run_to_the_end(folder: str, *arguments: str, kubeconfig: Path) -> tuple[int, str]:
    """Run the program in a fork; return its exit code and its output."""
    program = program_of(folder)
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    return await run_preloaded(*arguments, module=program.stem, cwd=program.parent, env=environment)


async def output_of(folder: str, *arguments: str, kubeconfig: Path) -> list[Object]:
    """Return the YAML documents that the program prints."""
    code, output = await run_to_the_end(folder, *arguments, kubeconfig=kubeconfig)
    assert code == 0, output
    return list(yaml.safe_load_all(output))


# 01-minimal


async def test_01_minimal_logs_each_change_of_a_greeting(
    user: User, run: Callable[..., Any]
) -> None:
    async with run("01-minimal") as program:
        greeting = await user.create("01-minimal")
        await program.logged(rf"Hello .*namespace={user.namespace} .*to=world")
        await user.patch(greeting, spec={"to": "everyone"})
        await program.logged(rf"Hello .*namespace={user.namespace} .*to=everyone")
        await user.delete(greeting)
        await program.logged(rf"Greeting was deleted .*namespace={user.namespace} ")
        assert await program.stop() == 0
        assert "Received signal, stopping" in program.log.read_text()


# 02-children


async def test_02_children_follow_the_members_of_a_team(
    user: User, config: ClientConfig, control_plane: ControlPlane
) -> None:
    example = load("02-children")

    async def accounts() -> dict[str, Object]:
        found = await user.client.list(
            SERVICE_ACCOUNT, namespace=user.namespace, label_selector=example.TEAM_LABEL
        )
        return {name_of(account): account for account in found}

    async def has_accounts(*names: str) -> bool:
        return set(await accounts()) == set(names)

    with capture_logs() as logs:
        async with example.new_manager(config) as manager:
            await manager.started()
            team = await user.create("02-children")
            await eventually(
                lambda: has_accounts("science-ada", "science-grace", "science-marie"),
                "three accounts",
            )
            for account in (await accounts()).values():
                assert (controller_of(account) or {}).get("uid") == uid_of(team)

            await user.patch(team, spec={"members": ["ada", "rosalind"]})
            await eventually(
                lambda: has_accounts("science-ada", "science-rosalind"), "two accounts"
            )

            await user.delete((await accounts())["science-ada"])
            await eventually(
                lambda: has_accounts("science-ada", "science-rosalind"), "the account is recreated"
            )
    reconciles = [entry for entry in logs if entry["event"] == "Reconciled team"]
    assert reconciles[0]["accounts"] == 3  # the first reconcile read its own writes
    assert {entry["accounts"] for entry in reconciles} == {2, 3}

    before = {name: resource_version_of(account) for name, account in (await accounts()).items()}
    with capture_logs() as logs:
        async with example.new_manager(config) as manager:
            await manager.started()

            async def is_reconciled() -> bool:
                return any(entry["event"] == "Reconciled team" for entry in logs)

            await eventually(is_reconciled, "the team is reconciled after the restart")
    assert {
        name: resource_version_of(account) for name, account in (await accounts()).items()
    } == before

    await user.delete(team)
    if "gc" in control_plane.controllers:
        await eventually(lambda: has_accounts(), "the accounts are deleted with the team")


async def test_02_account_of_another_team_is_left_unchanged(
    user: User, config: ClientConfig
) -> None:
    first = new_object(load("02-children").TEAM, "a", user.namespace, spec={"members": ["b-c"]})
    second = new_object(gvk_of(first), "a-b", user.namespace, spec={"members": ["c", "d"]})
    key = NamespacedName(user.namespace, "a-b-c")
    with capture_logs() as logs:
        async with load("02-children").new_manager(config) as manager:
            await manager.started()
            first = await user.client.create(first)
            account = await eventually(
                lambda: user.client.get(SERVICE_ACCOUNT, key), "the account of the first Team"
            )
            await user.client.create(second)
            await eventually(
                lambda: user.client.get(SERVICE_ACCOUNT, NamespacedName(user.namespace, "a-b-d")),
                "the other account of the second Team",
            )
            assert await user.client.get(SERVICE_ACCOUNT, key) == account
    assert (controller_of(account) or {}).get("uid") == uid_of(first)
    (message,) = [entry["error"] for entry in logs if entry["log_level"] == "warning"]
    assert message.startswith(
        "ServiceAccount a-b-c already exists and does not belong to this Team, but to Team a"
    )


# 03-status


@asynccontextmanager
async def web_server(port: int, status: Callable[[], int]) -> AsyncIterator[str]:
    async def respond(_: web.Request) -> web.Response:
        return web.Response(status=status())

    app = web.Application()
    app.router.add_get("/", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def test_03_status_reports_whether_the_url_responds(user: User, config: ClientConfig) -> None:
    port, status = free_url().port, 200
    async with load("03-status").new_manager(config) as manager:
        await manager.started()
        probe = await user.create("03-status", url=f"http://127.0.0.1:{port}", intervalSeconds=1)

        async def condition(reason: str) -> Any:
            current = (await user.get(probe)).get("status") or {}
            found = find_condition(current.get("conditions"), "Reachable") or {}
            assert found.get("reason") == reason, found
            assert found["observedGeneration"] == current["observedGeneration"]
            return found

        unreachable = await eventually(lambda: condition("Unreachable"))
        assert unreachable["status"] == "False"
        assert unreachable["message"].startswith("The URL does not respond: Cannot connect")
        async with web_server(port, lambda: status):
            responded = await eventually(
                lambda: condition("Responded")
            )  # the failed reconcile was retried
            assert (responded["status"], responded["message"]) == (
                "True",
                "The URL responded with status 200.",
            )
            status = 503
            failed = await eventually(
                lambda: condition("ErrorResponse")
            )  # reconciled again after the interval
            assert (failed["status"], failed["message"]) == (
                "False",
                "The URL responded with status 503.",
            )

            changed = await user.patch(probe, spec={"url": "ftp://127.0.0.1"})
            invalid = await eventually(lambda: condition("InvalidURL"))
            assert invalid["observedGeneration"] == changed["metadata"]["generation"] == 2
            assert invalid["lastTransitionTime"] == failed["lastTransitionTime"]  # False as before

        async def events() -> list[tuple[str, str]]:
            found = await user.client.list(EVENT, namespace=user.namespace)
            assert len(found) >= 4
            return [
                (event["type"], event["reason"])
                for event in sorted(found, key=lambda event: event["eventTime"])
            ]

        assert await eventually(events, "four Events") == [
            ("Warning", "Unreachable"),
            ("Normal", "Responded"),
            ("Warning", "ErrorResponse"),
            ("Warning", "InvalidURL"),
        ]
        terminal = manager.metrics.registry.get_sample_value(
            "controller_runtime_terminal_reconcile_errors_total", {"controller": "probe"}
        )
        assert terminal


# 04-watches


async def test_04_watches_restart_the_deployment_when_its_secret_changes(
    user: User, config: ClientConfig
) -> None:
    example = load("04-watches")
    shop = NamespacedName(user.namespace, "shop")
    password = NamespacedName(user.namespace, "password")

    async def annotation() -> Any:
        deployment = await user.client.get(DEPLOYMENT, shop)
        assert deployment is not None
        template = deployment["spec"]["template"]
        assert (
            len(template["spec"]["containers"]) == 1
        )  # the apply changes nothing except the annotation
        return (template["metadata"].get("annotations") or {}).get(example.ANNOTATION)

    async def has_current_version() -> bool:
        secret = await user.client.get(SECRET, password)
        assert secret is not None
        return bool(await annotation() == f"password={resource_version_of(secret)}")

    with capture_logs() as logs:
        async with example.new_manager(config) as manager:
            await manager.started()
            reloader = await user.create("04-watches")
            await eventually(has_current_version, "the first version")
            first = await annotation()
            await user.client.patch(SECRET, password, {"stringData": {"password": "second"}})
            await eventually(has_current_version, "the second version")
            second = await annotation()
            assert second != first

            secret = await user.client.get(SECRET, password)
            assert secret is not None
            await user.delete(secret)
            await user.patch(reloader, spec={"secrets": ["password", "token"]})

            async def is_waiting() -> bool:
                return any(entry["event"] == "Waiting for Secret" for entry in logs)

            await eventually(is_waiting, "the reconciler waits for the Secret")
            assert await annotation() == second

            await user.patch(reloader, spec={"secrets": ["password"]})
            recreated = objects("04-watches")[0]
            recreated["metadata"]["namespace"] = user.namespace
            await user.client.create(recreated)
            await eventually(has_current_version, "the version of the new Secret")

            (informer,) = [
                informer for informer in manager.cache.informers if informer.gvk == SECRET
            ]
            assert set(informer.reader.get(password) or {}) == {"apiVersion", "kind", "metadata"}


# 05-finalizers-and-leader


async def service_account_kubeconfig(
    user: User, control_plane: ControlPlane, roles: list[Object], path: Path
) -> Path:
    """Create a ServiceAccount that has only ``roles``; return a kubeconfig file for it."""
    metadata = {"namespace": user.namespace, "name": "program"}
    await user.client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    for role in roles:
        await user.client.apply(role)
        binding = {
            "apiVersion": role["apiVersion"],
            "kind": f"{role['kind']}Binding",
            "metadata": {**role["metadata"], "name": f"{name_of(role)}-{user.namespace}"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": role["kind"],
                "name": name_of(role),
            },
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        }
        await user.client.create(binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    key = NamespacedName(user.namespace, "program")
    response = await user.client.create_subresource(SERVICE_ACCOUNT, key, "token", request)
    control_plane.kubeconfig(path, token=response["status"]["token"])
    return path


async def test_05_finalizers_remove_directories_with_the_permissions_of_the_printed_roles(
    user: User,
    control_plane: ControlPlane,
    kubeconfig: Path,
    tmp_path: Path,
    run: Callable[..., Any],
) -> None:
    folder = "05-finalizers-and-leader"
    roles = await output_of(folder, "--roles", kubeconfig=kubeconfig)
    assert [role["kind"] for role in roles] == ["ClusterRole", "Role"]
    restricted = await service_account_kubeconfig(
        user, control_plane, roles, tmp_path / "kubeconfig"
    )
    root = tmp_path / "buckets"
    arguments = ("--root", str(root), "--metrics", LOOPBACK, "--health", LOOPBACK)

    async def get(program: Program, endpoint: str, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{await program.port(endpoint)}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    async def holder() -> str:
        lease = await user.client.get(LEASE, NamespacedName("default", "bucket-operator"))
        return str((lease or {}).get("spec", {}).get("holderIdentity") or "")

    async with run(folder, *arguments, kubeconfig=restricted) as leader:
        await leader.logged("Starting workers")
        bucket = await user.create(folder)
        directory = root / user.namespace / "pictures"

        async def directory_exists() -> bool:
            return directory.is_dir()

        await eventually(directory_exists, "the directory is created")
        created = await user.get(bucket)
        assert created["metadata"]["finalizers"] == ["example.com/directory"]
        await user.patch(
            created, metadata={"finalizers": ["example.com/directory", "example.com/other"]}
        )
        (directory / "cat.png").touch()

        async with run(folder, *arguments, kubeconfig=restricted) as follower:
            await follower.logged("New leader observed")
            for program in (leader, follower):
                status, text = await get(program, "health", "/readyz?verbose")
                assert status == 200
                assert "[+]root ok" in text
            assert "leader_election_master_status" in (await get(leader, "metrics", "/metrics"))[1]

            await user.delete(bucket)

            async def is_removed() -> bool:
                return not directory.exists() and (await user.get(bucket))["metadata"][
                    "finalizers"
                ] == ["example.com/other"]

            await eventually(
                is_removed, "the directory is removed, then our finalizer and no other"
            )
            assert (
                "bucket_directories_removed_total 1.0"
                in (await get(leader, "metrics", "/metrics"))[1]
            )
            await user.patch(bucket, metadata={"finalizers": None})
            await user.deleted(bucket)

            first = await holder()
            assert await leader.stop() == 0
            assert "Released lease" in leader.log.read_text()
            await follower.logged("Successfully acquired lease")
            assert await holder() not in ("", first)
            assert await follower.stop() == 0
    assert await holder() == ""
    for program in (leader, follower):
        assert not re.search("permission denied|forbidden", program.log.read_text(), re.IGNORECASE)


# 06-webhooks


async def test_06_webhooks_complete_and_validate_at_a_url_until_the_program_stops(
    user: User, kubeconfig: Path, run: Callable[..., Any], api_client: APIClient
) -> None:
    configurations = (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
    async with run("06-webhooks", "--webhook-url", str(free_url())) as program:

        async def are_called() -> bool:
            assert program.process.returncode is None, program.log.read_text()
            (sample,) = objects("06-webhooks")
            sample["metadata"]["namespace"] = user.namespace
            defaulted = await user.client.create(sample, dry_run=True)
            sample["spec"]["days"] = ["Caturday"]
            try:
                await user.client.create(sample, dry_run=True)
            except Forbidden:
                return "requestedBy" in defaulted["spec"]
            return False

        await eventually(are_called, "the API server calls both webhooks")
        window = await user.create("06-webhooks")
        assert window["spec"]["days"] == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
        assert window["spec"]["requestedBy"]

        with pytest.raises(Forbidden) as rejected:
            await user.patch(
                window, spec={"durationMinutes": 2000, "days": ["Sat", "Caturday", "Sat"]}
            )
        assert str(rejected.value.message) == (
            'admission webhook "vmaintenancewindow.kb.io" denied the request: [spec.days[1]: Unsupported value: '
            '"Caturday": supported values: "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", '
            'spec.days[2]: Duplicate value: "Sat", '
            "spec.durationMinutes: Invalid value: 2000: must be at most one day (1440)]"
        )
        with pytest.raises(Forbidden, match=r"spec\.requestedBy: Forbidden: is immutable"):
            await user.patch(window, spec={"requestedBy": "eve"})

        path = (
            f"/apis/example.com/v1/namespaces/{user.namespace}/maintenancewindows/{name_of(window)}"
        )
        answer = await api_client.merge(path, {"spec": {"durationMinutes": 600}})
        assert answer.code == 200
        assert "the window is longer than eight hours" in answer.headers["Warning"]
        assert await program.stop() == 0
    for configuration in configurations:
        assert (
            await user.client.get(configuration, NamespacedName("", "maintenance-windows")) is None
        )
    await user.patch(window, spec={"days": ["Caturday"]})


async def test_06_webhooks_ends_with_one_line_if_its_port_is_busy(kubeconfig: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        url = f"https://127.0.0.1:{busy.getsockname()[1]}"
        code, output = await run_to_the_end(
            "06-webhooks", "--webhook-url", url, kubeconfig=kubeconfig
        )
    assert code == 1
    last_line = output.splitlines()[-1]
    assert last_line.startswith("WebhookServer webhooks failed: AddressUnavailable: ")
    assert "Traceback" not in output


async def test_06_webhooks_prints_the_webhook_configurations_of_a_deployment(
    kubeconfig: Path,
) -> None:
    printed = await output_of("06-webhooks", "--manifests", kubeconfig=kubeconfig)
    assert [document["kind"] for document in printed] == [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]
    for document in printed:
        (webhook,) = document["webhooks"]
        assert webhook["clientConfig"]["service"]["name"] == "maintenance-windows"


# 07-typed-resources


async def test_07_typed_resources_sum_up_changed_songs_and_reject_too_many(
    user: User, config: ClientConfig
) -> None:
    example = load("07-typed-resources")
    assert custom_resource_definitions([example.Playlist]) == objects(
        "07-typed-resources", "crd.yaml"
    )
    with capture_logs() as logs:
        async with example.new_manager(config) as manager:
            await manager.started()
            playlist = await user.create("07-typed-resources")

            async def total(seconds: int) -> bool:
                return bool(
                    (await user.get(playlist)).get("status", {}).get("totalSeconds") == seconds
                )

            await eventually(lambda: total(350))
            await user.patch(playlist, spec={"note": "for Mondays"})
            await user.patch(playlist, spec={"songs": [{"title": "Sunrise", "seconds": 200}]})
            await eventually(lambda: total(200))

            async def is_logged() -> bool:  # the log line follows the write
                return [
                    entry["seconds"] for entry in logs if entry["event"] == "Summed up the songs"
                ] == [350, 200]

            await eventually(is_logged)
            with pytest.raises(Invalid, match="must not have more songs than maxSongs"):
                await user.patch(playlist, spec={"maxSongs": 0})


# 08-causes


async def test_08_causes_are_in_the_log_and_the_debug_report(
    user: User, config: ClientConfig
) -> None:
    example = load("08-causes")
    assert custom_resource_definitions([example.Inventory]) == objects("08-causes", "crd.yaml")
    fruit = f"ConfigMap {user.namespace}/fruit"
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        async with example.new_manager(config) as manager:
            await manager.started()

            async def caused(*parts: str) -> bool:
                texts = [
                    str(line["causes"])
                    for line in lines
                    if line["event"] == "Summed up the ConfigMaps"
                ]
                return any(all(part in text for part in parts) for text in texts)

            inventory = await user.create("08-causes")
            await eventually(
                lambda: caused(f"Inventory {user.namespace}/kitchen added"),
                "the creation is a cause",
            )
            (stored,) = await user.client.list(
                CONFIG_MAP, namespace=user.namespace, label_selector=example.LABEL
            )
            await user.patch(stored, data={"apple": "SECRET-COLOR"})
            await eventually(
                lambda: caused(f"{fruit} updated: data.apple"), "the change is a cause"
            )
            assert "SECRET-COLOR" not in str(lines)
            assert (await user.get(inventory))["status"] == {"items": 1, "values": 2}

            async def is_scheduled() -> bool:
                url = f"http://127.0.0.1:{manager.debug_port}/debug/queue?format=json"
                async with aiohttp.ClientSession() as session, session.get(url) as response:
                    (queue,) = await response.json()
                items = [
                    item
                    for item in queue["items"]
                    if item["request"] == f"{user.namespace}/kitchen"
                ]
                return [(item["state"], item["causes"][0]["type"]) for item in items] == [
                    ("delayed", "requeue after")
                ]

            await eventually(is_scheduled, "the next reconcile is in the queue")


# 09-sets-and-conditions


async def test_09_sets_are_pruned_summarized_and_leave_a_receipt(
    user: User, config: ClientConfig
) -> None:
    example = load("09-sets-and-conditions")
    assert custom_resource_definitions([example.Environment]) == objects(
        "09-sets-and-conditions", "crd.yaml"
    )
    async with example.new_manager(config) as manager:
        await manager.started()
        environment = await user.create("09-sets-and-conditions")
        key = key_of(environment)

        async def members() -> set[str]:
            return {
                f"{kind.kind}/{name_of(found)}"
                for kind in (CONFIG_MAP, SERVICE_ACCOUNT)
                for found in await user.client.list(kind, namespace=user.namespace)
                if is_controlled_by(found, environment)
            }

        async def ready() -> Any:
            return (await example.wait_until_ready(user.client, key, 10)).status.conditions

        assert {(item.type, item.status) for item in await ready()} == {
            ("Applied", "True"),
            ("Configured", "True"),
            ("Ready", "True"),
        }
        assert await members() == {
            "ConfigMap/staging-web",
            "ServiceAccount/staging-web",
            "ConfigMap/staging-db",
        }

        await user.patch(
            environment, spec={"components": [{"name": "web", "settings": {"color": "red"}}]}
        )
        await ready()
        await eventually(
            lambda: _equal(members, {"ConfigMap/staging-web"}), "the other members are pruned"
        )

        async def condition(kind: str) -> tuple[str, str]:
            stored = await user.get(environment)
            found = find_condition(stored["status"]["conditions"], kind) or {}
            assert found["observedGeneration"] == stored["metadata"]["generation"]
            return found["status"], found["message"]

        foreign = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**key._asdict(), "name": "staging-db"},
        }
        await user.client.create(foreign)
        web = {"name": "web", "settings": {"color": "red"}}
        await user.patch(environment, spec={"components": [web, {"name": "db"}]})
        await eventually(
            lambda: _equal(lambda: condition("Configured"), ("False", "no settings: db"))
        )
        status, message = await condition("Ready")
        assert status == "False"
        assert (
            "Applied: ConfigMap staging-db already exists and does not belong to this Environment"
            in message
        )
        with pytest.raises(TimeoutError, match=r"condition not met after 0\.05 s"):
            await example.wait_until_ready(user.client, key, 0.05)

        await user.delete(environment)
        await user.deleted(environment)
        receipt = await user.client.get(
            CONFIG_MAP, NamespacedName(user.namespace, "staging-receipt")
        )
        assert receipt is not None
        assert receipt["data"] == {"members": "ConfigMap/staging-web"}
        assert await user.exists(foreign)


# 10-generated-apis


@pytest.mark.embedded(reason="a scenario answers logs and commands")
async def test_10_command_is_executed_once_for_each_generation() -> None:
    folder = EXAMPLES / "10-generated-apis"
    crds = objects("10-generated-apis", "crd.yaml")
    plane = ControlPlane.embedded(crds=crds, scenario=str(folder / "scenario.yaml"))
    async with plane:
        config = ClientConfig.for_control_plane(plane)
        commands: list[list[str]] = []

        @plane.scenario.on_exec(labels={"example.com/check": "kernel"})
        async def answer(call: Any) -> int:
            commands.append(list(call.command))
            await call.write(f"output {len(commands)}\n")
            return 0

        async with (
            connect(config, field_manager="test") as client,
            load("10-generated-apis").new_manager(config) as manager,
        ):
            await manager.started()
            user = User(client, "default")
            check = await user.create("10-generated-apis")

            async def status(output: str) -> Any:
                await plane.advance(0)
                found = (await user.get(check)).get("status") or {}
                assert found.get("output") == output, found
                return found

            first = await eventually(lambda: status("output 1"))
            assert first["log"] == "started"
            pod = await client.get(POD, key_of(check))
            assert pod is not None
            assert is_controlled_by(pod, check)
            await user.patch(check, spec={"command": ["date"]})
            await eventually(lambda: status("output 2"))
        assert commands == [["uname", "-r"], ["date"]]
        with pytest.raises(RuntimeError, match="needs a running manager"):
            await manager.api_client()


# 11-website


async def test_11_website_has_three_children_and_changes_no_other_object(
    user: User, config: ClientConfig
) -> None:
    example = load("11-website")
    key = NamespacedName(user.namespace, "hello")
    foreign = new_object(CONFIG_MAP, key.name, key.namespace, data={"index.html": "other"})
    foreign = await user.client.create(foreign)
    async with example.new_manager(config) as manager:
        await manager.started()
        website = await user.create("11-website")

        async def is_taken() -> bool:
            events = await user.client.list(EVENT, namespace=user.namespace)
            notes = [event["note"] for event in events if event["reason"] == "NameTaken"]
            assert set(notes) <= {
                "ConfigMap hello already exists and does not belong to this Website: no page is served"
            }
            return bool(notes)

        async def children() -> set[str]:
            kinds = (CONFIG_MAP, DEPLOYMENT, SERVICE)
            found = [await user.client.get(kind, key) for kind in kinds]
            return {
                obj["kind"] for obj in found if obj is not None and is_controlled_by(obj, website)
            }

        await eventually(is_taken, "the Event about the name")
        await eventually(lambda: _equal(children, {"Service"}), "no Deployment without its page")
        assert await user.client.get(CONFIG_MAP, key) == foreign

        await user.delete(foreign)
        await user.patch(website, spec={"html": "<h1>New</h1>"})
        await eventually(lambda: _equal(children, {"ConfigMap", "Deployment", "Service"}))
        config_map = await user.client.get(CONFIG_MAP, key)
        assert config_map is not None
        assert config_map["data"] == {"index.html": "<h1>New</h1>"}

        await user.patch(website, spec={"exposed": False})
        await eventually(lambda: _equal(children, {"ConfigMap", "Deployment"}))


def test_11_website_has_at_most_65_lines() -> None:
    """Without blank lines and docstrings."""
    lines = [line.strip() for line in program_of("11-website").read_text().splitlines()]
    code = [line for line in lines if line and not line.startswith('"""')]
    assert len(code) <= 65


async def _equal(read: Callable[[], Awaitable[Any]], expected: Any) -> bool:
    return bool(await read() == expected)


# The folders and their READMEs


def commands_in(readme: Path) -> list[list[str]]:
    """Return the words of each shell command in the README, without redirections to other commands."""
    blocks = re.findall(r"```sh\n(.*?)```", readme.read_text(), flags=re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [
        shlex.split(part, comments=True)
        for line in lines
        for part in line.split(" | ")
        if part.strip()
    ]


def test_every_example_has_a_test_and_a_line_in_the_readme() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    numbers = [int(folder[:2]) for folder in FOLDERS]
    assert numbers == sorted(set(numbers))
    for folder in FOLDERS:
        assert any(name.startswith(f"test_{folder[:2]}_") for name in globals()), folder
        assert f"({folder}/README.md)" in readme


@pytest.mark.parametrize("folder", FOLDERS)
def test_sample_object_is_of_the_kind_of_the_crd(folder: str) -> None:
    (crd,) = objects(folder, "crd.yaml")
    sample = objects(folder)[-1]
    assert sample["kind"] == crd["spec"]["names"]["kind"]
    assert sample["apiVersion"] == f"{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}"


@pytest.mark.parametrize("folder", FOLDERS)
async def test_program_without_a_kubeconfig_prints_one_line(folder: str) -> None:
    code, output = await run_to_the_end(folder, kubeconfig=Path("/nonexistent"))
    assert (code, output) == (1, "$KUBECONFIG: /nonexistent: no such file\n")


@pytest.mark.parametrize("folder", ["", *FOLDERS])
def test_readme_commands_name_existing_files_options_and_kinds(folder: str) -> None:
    commands = commands_in(EXAMPLES / folder / "README.md")
    paths = [word for command in commands for word in command if word.startswith("examples/")]
    assert paths
    for path in paths:
        assert (ROOT / path).exists(), path
    if not folder:
        return
    (crd,) = objects(folder, "crd.yaml")
    names = crd["spec"]["names"]
    known = {*BUILTIN_KINDS, names["plural"], names["singular"]}
    source = program_of(folder).read_text()
    envtest_options = {option for parameter in envtest_command.params for option in parameter.opts}
    for command in commands:
        options = {word.partition("=")[0] for word in command if word.startswith("--")}
        match command:
            case ["python", path, *_] if path.startswith("examples/"):
                assert path == f"examples/{folder}/{program_of(folder).name}"
                assert all(f'"{option}"' in source for option in options), command
            case ["envtest", *_]:
                assert options <= envtest_options, command
            case ["kubectl", "get" | "delete" | "describe" | "patch" | "annotate", kinds, *_] if (
                kinds != "-f"
            ):
                assert {kind.partition("/")[0] for kind in kinds.split(",")} <= known, command
