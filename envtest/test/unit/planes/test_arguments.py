"""Arguments of control planes: lists of strings, users, tokens and paths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envtest import ControlPlane, EmbeddedControlPlane, User
from envtest.chaos import OperatorCommand, explore
from envtest.planes.local_webhooks import LocalWebhooks
from envtest.planes.real import RealServer


@pytest.fixture
def plane() -> EmbeddedControlPlane:
    return ControlPlane.embedded(controllers=())


@pytest.mark.parametrize("groups", ["team", b"team", ("team", 1), None])
def test_groups_of_a_certificate_must_be_a_list_of_strings(
    plane: EmbeddedControlPlane, groups: Any
) -> None:
    with pytest.raises(TypeError, match=r"groups: .*: must be a"):
        plane.client_certificate("bob", groups)


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


def test_folder_of_local_webhooks_can_be_a_string(tmp_path: Path) -> None:
    webhooks = LocalWebhooks.prepare(str(tmp_path / "webhooks"))
    assert webhooks.certificate.is_file()
