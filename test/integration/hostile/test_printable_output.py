"""What people read about objects of tenants is printable: commands, the page and messages of webhooks."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio.to_thread
import orjson
import pytest
import yaml
from click.testing import CliRunner, Result

from cfo.api.flux.names import FLUX_JOB, MINICLUSTER
from cfo.api.inferencestack.profiles import newest_profile
from cfo.api.inferencestack.validation.stack import validate
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.cli import cli
from cfo.console.summary_text import detail, problem_lines, table
from cfo.dashboard.state import row_of
from cfo.runtime import GVK, Object, gvk_of
from cfo.summaries.kind_view import Related, summarize
from cfo.summaries.summary import kind_names
from test.support.raycluster_environment import Environment, crd, start_environment
from test.support.summaries import VIEWS

ROOT = Path(__file__).parents[3]
BLANK = "\u3164\u2800"
HOSTILE = f"\x1b[2J\x1b]0;t\x07\r\nError: forged\u202e\u2066\u200f\x9b1m\x7f{BLANK}"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STATUS = {
    "phase": "Failed",
    "state": "failed",
    "reason": "Failed",
    "message": "x",
    "conditions": [
        {"type": kind, "status": "False", "reason": "R", "message": "x"}
        for kind in ("Ready", "Unhealthy")
    ],
    "applications": {"a": {"state": "x", "message": "x"}},
    "position": "1",
}


@pytest.fixture(autouse=True)
def _logging_is_restored() -> Iterator[None]:
    """Restore the configuration of logging, which commands change for their process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def samples() -> list[Object]:
    """Return one object of each kind that has a view."""
    found: dict[GVK, Object] = {}
    for path in sorted((ROOT / "config/samples").rglob("*.yaml")):
        for obj in yaml.safe_load_all(path.read_text()):
            if gvk_of(obj) in VIEWS:
                found.setdefault(gvk_of(obj), obj)
    return list(found.values())


def hostile(value: Any) -> Any:
    """Return ``value`` with control characters in each string, and a second entry with them in each key."""
    if isinstance(value, str):
        return value + HOSTILE
    if isinstance(value, list):
        return [hostile(item) for item in value]
    if isinstance(value, dict):
        return {name: hostile(item) for key, item in value.items() for name in (key, key + HOSTILE)}
    return value


def attack(obj: Object, *, stored: bool) -> Object:
    """Return ``obj`` with hostile text wherever its author can write it; ``stored``: the API server has accepted it."""
    found = copy.deepcopy(obj)
    metadata = {"name": "x", "namespace": "ns", "uid": "u", "annotations": hostile({"a": "b"})}
    if stored:
        metadata = {"name": "x", "namespace": "ns", "annotations": {"a": HOSTILE}}
    else:
        metadata["labels"] = hostile({**obj["metadata"].get("labels", {}), "l": "v"})
    return {
        **found,
        "metadata": metadata,
        "spec": hostile(found["spec"]),
        "status": hostile(STATUS),
    }


def assert_printable(text: str) -> None:
    for line in text.split("\n"):
        assert line.isprintable(), ascii(line)
        assert set(BLANK).isdisjoint(line), ascii(line)
        assert not line.startswith("Error: forged")


def strings(value: Any) -> Iterator[str]:
    """Yield all strings in decoded JSON."""
    if isinstance(value, str):
        yield value
    for item in (
        [*value, *value.values()]
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else ()
    ):
        yield from strings(item)


@pytest.mark.parametrize("obj", samples(), ids=lambda obj: gvk_of(obj).kind)
def test_text_and_page(obj: Object) -> None:
    found = attack(obj, stored=False)
    warning = {"type": "Warning", "reason": HOSTILE, "message": HOSTILE, "lastTimestamp": HOSTILE}
    view = VIEWS[gvk_of(obj)]
    summary = summarize(view, found, Related(events=[warning], pods=[found]))
    texts = [
        *table([summary], NOW, wide=True),
        *problem_lines([summary]),
        *detail(summary, NOW, kind_names([summary.gvk])),
    ]
    for text in (*texts, *strings(orjson.loads(orjson.dumps(row_of(summary))))):
        assert_printable(text)


def stacks() -> list[Object]:
    """Return one InferenceStack of each group that has samples."""
    return [each for each in samples() if gvk_of(each).kind == "InferenceStack"]


@pytest.mark.parametrize("obj", stacks(), ids=lambda obj: gvk_of(obj).group)
def test_errors_of_a_hostile_stack(obj: Object) -> None:
    found = attack(obj, stored=False)
    errors = validate(found, newest_profile("")).errors
    assert errors
    for error in errors:
        assert_printable(str(error))


async def run(env: Environment, directory: Path, *arguments: str) -> Result:
    path = directory / "kubeconfig"
    env.plane.kubeconfig(path)
    command = [*arguments, "--kubeconfig", str(path)]
    return await anyio.to_thread.run_sync(lambda: CliRunner().invoke(cli, command, prog_name="cfo"))


async def test_commands_that_read_a_cluster(tmp_path: Path) -> None:
    kinds = map(gvk_of, samples())
    async with start_environment(*(crd(*gvk, f"{gvk.kind.lower()}s") for gvk in kinds)) as env:
        await env.create_namespace()
        for obj in samples():
            wanted = attack(obj, stored=True)
            created = await env.create(wanted)
            await env.patch(created, {"status": wanted["status"]}, subresource="status")
            await env.create(event_of(created))
        await env.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "codeflare-operator-config", "namespace": "ns"},
                "data": {
                    "config.yaml": yaml.safe_dump(hostile({"kuberay": {"ingressDomain": "x"}}))
                },
            }
        )
        for arguments in (
            ["status", "-A"],
            ["status", "-A", "-o", "wide"],
            *(
                ["status", "-n", "ns", gvk.kind.lower()]
                for gvk in (RAY_CLUSTER, FLUX_JOB, MINICLUSTER)
            ),
            ["status", "-n", "ns", "raycluster/x"],
            ["doctor", "-n", "ns"],
            ["migrate", "--to", "kuberay", "-A"],
            ["migrate", "--to", "cfo", "-A", "--operator-namespace", "ns"],
        ):
            result = await run(env, tmp_path, *arguments)
            assert_printable(result.output)
            assert result.output, arguments
            assert result.exception is None or isinstance(result.exception, SystemExit), arguments


def event_of(obj: Object) -> Object:
    gvk = gvk_of(obj)
    regarding = {"kind": gvk.kind, "apiVersion": gvk.api_version, "namespace": "ns", "name": "x"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{gvk.kind}.{gvk.group}".lower(), "namespace": "ns"},
        "involvedObject": {**regarding, "uid": obj["metadata"]["uid"]},
        "type": "Warning",
        "reason": f"Failed{HOSTILE}",
        "message": f"failed{HOSTILE}",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
