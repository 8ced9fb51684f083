"""``cfo migrate`` on the command line: errors of one line, and exit codes."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner, Result

from cfo.cli import cli
from cfo.config.document import parse
from cfo.console.errors import InvalidInput
from cfo.console.migrate.raycluster.applying import Executor
from cfo.console.migrate.raycluster.migrate_command import (
    _apply,
    _configuration,
    _echo_summary,
    _has_proxies,
    _in_turns,
    _show,
)
from cfo.console.migrate.raycluster.observation import Observer
from cfo.console.migrate.raycluster.planning import ObservedCluster, Options
from cfo.console.migrate.raycluster.steps import ObjectPlan, Totals
from cfo.console.migrate.raycluster.targets import Target
from cfo.runtime import Forbidden, NamespacedName, UnknownKind


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["migrate", *arguments], prog_name="cfo")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "kuberay"], "either --namespace NAMESPACE or --all-namespaces is required"),
        (
            ["--to", "rhoai", "-A", "-n", "ns", "--apply"],
            "either --namespace NAMESPACE or --all-namespaces is required",
        ),
        (["--to", "kuberay", "-A", "rc"], "names of RayClusters require --namespace"),
        (
            ["--to", "cfo", "-A", "--finalizers-only"],
            "--finalizers-only: not with --to cfo, which only",
        ),
        (
            ["--to", "cfo", "-A", "--apply", "--without-tls"],
            "--apply, --without-tls: not with --to cfo",
        ),
        (["--to", "cfo", "-A", "--apply"], "--apply: not with --to cfo, which only shows"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr


def test_missing_kubeconfig_is_reported_in_one_line(tmp_path: Path) -> None:
    result = run("--to", "kuberay", "-A", "--kubeconfig", str(tmp_path / "missing"))
    assert (result.exit_code, result.stderr.count("\n")) == (3, 1)


@pytest.mark.parametrize(
    ("document", "serves_routes", "expected"),
    [
        ("kuberay: {authentication: {enabled: true}}", False, True),
        ("kuberay: {}", True, True),
        ("kuberay: {}", False, False),
        ("kuberay: {rayDashboardOAuthEnabled: false}", True, False),
    ],
)
async def test_finalizers_are_needed_by_proxies_of_either_kind(
    document: str, *, serves_routes: bool, expected: bool
) -> None:
    client = mock.Mock()
    error = None if serves_routes else UnknownKind("no matches")
    client.mapper.resource = mock.AsyncMock(side_effect=error)
    config = parse(document).configuration.kuberay
    assert await _has_proxies(client, config) is expected


async def test_forbidden_configuration_is_reported_without_an_option() -> None:
    observer = mock.Mock(spec=Observer)
    observer.configuration.side_effect = Forbidden(403, {"message": "not allowed"})
    expected = "^the configuration of the operator in namespace ops cannot be read: not allowed"
    with pytest.raises(InvalidInput, match=expected):
        await _configuration(observer, "ops", assumption="nothing")


@pytest.mark.parametrize(
    ("kept", "exit_code", "end"),
    [
        ([], 0, "0 with downtime\n"),
        (["Secret s"], 3, ", 1 with objects that are kept until another run\n"),
    ],
)
def test_summary_has_the_cause_of_the_exit_code(
    kept: list[str], exit_code: int, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    totals = Totals()
    totals.add(ObjectPlan({"kind": "RayCluster"}, kept=kept))
    assert _echo_summary(totals) == exit_code
    assert capsys.readouterr().out.endswith(end)


class ReferencedObject(dict[str, Any]):
    """An object to which there can be weak references."""


class LargeClusters:
    """Has five RayClusters, and records how many of them are in memory when another one is read."""

    def __init__(self) -> None:
        self.found: list[weakref.ref[Any]] = []
        self.kept: list[int] = []

    async def cluster(self, key: NamespacedName) -> ObservedCluster:
        gc.collect()
        self.kept.append(sum(each() is not None for each in self.found))
        cluster = ReferencedObject(metadata={**key._asdict(), "uid": "u"}, spec={})
        self.found.append(weakref.ref(cluster))
        return ObservedCluster(cluster)


KEYS = [NamespacedName("ns", f"rc{number}") for number in range(5)]


async def test_plans_are_printed_without_keeping_their_objects(
    capsys: pytest.CaptureFixture[str],
) -> None:
    observer: Any = LargeClusters()
    assert await _show(observer, KEYS, Options(Target.RHOAI, finalizers_only=True)) == 0
    assert max(observer.kept) == 1, "the last one, until the next one was read"
    assert "5 RayClusters: 0 to change, 0 blocked, 0 with downtime" in capsys.readouterr().out


def test_namespaces_take_turns_in_random_order() -> None:
    """Otherwise, the names of namespaces would decide whose RayClusters come first."""
    keys = [NamespacedName(namespace, name) for namespace in "abcdefghij" for name in "xyz"]
    orders = [_in_turns(keys) for _ in range(3)]
    for order in orders:
        assert sorted(order) == keys
        assert [key.name for key in order] == [*"x" * 10, *"y" * 10, *"z" * 10]
    assert any(order != orders[0] for order in orders)


class UnreadableCluster(LargeClusters):
    """An observer to which the API server refuses the first RayCluster."""

    async def cluster(self, key: NamespacedName) -> ObservedCluster:
        if key == KEYS[0]:
            raise Forbidden(403, {"message": "rayclusters is forbidden"})
        return await super().cluster(key)


async def test_plan_continues_after_a_cluster_that_cannot_be_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    observer: Any = UnreadableCluster()
    assert await _show(observer, KEYS, Options(Target.RHOAI, finalizers_only=True)) == 1
    output = capsys.readouterr()
    assert "4 RayClusters: 0 to change" in output.out
    assert output.err == f"RayCluster {KEYS[0]}: rayclusters is forbidden\n1 RayCluster failed\n"


async def test_migrated_clusters_are_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    observer: Any = LargeClusters()
    options = Options(Target.RHOAI, finalizers_only=True)
    executor = Executor(mock.Mock(), observer, options, print, timeout=1.0)
    assert await _apply(executor, KEYS) == 0
    assert max(observer.kept) == 1
    assert "5 RayClusters: 0 to change" in capsys.readouterr().out
