"""How patient to be with one AppWrapper: the configuration, as its annotations change it.

A period is a Go duration; a negative one counts as none, and none is longer than ``gracePeriodCeiling``. What cannot be
read is as if it were not there, and :attr:`Settings.problems` says so in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from cfo.config import FaultToleranceConfiguration
from cfo.config.durations import format_duration, parse_duration
from cfo.controllers.appwrapper.names import ANNOTATION_PREFIX
from cfo.runtime.objects import annotations_of

__all__ = ["DELETION_ON_FAILURE", "Settings"]

DELETION_ON_FAILURE: Final = f"{ANNOTATION_PREFIX}deletionOnFailureGracePeriodDuration"
"""The annotation that keeps what a failed AppWrapper leaves for a while."""

_NONE: Final = timedelta(0)
_SHOWN: Final = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """The periods, limits and exit codes of one AppWrapper."""

    admission_grace: timedelta
    warmup_grace: timedelta
    failure_grace: timedelta
    retry_pause: timedelta
    retry_limit: int
    forceful_deletion_grace: timedelta
    deletion_on_failure_grace: timedelta
    success_ttl: timedelta
    terminal_exit_codes: frozenset[int] = frozenset()
    retryable_exit_codes: frozenset[int] = frozenset()
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, wrapper: Mapping[str, Any], config: FaultToleranceConfiguration) -> Settings:
        """The settings of ``wrapper`` on top of ``config``."""
        read = _Reader(annotations_of(wrapper), config.grace_period_ceiling)
        return cls(
            admission_grace=read.period("admissionGracePeriodDuration", config.admission_grace_period),
            warmup_grace=read.period("warmupGracePeriodDuration", config.warmup_grace_period),
            failure_grace=read.period("failureGracePeriodDuration", config.failure_grace_period),
            retry_pause=read.period("retryPausePeriodDuration", config.reset_pause),
            retry_limit=read.number("retryLimit", config.retry_limit),
            forceful_deletion_grace=read.period("forcefulDeletionGracePeriodDuration", config.deletion_grace_period),
            deletion_on_failure_grace=read.period("deletionOnFailureGracePeriodDuration", _NONE),
            success_ttl=read.time_to_live("successTTLDuration", config.success_ttl_ceiling),
            terminal_exit_codes=read.codes("terminalExitCodes"),
            retryable_exit_codes=read.codes("retryableExitCodes"),
            problems=tuple(read.problems),
        )

    def is_terminal(self, exit_code: int) -> bool:
        """Whether a container that ended with ``exit_code`` makes a retry pointless."""
        if exit_code == 0:
            return False
        if exit_code in self.terminal_exit_codes:
            return True
        return bool(self.retryable_exit_codes) and exit_code not in self.retryable_exit_codes


class _Reader:
    """Reads annotations, and notes what is wrong with them."""

    def __init__(self, annotations: Mapping[str, str], ceiling: timedelta) -> None:
        self._annotations = annotations
        self._ceiling = ceiling
        self.problems: list[str] = []

    def period(self, name: str, default: timedelta) -> timedelta:
        given = self._duration(name, f"{format_duration(default)} is used")
        return min(max(default if given is None else given, _NONE), self._ceiling)

    def time_to_live(self, name: str, ceiling: timedelta) -> timedelta:
        given = self._duration(name, f"{format_duration(ceiling)} is used")
        return given if given is not None and _NONE < given < ceiling else ceiling

    def number(self, name: str, default: int) -> int:
        text = self._text(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            self._complain(name, text, f"must be an integer; {default} is used")
            return default

    def codes(self, name: str) -> frozenset[int]:
        text = self._text(name)
        codes: set[int] = set()
        for part in (text or "").split(",") if text else ():
            try:
                codes.add(int(part))
            except ValueError:
                self._complain(name, text or "", f"must be exit codes such as 3,137; {part.strip()!r} is left out")
        return frozenset(codes)

    def _duration(self, name: str, instead: str) -> timedelta | None:
        text = self._text(name)
        if text is None:
            return None
        try:
            return parse_duration(text.strip())
        except (ValueError, OverflowError):
            self._complain(name, text, f"must be a duration such as 90s or 5m; {instead}")
            return None

    def _text(self, name: str) -> str | None:
        return self._annotations.get(ANNOTATION_PREFIX + name)

    def _complain(self, name: str, value: str, what: str) -> None:
        shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
        self.problems.append(f"annotation {ANNOTATION_PREFIX}{name}: {shown!r}: {what}")
