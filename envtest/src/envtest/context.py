"""The context of one request, which is passed through the request pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envtest.registry import ResourceInfo

__all__ = ["RequestContext", "User"]


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class RequestContext:
    """One request for a resource.

    ``verb`` is the API verb (``create``, ``deletecollection``, ...), ``subresource`` is empty for the object itself.
    ``operation`` is the admission operation (CREATE, UPDATE, DELETE, CONNECT). ``field_validation`` is ``Strict``,
    ``Warn`` or ``Ignore``. ``warnings`` become Warning headers, ``audit`` annotations of the audit event.
    """

    user: User
    verb: str
    info: ResourceInfo
    namespace: str
    name: str
    subresource: str = ""
    operation: str = ""
    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"
    force: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    audit: dict[str, str] = field(default_factory=dict)
    moment: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def now(self) -> str:
        """The time of the request in the format of object metadata: RFC 3339, whole seconds, UTC."""
        return self.moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def warn(self, text: str) -> None:
        """Add a Warning header unless the response already has it."""
        if text and text not in self.warnings:
            self.warnings.append(text)
