"""Tests of the command ``envtest``."""

from __future__ import annotations

import socket

from click.testing import CliRunner

from envtest.command import command


def test_port_in_use_is_one_line_with_exit_code_2() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(command, ["--port", str(port), "--controllers", "none"])
    assert result.exit_code == 2
    assert result.output == f"Error: --port {port}: is in use on 127.0.0.1; set another port, or 0 for a free one\n"
