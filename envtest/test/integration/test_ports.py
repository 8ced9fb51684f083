"""The port of a control plane."""

from __future__ import annotations

import errno
import socket

import pytest

from envtest import ControlPlane
from envtest.threaded import ThreadedControlPlane


def test_port_in_use_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        plane = ThreadedControlPlane(ControlPlane.embedded(port=port))
        message = f"port {port} is in use on 127.0.0.1: set another port, or 0 for a free one"
        with pytest.raises(OSError, match=message) as failed:
            plane.start()
        assert failed.value.errno == errno.EADDRINUSE
