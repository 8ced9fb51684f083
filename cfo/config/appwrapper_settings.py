"""Timeouts and retry limits of an AppWrapper: defaults from the configuration, overridden by annotations.

Periods are Go durations; negative values count as zero, and ``gracePeriodCeiling`` is the maximum. An invalid value, or
an invalid item in a list of exit codes, is ignored, and so is an unknown annotation; :attr:`Settings.problems` has
the first ten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec

from cfo.api.appwrapper.names import ANNOTATION_PREFIX
from cfo.api.builtin_types import nearest_name
from cfo.config.appwrapper import FaultToleranceConfiguration
from cfo.runtime import annotations_of
from cfo.runtime.objects import (
    MAX_ITEMS,
    format_duration,
    parse_duration,
    parse_integer,
    split_list,
)
from cfo.runtime.process import printable

DELETION_ON_FAILURE: Final = f"{ANNOTATION_PREFIX}deletionOnFailureGracePeriodDuration"
"""The annotation that delays the deletion of a failed AppWrapper's resources."""

FORCEFUL_DELETION: Final = f"{ANNOTATION_PREFIX}forcefulDeletionGracePeriodDuration"
"""The annotation that limits how long a deletion may take before pods are deleted by force."""

_T = TypeVar("_T")

_ZERO: Final = timedelta(0)
_DURATION_RULE: Final = "must be a duration such as 90s or 5m"
_MAX_SHOWN_CHARACTERS: Final = 64
_MAX_SHOWN_KEY: Final = 128
_MAX_PROBLEMS: Final = 10


class Settings(msgspec.Struct, frozen=True):
    """The periods, limits and exit codes of one AppWrapper.

    ``grace_period_ceiling`` and ``unused_quota_limit`` are the administrator's; its annotations set the others.
    """

    admission_grace: timedelta
    warmup_grace: timedelta
    failure_grace: timedelta
    retry_pause: timedelta
    retry_limit: int
    forceful_deletion_grace: timedelta
    deletion_on_failure_grace: timedelta
    success_ttl: timedelta
    grace_period_ceiling: timedelta
    unused_quota_limit: timedelta
    terminal_exit_codes: frozenset[int] = frozenset()
    retryable_exit_codes: frozenset[int] = frozenset()
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, wrapper: Mapping[str, Any], config: FaultToleranceConfiguration) -> Settings:
        """Return the settings of ``wrapper``: its annotations, with the defaults from ``config``."""
        read = _AnnotationReader(annotations_of(wrapper), config.grace_period_ceiling)
        return cls(
            admission_grace=read.period(
                "admissionGracePeriodDuration", config.admission_grace_period
            ),
            warmup_grace=read.period("warmupGracePeriodDuration", config.warmup_grace_period),
            failure_grace=read.period("failureGracePeriodDuration", config.failure_grace_period),
            retry_pause=read.period("retryPausePeriodDuration", config.reset_pause),
            retry_limit=read.number("retryLimit", config.retry_limit),
            forceful_deletion_grace=read.period(
                "forcefulDeletionGracePeriodDuration", config.deletion_grace_period
            ),
            deletion_on_failure_grace=read.period("deletionOnFailureGracePeriodDuration", _ZERO),
            success_ttl=read.time_to_live("successTTLDuration", config.success_ttl_ceiling),
            grace_period_ceiling=config.grace_period_ceiling,
            unused_quota_limit=min(config.unused_quota_limit, config.grace_period_ceiling),
            terminal_exit_codes=read.codes("terminalExitCodes"),
            retryable_exit_codes=read.codes("retryableExitCodes"),
            problems=read.all_problems(),
        )

    def is_terminal(self, exit_code: int) -> bool:
        """Return whether the container exit code ``exit_code`` makes a failure terminal."""
        if exit_code == 0:
            return False
        if exit_code in self.terminal_exit_codes:
            return True
        return bool(self.retryable_exit_codes) and exit_code not in self.retryable_exit_codes


