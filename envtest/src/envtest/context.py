"""What is known of one request while it goes through the pipeline."""

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
    """Who asks."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class RequestContext:
    """One request for a resource.

    ``verb`` is the API verb (``create``, ``deletecollection``, ...), ``subresource`` empty for the object itself.
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
        """The request's time as objects carry it: RFC 3339, whole seconds, UTC."""
        return self.moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def warn(self, text: str) -> None:
        """Adds a Warning header, once."""
        if text and text not in self.warnings:
            self.warnings.append(text)
