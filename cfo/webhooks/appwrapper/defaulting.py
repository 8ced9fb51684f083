"""Sets the labels of an AppWrapper when it is created."""

from __future__ import annotations

import re
from typing import Final

from cfo.api.appwrapper import QUEUE_NAME_LABEL, USER_ID_LABEL, USER_LABEL
from cfo.runtime import Object
from cfo.runtime.webhook import UserInfo

__all__ = ["MAX_LABEL_VALUE", "sanitized_label", "set_labels"]

MAX_LABEL_VALUE: Final = 63

_INVALID_CHARACTER = re.compile(r"[^-_.A-Za-z0-9]")


def set_labels(appwrapper: Object, user: UserInfo, default_queue_name: str) -> None:
    """Set the labels of the creator, replacing existing ones, and the label of the default queue if there is none.

    An existing but empty queue label is kept: it means that the AppWrapper must not be queued.
    """
    metadata = appwrapper["metadata"] = appwrapper.get("metadata") or {}
    labels = metadata["labels"] = metadata.get("labels") or {}
    if default_queue_name:
        labels.setdefault(QUEUE_NAME_LABEL, default_queue_name)
    labels[USER_LABEL] = sanitized_label(user.username)
    labels[USER_ID_LABEL] = sanitized_label(user.uid)


def sanitized_label(text: str) -> str:
    """Convert ``text`` to a valid label value: its first 63 bytes, with ``_`` for each invalid character."""
    cut = text.encode()[:MAX_LABEL_VALUE].decode(errors="replace")
    return _INVALID_CHARACTER.sub("_", cut).strip("-_.")