_DOMAIN: Final = "codeflare"
"""What prefixes contain with which users may have meant a setting: its name with another domain is another tool's."""


class _AnnotationReader:
    """Parses annotations, and collects problems with their values."""

    def __init__(self, annotations: Mapping[str, str], ceiling: timedelta) -> None:
        self._annotations = annotations
        self._ceiling = ceiling
        self._known: set[str] = set()
        self._problems: list[str] = []

    def all_problems(self) -> tuple[str, ...]:
        """Return the problems; annotations that look like settings and were not read until now are unknown."""
        names = [known.removeprefix(ANNOTATION_PREFIX) for known in sorted(self._known)]
        by_lower_name = {name.lower(): name for name in names}
        for key in self._annotations:
            if len(self._problems) == _MAX_PROBLEMS:
                break
            if key in self._known:
                continue
            prefix, _, name = key.rpartition("/")
            if key.startswith(ANNOTATION_PREFIX):
                nearest = nearest_name(key.removeprefix(ANNOTATION_PREFIX), names)
            elif not prefix or _DOMAIN in prefix.lower():
                known_name = by_lower_name.get(name.lower(), "")
                if not known_name:
                    continue
                nearest = f"{ANNOTATION_PREFIX}{known_name}"
            else:
                continue
            shown = printable(key, _MAX_SHOWN_KEY)
            suggestion = f"; did you mean {nearest}?" if nearest else ""
            self._problems.append(f"annotation {shown}: unknown, so it is ignored{suggestion}")
        return tuple(self._problems)

    def period(self, name: str, default: timedelta) -> timedelta:
        duration = self._parsed(name, _duration, _DURATION_RULE, format_duration(default))
        if duration is None:
            duration = default
        elif duration < _ZERO:
            self._report(name, format_duration(duration), "is negative; 0s is used")
        elif duration > self._ceiling:
            ceiling = format_duration(self._ceiling)
            self._report(
                name, format_duration(duration), f"must be at most {ceiling}, which is used"
            )
        return min(max(duration, _ZERO), self._ceiling)

    def time_to_live(self, name: str, ceiling: timedelta) -> timedelta:
        duration = self._parsed(name, _duration, _DURATION_RULE, format_duration(ceiling))
        return duration if duration is not None and _ZERO < duration < ceiling else ceiling

    def number(self, name: str, default: int) -> int:
        number = self._parsed(name, parse_integer, "must be an integer", default)
        if number is None:
            return default
        if number < 0:
            self._report(name, str(number), "is negative; 0 is used")
        return max(number, 0)

    def codes(self, name: str) -> frozenset[int]:
        text = self._value(name) or ""
        codes: set[int] = set()
        parts, has_more = split_list(text)
        for part in parts if text else ():
            try:
                codes.add(parse_integer(part))
            except ValueError:
                shown = printable(part.strip(), _MAX_SHOWN_CHARACTERS)
                self._report(name, text, f"must be exit codes such as 3,137; '{shown}' is ignored")
        if has_more:
            self._report(name, text, f"only the first {MAX_ITEMS} exit codes are used")
        return frozenset(codes)

    def _parsed(
        self, name: str, parse: Callable[[str], _T], rule: str, default: object
    ) -> _T | None:
        text = self._value(name)
        try:
            return parse(text) if text is not None else None
        except ValueError:
            self._report(name, text or "", f"{rule}; {default} is used")
            return None

    def _value(self, name: str) -> str | None:
        key = ANNOTATION_PREFIX + name
        self._known.add(key)
        return self._annotations.get(key)

    def _report(self, name: str, value: str, problem: str) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            shown = printable(value, _MAX_SHOWN_CHARACTERS)
            self._problems.append(f"annotation {ANNOTATION_PREFIX}{name}: '{shown}': {problem}")


def _duration(text: str) -> timedelta:
    return parse_duration(text.strip())
