"""What a check is: it gets the operator that is checked, and returns findings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cfo.api.reading import text
from cfo.config.model import OperatorConfiguration
from cfo.runtime import APIError, Client

_MAX_LINE: Final = 10_000

MANIFESTS: Final = "cfo manifests"
"""The command in remedies, to which the report adds the options that the installation needs."""

PIPED: Final = "| kubectl apply --server-side --force-conflicts -f -"
"""The command that applies manifests from a pipe.

What another field manager has changed, such as the replicas with ``kubectl scale``, would refuse them otherwise.
"""

APPLY: Final = f"apply the manifests: {MANIFESTS} {PIPED}"

CONFIGURATION: Final = "the ConfigMap"
"""Where remedies change settings; the report names the Helm release instead, to which the ConfigMap can belong."""

MIGRATION: Final = (
    "to replace the Go operator, follow docs/migration.md, section Upgrade from the Go operator: "
    "https://github.com/project-codeflare/cfo/blob/main/docs/migration.md#upgrade-from-the-go-operator"
)
"""The remedy if the Go operator is installed, whose image must not get the permissions of this one."""

MIGRATION_FROM_ODH: Final = (
    "to replace the Go operator of Open Data Hub or RHOAI, which would apply it again, follow docs/migration.md, "
    "section From Open Data Hub 2 or RHOAI 2: "
    "https://github.com/project-codeflare/cfo/blob/main/docs/migration.md#from-open-data-hub-2-or-rhoai-2"
)
"""The remedy if Open Data Hub has installed the Go operator."""

GO_OPERATOR: Final = "the Go operator has no settings for it"
"""Why the checks of settings that only this operator has are skipped."""

RESTART_OUTSIDE: Final = (
    "restart the operator outside the cluster with --webhook-url: it registers its webhooks itself, and the manifests "
    "would start a second operator"
)
"""The remedy if the operator runs outside the cluster."""

SERVED_ELSEWHERE: Final = (
    "this operator serves no webhooks (webhook.enabled is false): run cfo doctor --namespace with the namespace of the "
    f"one that does; if there is none, remove webhook.enabled from {CONFIGURATION}, and apply the manifests again"
)
"""The remedy for webhooks of an operator that serves none: if it is an additional one, its manifests contain none."""


class CheckStatus(StrEnum):
    """What a check found."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found; ``remedy`` is empty if there is nothing to do.

    ``is_needed`` is false for what is skipped because it does not have to be checked.
    """

    status: CheckStatus
    message: str
    remedy: str = ""
    is_needed: bool = True


def ok(message: str) -> Finding:
    """Return a finding that everything is as it should be."""
    return Finding(CheckStatus.OK, text(message, _MAX_LINE))


def warn(message: str, remedy: str) -> Finding:
    """Return a finding that something can fail, or soon will."""
    return Finding(CheckStatus.WARN, text(message, _MAX_LINE), text(remedy, _MAX_LINE))


def fail(message: str, remedy: str) -> Finding:
    """Return a finding that something does not work."""
    return Finding(CheckStatus.FAIL, text(message, _MAX_LINE), text(remedy, _MAX_LINE))


def skip(message: str, remedy: str = "") -> Finding:
    """Return a finding that something could not be checked."""
    return Finding(CheckStatus.SKIP, text(message, _MAX_LINE), text(remedy, _MAX_LINE))


def not_needed(message: str) -> Finding:
    """Return a finding that something does not have to be checked in this installation."""
    return Finding(CheckStatus.SKIP, text(message, _MAX_LINE), is_needed=False)


@dataclass(frozen=True, slots=True)
class Subject:
    """The operator that is checked: its namespace, and its configuration or why that was not read.

    ``tested`` are the versions of other components with which this version was tested, by name. ``is_embedded``:
    whether the API server is that of envtest, where ``cfo run --embedded`` simulates KubeRay. ``is_go``: whether the
    operator is the Go operator, which does not have all settings.
    """

    client: Client
    namespace: str
    configuration: OperatorConfiguration
    config_error: APIError | None
    tested: Mapping[str, str]
    is_embedded: bool = False
    is_go: bool = False


Check = Callable[[Subject], Awaitable[Iterable[Finding]]]
"""A check of a kind; it changes nothing, and raises the errors of :class:`cfo.runtime.Client`."""
