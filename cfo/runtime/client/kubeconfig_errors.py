"""Errors of kubeconfig files, and functions that read them and the files to which they refer.

Messages contain paths, names and what programs print on stderr, never the values of credentials.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from cfo.runtime.objects.yaml_loader import YAML_ERRORS, load_yaml
from cfo.runtime.process.printable import printable

_SECTIONS: Final = ("clusters", "contexts", "users")
_MAX_OUTPUT: Final = 300
_MAX_CHARACTERS: Final = 16 << 20
"""The size of a file that is parsed: about 3,000 contexts with embedded certificates."""


class CredentialError(Exception):
    """Raised if credentials cannot be loaded; the message gives the cause and contains no credentials."""


class KubeconfigError(CredentialError):
    """Raised for an invalid kubeconfig, and if the login that it describes fails.

    ``file``: the path; ``field``: the field, such as ``users[name=me].user.exec``; ``context``: the context in use.
    They are empty if they are unknown. ``problem``: what is wrong. ``hint``: what to do, empty if there is no advice.
    """

    def __init__(
        self, problem: str, *, file: str = "", context: str = "", field: str = "", hint: str = ""
    ) -> None:
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
        found = load_yaml(content)
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
    except YAML_ERRORS as error:
        raise invalid(f"not valid YAML: {one_line(str(error))}") from None
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


def read_pem(entry: Mapping[str, Any], name: str, base: str, field: str) -> bytes:
    """Return the PEM data in ``NAME-data``, or else in the file ``NAME``; empty if there is neither.

    Relative paths are relative to the directory ``base``, and ``field`` is the path of ``entry`` in the kubeconfig.
    Raises :class:`KubeconfigError` without file and context, like all functions below.
    """
    data = entry.get(f"{name}-data")
    if data:
        field = f"{field}.{name}-data"
        try:
            content = base64.b64decode("".join(str(data).split()), validate=True)
        except (binascii.Error, ValueError):
            raise KubeconfigError("is not valid base64", field=field) from None
    elif entry.get(name):
        field = f"{field}.{name}"
        content = read_file(entry[name], base, field)
    else:
        return b""
    if b"-----BEGIN " not in content:
        raise KubeconfigError("contains no certificate or key in PEM format", field=field)
    return content


def read_file(path: object, base: str, field: str) -> bytes:
    """Return the content of a file to which ``field`` refers."""
    resolved = Path(base) / str(path)
    try:
        return resolved.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{resolved}: {error.strerror or error}", field=field) from None


def reason(error: Exception) -> str:
    """Return the message of an exception as :func:`one_line`, or its type if it has none."""
    return one_line(str(error)) or type(error).__name__


def one_line(text: str) -> str:
    """Return ``text`` as one line of printable characters, at most 300."""
    return printable(" ".join(text.split()), _MAX_OUTPUT)
