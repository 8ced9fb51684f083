"""Tests of which files a kubeconfig of a control plane may replace."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from envtest import ControlPlane
from envtest.formats.kubeconfig_file import write_kubeconfig
from envtest.planes.base import AdminAccess


def own_kubeconfig() -> str:
    """Return the kubeconfig of a control plane."""
    plane = ControlPlane.embedded()
    plane._admin = AdminAccess("https://127.0.0.1:6443", b"ca", "secret")
    return plane.kubeconfig()


FOREIGN = [
    "not a kubeconfig, but it mentions envtest\n",
    "{",
    "[envtest]",
    "apiVersion: v1\nkind: Config\nclusters: [{name: prod}]\ncontexts: [{name: envtest}]\n",
    "apiVersion: v1\nkind: Config\nclusters: [{name: envtest}, {name: prod}]\ncontexts: [{name: envtest}]\n",
    "apiVersion: v1\nkind: Config\nclusters: [{name: envtest}]\ncontexts: [{name: envtest}]\n#"
    + "x" * 70_000,
]


@pytest.mark.parametrize("content", FOREIGN)
def test_file_with_other_content_is_not_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(
        FileExistsError, match=r"config: exists and was not written by a control plane"
    ):
        write_kubeconfig(path, own_kubeconfig())
    assert path.read_text() == content


def test_absent_empty_and_own_files_are_written_for_their_owner_only(tmp_path: Path) -> None:
    absent = tmp_path / "config"
    empty = tmp_path / "empty"
    empty.touch(mode=0o644)
    for path in (absent, empty, absent):
        write_kubeconfig(path, own_kubeconfig())
        assert path.read_text() == own_kubeconfig()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_folder_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must be a file in a folder that exists"):
        write_kubeconfig(tmp_path / "new" / "config", own_kubeconfig())
    assert not list(tmp_path.iterdir())


def test_kubeconfig_of_a_running_control_plane_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config"
    with socket.create_server(("127.0.0.1", 0)) as server:
        running = own_kubeconfig().replace("6443", str(server.getsockname()[1]))
        write_kubeconfig(path, running)
        with pytest.raises(
            FileExistsError,
            match=r"of the control plane at https://127.0.0.1:\d+, which is still running",
        ):
            write_kubeconfig(path, own_kubeconfig())
        assert path.read_text() == running
        write_kubeconfig(path, running.replace("secret", "other"))  # its own plane writes it again
    write_kubeconfig(path, own_kubeconfig())
    assert path.read_text() == own_kubeconfig()


def test_command_refuses_a_foreign_kubeconfig_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("kind: Config\n")
    done = subprocess.run(
        [sys.executable, "-m", "envtest", "--kubeconfig", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 2
    assert f"{path}: exists and was not written by a control plane" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert path.read_text() == "kind: Config\n"


def test_command_ends_with_code_0_at_hangup_and_removes_its_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "config"
    arguments = [sys.executable, "-m", "envtest", "--kubeconfig", str(path)]

    def receive_hangup() -> None:
        signal.signal(
            signal.SIGHUP, signal.SIG_DFL
        )  # nohup, under which the tests may run, makes programs ignore it

    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, text=True, preexec_fn=receive_hangup
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Serving on")
        assert process.stdout.readline().startswith("export KUBECONFIG=")
        assert path.exists()
        process.send_signal(signal.SIGHUP)
        assert process.wait(120) == 0
        assert not path.exists()
    finally:
        process.kill()
        process.communicate()


def test_existing_file_and_link_never_contain_the_token(tmp_path: Path) -> None:
    """Another user may have opened a file that exists, or may read the target of a link."""
    existing, target, link = tmp_path / "existing", tmp_path / "target", tmp_path / "link"
    existing.touch(mode=0o644)
    target.touch(mode=0o644)
    link.symlink_to(target)
    with existing.open() as opened:
        write_kubeconfig(existing, own_kubeconfig())
        assert opened.read() == ""
    write_kubeconfig(link, own_kubeconfig())
    assert (target.read_text(), link.is_symlink()) == ("", False)
    for path in (existing, link):
        assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == (own_kubeconfig(), 0o600)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["existing", "link", "target"]
