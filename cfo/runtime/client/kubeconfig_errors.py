"""Errors of kubeconfig files: checks of their content, and the causes of failed logins.

The loaders of kubernetes-asyncio report invalid files with Python's own messages, or not at all. The functions here run
before them (:func:`read_document`, :func:`check_cluster`, :func:`check_user`) or explain their errors
(:func:`login_problem`). Messages contain paths, names and what programs print on stderr, never the values of
credentials.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

__all__ = [
    "CredentialError",
    "KubeconfigError",
    "check_cluster",
    "check_user",
    "login_problem",
    "read_document",
]

_SECTIONS: Final = ("clusters", "contexts", "users")
_PEM_FILES: Final = ("client-certificate", "client-key")
_SUPPORTED_PROVIDERS: Final = ("gcp", "oidc")
_OTHER_CREDENTIALS: Final = ("exec", "token", "tokenFile", "client-certificate", "client-certificate-data", "username")
_MAX_OUTPUT: Final = 300
_MAX_CHARACTERS: Final = 16 << 20
"""The size of a file that is parsed: about 3,000 contexts with embedded certificates."""
_EXIT: Final = re.compile(r"exec: process returned (-?\d+)(?:\. (.*))?", re.DOTALL)


class CredentialError(Exception):
    """Raised if credentials cannot be loaded; the message gives the cause and contains no credentials."""


class KubeconfigError(CredentialError):
    """Raised for an invalid kubeconfig, and if the login that it describes fails.

    ``file``: the path; ``field``: the field, such as ``users[name=me].user.exec``; ``context``: the context in use.
    They are empty if they are unknown. ``problem``: what is wrong. ``hint``: what to do, empty if there is no advice.
    """

    def __init__(self, problem: str, *, file: str = "", context: str = "", field: str = "", hint: str = "") -> None:
        self.problem = problem
        self.file = file
        self.context = context
        self.field = field
        self.hint = hint
        where = f"{file} (context {context})" if context else file
        message = ": ".join(part for part in (where, field, problem) if part)
        super().__init__(f"{message}; {hint}" if hint else message)


def read_document(path: str) -> dict[str, Any]:
    """Return the content of the kubeconfig in ``path``. Raises :class:`KubeconfigError` for other content."""

    def invalid(problem: str, field: str = "") -> KubeconfigError:
        return KubeconfigError(f"not a kubeconfig file: {problem}", file=path, field=field)

    try:
        with Path(path).open(encoding="utf-8") as file:
            content = file.read(_MAX_CHARACTERS + 1)
        if len(content) > _MAX_CHARACTERS:
            raise invalid(f"longer than {_MAX_CHARACTERS >> 20} MiB")
        found = yaml.safe_load(content)
    except RecursionError:
        raise invalid("nested too deeply") from None
    except OSError as error:
        raise KubeconfigError(f"cannot be read: {error.strerror or error}", file=path) from None
    except UnicodeDecodeError:
        raise invalid("not a text file") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise invalid(f"{where}not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise invalid(f"not valid YAML: {_one_line(str(error))}") from None
    if found is None:
        raise invalid("the file is empty")
    if not isinstance(found, dict):
        kind = "a list" if isinstance(found, list) else "a single value"
        raise invalid(f"must be a mapping with clusters, contexts and users, not {kind}")
    for section in _SECTIONS:
        entries = found.get(section)
        if entries is not None and not isinstance(entries, list):
            raise invalid("must be a list", section)
        for index, entry in enumerate(entries or ()):
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise invalid("must be a mapping with a name", f"{section}[{index}]")
    return found


def check_cluster(cluster: Mapping[str, Any], base: str, field: str) -> None:
    """Check the CA certificates of ``cluster``; its relative paths are relative to the directory ``base``.

    ``field`` is the path of ``cluster`` in the file. Raises :class:`KubeconfigError` without file and context.
    """
    _check_pem(cluster, "certificate-authority", base, field)


def check_user(user: Mapping[str, Any], base: str, field: str) -> None:
    """Check the files, certificates and plugins of ``user``, like :func:`check_cluster`."""
    for name in _PEM_FILES:
        _check_pem(user, name, base, field)
    if user.get("tokenFile") and not user.get("token"):
        _check_file(user["tokenFile"], base, f"{field}.tokenFile")
    plugin = user.get("exec")
    if "exec" in user and not isinstance(plugin, Mapping):
        raise KubeconfigError("must be a mapping", field=f"{field}.exec")
    if isinstance(plugin, Mapping):
        for key in ("command", "apiVersion"):
            if not isinstance(plugin.get(key), str) or not plugin[key]:
                raise KubeconfigError("is required", field=f"{field}.exec.{key}")
    provider = user.get("auth-provider")
    supported = not isinstance(provider, Mapping) or provider.get("name") in _SUPPORTED_PROVIDERS
    if isinstance(provider, Mapping) and not supported and not any(user.get(key) for key in _OTHER_CREDENTIALS):
        raise KubeconfigError(
            f"the auth provider {provider.get('name')!r} is not supported",
            field=f"{field}.auth-provider",
            hint="use an exec plugin, as current versions of kubectl do",
        )


def login_problem(user: Mapping[str, Any], error: Exception, field: str) -> KubeconfigError:
    """Return the error to report when loading the credentials of ``user`` failed with ``error``.

    ``field`` is the path of ``user`` in the file. The message can contain the output of a plugin, so the caller removes
    secrets from it.
    """
    plugin, provider = user.get("exec"), user.get("auth-provider")
    if isinstance(provider, Mapping) and provider.get("name") == "gcp":
        return KubeconfigError(
            "the auth provider gcp has no valid access token, and cannot get one",
            field=f"{field}.auth-provider",
            hint="use the exec plugin gke-gcloud-auth-plugin, as current versions of kubectl do",
        )
    if isinstance(provider, Mapping) and provider.get("name") == "oidc":
        return KubeconfigError(
            f"the login failed: {_reason(error).removeprefix('oidc: ')}", field=f"{field}.auth-provider"
        )
    if not isinstance(plugin, Mapping):
        return KubeconfigError(_reason(error))
    field, command = f"{field}.exec", plugin.get("command")
    if isinstance(error, FileNotFoundError | PermissionError) and error.filename == command:
        missing = isinstance(error, FileNotFoundError)
        return KubeconfigError(
            f"the plugin {command} {'is not installed' if missing else 'is not executable'}",
            field=f"{field}.command",
            hint=_one_line(str(plugin.get("installHint") or "")),
        )
    if exited := _EXIT.fullmatch(str(error)):
        output = _one_line(exited[2] or "") or "it printed nothing on stderr"
        return KubeconfigError(f"the plugin {command} exited with code {exited[1]}: {output}", field=field)
    return KubeconfigError(f"the plugin {command} failed: {_reason(error).removeprefix('exec: ')}", field=field)


def _check_pem(entry: Mapping[str, Any], name: str, base: str, field: str) -> None:
    """Check the PEM data in ``NAME-data``, or else the file ``NAME``."""
    data = entry.get(f"{name}-data")
    if data:
        field = f"{field}.{name}-data"
        try:
            content = base64.b64decode("".join(str(data).split()), validate=True)
        except (binascii.Error, ValueError):
            raise KubeconfigError("is not valid base64", field=field) from None
        _check_content(content, field)
    elif entry.get(name):
        field = f"{field}.{name}"
        _check_content(_check_file(entry[name], base, field), field)


def _check_content(content: bytes, field: str) -> None:
    if b"-----BEGIN " not in content:
        raise KubeconfigError("contains no certificate or key in PEM format", field=field)


def _check_file(path: object, base: str, field: str) -> bytes:
    resolved = Path(base) / str(path)
    try:
        return resolved.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{resolved}: {error.strerror or error}", field=field) from None


def _reason(error: Exception) -> str:
    return _one_line(str(error)) or type(error).__name__


def _one_line(text: str) -> str:
    """Return ``text`` as one line of printable characters, at most 300."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line if len(line) <= _MAX_OUTPUT else f"{line[:_MAX_OUTPUT]}..."
