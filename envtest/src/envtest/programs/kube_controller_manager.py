"""The program ``kube-controller-manager``: asks the API server of envtest to run controllers, until this program ends.

It connects with its kubeconfig, as the real one does, and waits for the API server, or while another program runs the
same controllers. Without ``--controllers`` all that envtest implements run, except those that simulate nodes.
"""

from __future__ import annotations

import base64
import http.client
import json
import signal
import socket
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from envtest.configuration.controller_names import select_controllers
from envtest.configuration.kubernetes_version import LATEST
from envtest.programs.flags import KUBE_CONTROLLER_MANAGER, CommandLine, FlagError

__all__ = ["main"]

_PATH = "/envtest/controllers"
_PAUSE_SECONDS = 0.1
_CONNECT_SECONDS = 10.0
_SIGNING = "csrsigning"
_SIGNER_FLAGS = {"certificate": "cert", "key": "key"}


class _Stopped(BaseException):
    """Raised by the signals that end the program."""


class _Failed(Exception):
    """Raised if the server cannot run the controllers; the message contains the reason."""


def _stop(*_: object) -> NoReturn:
    raise _Stopped


def _report(message: str) -> None:
    sys.stderr.write(f"kube-controller-manager: {message}\n")
    sys.stderr.flush()


class _Server:
    """The API server of a kubeconfig's current context, and the credentials for it."""

    def __init__(self, path: Path) -> None:
        from envtest.formats.yaml_codec import YAMLError, load

        try:
            config = load(path.read_bytes())
            context = _named(config, "contexts", config["current-context"])["context"]
            self._folder = path.parent
            self._cluster = _named(config, "clusters", context["cluster"])["cluster"]
            self._user = _named(config, "users", context["user"])["user"]
            self.url = urlsplit(self._cluster["server"])
        except YAMLError as error:
            raise FlagError(f"--kubeconfig={path}:{error.line}: {error.problem}") from None
        except (LookupError, TypeError, AttributeError) as error:
            raise FlagError(f"--kubeconfig={path}: invalid kubeconfig: {error!r}") from None
        if self.url.scheme != "https" or not self.url.hostname:
            raise FlagError(f"--kubeconfig={path}: the server must be an https URL")

    def _content(self, source: Any, name: str) -> bytes:
        """Return the content of a field that is inline (``NAME-data``) or a file; it is empty by default."""
        if source.get(f"{name}-data"):
            return base64.b64decode(source[f"{name}-data"])
        return (self._folder / source[name]).read_bytes() if source.get(name) else b""

    def context(self) -> ssl.SSLContext:
        """Return the TLS configuration, with the client certificate. Raises OSError, ValueError."""
        ca = self._content(self._cluster, "certificate-authority").decode()
        context = ssl.create_default_context(cadata=ca or None)
        # As Go: certificates without key identifiers are trusted, and CA certificates that are not self-signed.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self._cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate = self._content(self._user, "client-certificate")
        if certificate:
            with tempfile.NamedTemporaryFile() as file:  # the ssl module loads keys only from files
                file.write(certificate + b"\n" + self._content(self._user, "client-key"))
                file.flush()
                context.load_cert_chain(file.name)
        return context

    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate. Raises OSError."""
        token = self._user.get("token") or self._content(self._user, "tokenFile").decode().strip()
        return {"Authorization": f"Bearer {token}"} if token else {}


def _named(config: Any, kind: str, name: str) -> Any:
    return next(each for each in config[kind] if each["name"] == name)


def _run_controllers(server: _Server, body: bytes) -> str:
    """Run the controllers until the connection ends; return why it did. Raises _Failed, _Stopped, OSError."""
    host = str(server.url.hostname)
    port = server.url.port or 443
    connection = http.client.HTTPSConnection(
        host, port, timeout=_CONNECT_SECONDS, context=server.context()
    )
    try:
        connection.request(
            "POST", _PATH, body, {"Content-Type": "application/json", **server.headers()}
        )
        response = connection.getresponse()
        if response.status == 200:
            if isinstance(connection.sock, socket.socket):
                connection.sock.settimeout(None)
            _report(f"started {response.readline().decode().strip()}")
            response.read()
            return "the API server ended"
        text = response.read(4096).decode(errors="replace").strip()
        if response.status not in {409, 429} and response.status < 500:
            raise _Failed(f"{server.url.geturl()}{_PATH}: {response.status} {text}")
        return text
    finally:
        connection.close()


def _signer(command: CommandLine) -> dict[str, str]:
    """Return the CA that signs certificates, or an empty mapping. Raises FlagError, OSError."""
    files = {
        name: command.last(f"cluster-signing-{flag}-file") for name, flag in _SIGNER_FLAGS.items()
    }
    if not any(files.values()):
        return {}
    for name, flag in _SIGNER_FLAGS.items():
        if not files[name]:
            raise FlagError(f"--cluster-signing-{flag}-file must be specified, too")
    return {name: Path(file).read_text() for name, file in files.items()}


def _run(command: CommandLine) -> NoReturn:
    path = command.last("kubeconfig")
    if not path:
        raise FlagError("--kubeconfig must be specified")
    server = _Server(Path(path))
    selection = select_controllers(command.items("controllers") or ["*"])
    for name in selection.missing:
        _report(f"--controllers: envtest does not implement {name}")
    document: dict[str, Any] = {"controllers": selection.controllers}
    root_ca = command.last("root-ca-file")
    if root_ca:
        document["ca"] = Path(root_ca).read_text()
    signer = _signer(command)
    if signer:
        document["signer"] = signer
    elif _SIGNING in selection.controllers:
        document["controllers"] = [name for name in selection.controllers if name != _SIGNING]
        _report(
            "certificates are not signed without --cluster-signing-cert-file and --cluster-signing-key-file"
        )
    body = json.dumps(document).encode()
    reported = ""
    while True:
        try:
            reason = _run_controllers(server, body)
        except (OSError, http.client.HTTPException) as error:
            reason = f"cannot connect to {server.url.geturl()}: {error}"
        if reason != reported:
            _report(f"{reason}; will retry")
            reported = reason
        time.sleep(_PAUSE_SECONDS)


def main(arguments: list[str]) -> int:
    """Run the program until SIGTERM or SIGINT; return its exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        command = KUBE_CONTROLLER_MANAGER.parse(arguments)
        if command.is_help():
            sys.stdout.write(KUBE_CONTROLLER_MANAGER.usage())
            return 0
        if "version" in command.values:
            sys.stdout.write(f"Kubernetes {LATEST}\n")
            return 0
        for warning in command.warnings:
            _report(warning)
        _run(command)
    except (FlagError, _Failed, OSError, ValueError) as error:
        _report(str(error))
        return 1
    except _Stopped:
        return 0
