"""``cfo migrate`` on the command line: errors of one line, and exit codes."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner, Result

from cfo.cli import cli
from cfo.config.document import parse
from cfo.console.errors import InvalidInput
from cfo.console.migrate.raycluster.migrate_command import _configuration, _has_proxies
from cfo.console.migrate.raycluster.observation import Observer
from cfo.runtime import Forbidden, UnknownKind


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
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


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
        await _configuration(observer, "ops")
