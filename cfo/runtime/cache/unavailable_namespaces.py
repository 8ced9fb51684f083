"""The namespaces of a restricted cache that are left out, because a permission is missing there.

A kind that must not be listed in any namespace leaves none out: :attr:`.Informer.is_forbidden` is true then, as for an
informer of all namespaces. A kind that is listed in some of them leaves the others out, with all kinds: controllers
do not reconcile there, because what they could not list would look as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import anyio
import structlog

_log = structlog.get_logger(__name__)


class UnavailableNamespaces:
    """The namespaces in which an informer lacks a permission that it has in others; each is logged once."""

    def __init__(self) -> None:
        self._of_informers: dict[object, Mapping[str, str]] = {}
        self._rules: dict[str, dict[object, str]] = {}
        self._handlers: list[Callable[[str], None]] = []
        self._absent: dict[str, anyio.Event] = {}

    def __contains__(self, namespace: object) -> bool:
        """Return whether a namespace is left out."""
        return namespace in self._rules

    def __len__(self) -> int:
        """Return how many namespaces are left out."""
        return len(self._rules)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the namespaces that are left out."""
        return iter(tuple(self._rules))

    def missing_rule(self, namespace: str) -> str:
        """Return an RBAC rule that is missing in a namespace; empty if the namespace is not left out."""
        return next(iter(self._rules.get(namespace, {}).values()), "")

    def add_handler(self, handler: Callable[[str], None]) -> None:
        """Call ``handler`` with each namespace after it is left out, and after it is available again."""
        self._handlers.append(handler)

    def replace(self, informer: object, missing_rules: Mapping[str, str]) -> None:
        """Set the namespaces that ``informer`` leaves out, and the RBAC rule that is missing in each."""
        before = self._of_informers.pop(informer, {})
        if missing_rules:
            self._of_informers[informer] = missing_rules
        for namespace in before.keys() - missing_rules.keys():
            self._include(informer, namespace)
        for namespace in missing_rules.keys() - before.keys():
            self._leave_out(informer, namespace, missing_rules[namespace])

    def _leave_out(self, informer: object, namespace: str, missing_rule: str) -> None:
        rules = self._rules.setdefault(namespace, {})
        rules[informer] = missing_rule
        if len(rules) > 1:
            return
        _log.warning(
            "Permission denied in a namespace, leaving it out, will retry",
            namespace=namespace,
            missing_rule=missing_rule,
        )
        self._notify(namespace)

    def _include(self, informer: object, namespace: str) -> None:
        rules = self._rules[namespace]
        del rules[informer]
        if rules:
            return
        del self._rules[namespace]
        self.set_exists(namespace, exists=True)
        _log.info("Namespace is available again", namespace=namespace)
        self._notify(namespace)

    def _notify(self, namespace: str) -> None:
        for handler in tuple(self._handlers):
            handler(namespace)

    # Whether they exist.

    def set_exists(self, namespace: str, *, exists: bool) -> None:
        """Record whether a namespace exists, so that nothing is requested in one that does not."""
        if not exists:
            self._absent.setdefault(namespace, anyio.Event())
        elif namespace in self._absent:
            self._absent.pop(namespace).set()

    async def wait_until_exists(self, namespace: str) -> bool:
        """Wait while a namespace is known not to exist; return whether it was."""
        absent = self._absent.get(namespace)
        if absent is None:
            return False
        await absent.wait()
        return True
