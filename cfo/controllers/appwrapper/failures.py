"""Describes to users why pods failed, and why an AppWrapper is not retried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cfo.controllers.appwrapper.decision import LabeledPod
from cfo.controllers.appwrapper.pods import Pod, Termination
from cfo.controllers.appwrapper.settings import Settings
from cfo.controllers.appwrapper.status import Status

_MAX_NAMED: Final = 3
"""How many failed pods a message names, so that it remains readable and rarely changes."""

_MAX_REASON_LENGTH: Final = 64


def failed_pods_message(pods: Sequence[LabeledPod]) -> str:
    """Return the number of failed pods and how the first of them, by name, failed."""
    failed = sorted((labeled for labeled in pods if labeled.pod.phase == "Failed"), key=lambda labeled: labeled.key)
    named = [f"{labeled.key.name}{_cause(labeled.pod)}" for labeled in failed[:_MAX_NAMED]]
    more = [f"{len(failed) - _MAX_NAMED} more"] if len(failed) > _MAX_NAMED else []
    return f"{len(failed)} failed pods: {', '.join(named + more)}"


def _cause(pod: Pod) -> str:
    """Return why ``pod`` failed, in parentheses; empty if its status does not tell."""
    ends = [_end(end) for end in (*pod.init_terminated, *pod.terminated) if end.exit_code]
    causes = [pod.reason[:_MAX_REASON_LENGTH], *ends[:_MAX_NAMED]]
    shown = "; ".join(filter(None, causes))
    return f" ({shown})" if shown else ""


def _end(end: Termination) -> str:
    reason = "" if end.reason in ("", "Error") else f", {end.reason[:_MAX_REASON_LENGTH]}"
    return f"container {end.container}: exit code {end.exit_code}{reason}"


def retry_refusal(status: Status, settings: Settings, pods: Sequence[LabeledPod], *, terminal: bool) -> str:
    """Return why an AppWrapper is not retried; empty if it is.

    ``terminal``: a container of ``pods`` ended with an exit code that makes the failure terminal.
    """
    if terminal:
        codes = sorted(
            {
                code
                for labeled in pods
                if labeled.pod.phase == "Failed"
                for code in labeled.pod.exit_codes
                if settings.is_terminal(code)
            }
        )
        return f"exit code {', '.join(map(str, codes))} is not retried"
    if status.retries >= settings.retry_limit:
        return f"retry limit {settings.retry_limit} reached"
    return ""
