"""Commands against an API server that answers with anything: one line, the documented exit code, and an end."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner, Result

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.cli import cli
from cfo.console import execution
from cfo.console.doctor import doctor_command
from cfo.console.migrate.raycluster import migrate_command
from cfo.console.uninstall import uninstall_command
from cfo.console.uninstall.stored_objects import first_objects
from cfo.runtime import CONFIG_MAP, GVK, POD, SECRET, gvk_of, namespace_of
from cfo.runtime.objects import LEASE
from test.support.api_server import discovery, group, json, resource

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

DOCTOR = ["doctor"]
STATUS = ["status", "-n", "team", "--timeout", "2"]
UNINSTALL = ["uninstall", "-n", "ops", "--yes"]
MIGRATE = ["migrate", "--to", "kuberay", "-A"]
TAKEOVER = ["migrate", "--to", "cfo", "-A"]


@pytest.fixture(autouse=True)
def _logging_is_restored() -> Iterator[None]:
    """Restore the configuration of logging, which commands change for their process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


class HostileServer:
    """Serves the discovery of a cluster; ``answer`` answers everything else."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._discovery = {"/api": _discovery(is_core=True), "/apis": _discovery(is_core=False)}
        self.answer: Answer = json({})

    async def serve(self, request: web.Request) -> web.StreamResponse:
        document = self._discovery.get(request.path)
        answer = self.answer if document is None else json(document)
        return await answer(request)

    async def run(self, *command: str) -> Result:
        """Run a command against this server."""
        name, *arguments = command
        words = [name, "--kubeconfig", str(self._kubeconfig), *arguments]
        invoke = partial(CliRunner().invoke, cli, words, prog_name="cfo")
        return await anyio.to_thread.run_sync(invoke)


def _discovery(*, is_core: bool) -> dict[str, Any]:
    namespaced = dict.fromkeys((RAY_CLUSTER, CONFIG_MAP, LEASE, POD, SECRET), True)
    for obj in first_objects("ops"):
        namespaced[gvk_of(obj)] = bool(namespace_of(obj))
    groups: dict[tuple[str, str], list[GVK]] = defaultdict(list)
    for gvk in namespaced:
        if is_core is not bool(gvk.group):
            groups[gvk.group, gvk.version].append(gvk)
    return discovery(
        *(
            group(
                name,
                *(
                    resource(f"{gvk.kind.lower()}s", gvk.kind, namespaced=namespaced[gvk])
                    for gvk in kinds
                ),
                version=version,
            )
            for (name, version), kinds in groups.items()
        )
    )


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[HostileServer]:
    kubeconfig = tmp_path / "kubeconfig"
    hostile = HostileServer(kubeconfig)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hostile.serve)
    async with TestServer(app) as running:
        kubeconfig.write_text(
            "{current-context: a, contexts: [{name: a, context: {cluster: a}}], "
            f"clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{running.port}'}}}}]}}"
        )
        yield hostile


def check_one_line(result: Result, *parts: str) -> None:
    """Check that a command failed with exit code 3, and one line without a trace that has these parts."""
    assert result.exit_code == 3, (result.output, result.exception)
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("Error: ")
    assert all(part in result.stderr for part in parts), result.stderr


@pytest.mark.parametrize("command", [DOCTOR, UNINSTALL, MIGRATE, TAKEOVER], ids=" ".join)
@pytest.mark.parametrize(
    "answer",
    [[], 5, {"metadata": 5, "items": 5, "spec": 5}, {"items": [[]], "gitVersion": {}, "spec": []}],
    ids=repr,
)
async def test_answers_of_the_wrong_type_are_one_line(
    server: HostileServer, command: list[str], answer: Any
) -> None:
    server.answer = json(answer)
    check_one_line(await server.run(*command), "cannot read what the API server answers: ")


async def not_found_or_endless(request: web.Request, *, numbers: Iterator[int]) -> web.Response:
    """Answer that each object does not exist, and that each list has one more page."""
    if "limit" in request.query:
        page = {"kind": "List", "metadata": {"continue": str(next(numbers))}, "items": []}
        return web.json_response(page)
    if request.path == "/version":
        return web.json_response({})
    status = {"kind": "Status", "reason": "NotFound", "details": {"name": "x"}, "code": 404}
    return web.json_response(status, status=404)


@pytest.mark.parametrize("command", [DOCTOR, UNINSTALL, MIGRATE, TAKEOVER], ids=" ".join)
async def test_list_without_end_ends_with_the_time_limit(
    server: HostileServer, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (doctor_command, uninstall_command, migrate_command):
        monkeypatch.setattr(module, "READ_LIMIT", 0.3)
    server.answer = partial(not_found_or_endless, numbers=count())
    result = await server.run(*command)
    check_one_line(result, "the API server has not answered everything within 0.3 s")


@pytest.mark.parametrize("command", [DOCTOR, STATUS, UNINSTALL, MIGRATE, ["dashboard"]])
async def test_response_of_any_size_is_read_only_up_to_a_limit(
    server: HostileServer, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "_MAX_RESPONSE_BYTES", 1000)  # less than the discovery has
    check_one_line(await server.run(*command), "the response has more than 1000 bytes")


@pytest.mark.parametrize("name", ["a/b", "..", "%2e"])
async def test_name_that_no_object_can_have_is_an_invalid_argument(
    server: HostileServer, name: str
) -> None:
    async def found(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "team"}})

    server.answer = found
    result = await server.run("migrate", "--to", "kuberay", "-n", "team", "--", name)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    assert repr(name) in result.stderr
