"""The labels that an AppWrapper gets when it is created."""

from __future__ import annotations

import re
from typing import Final

from cfo.api.appwrapper import QUEUE_NAME_LABEL, USER_ID_LABEL, USER_LABEL
from cfo.runtime.objects import Object
from cfo.runtime.webhook.admission import UserInfo

__all__ = ["MAX_LABEL_VALUE", "sanitized_label", "set_labels"]

MAX_LABEL_VALUE: Final = 63

_FOREIGN = re.compile(r"[^-_.A-Za-z0-9]")


def set_labels(appwrapper: Object, user: UserInfo, default_queue_name: str) -> None:
    """Labels ``appwrapper`` with its creator, whatever it says itself, and with a queue if it says none.

    A queue label that is there but empty stays: it says that no queue is wanted.
    """
    metadata = appwrapper.setdefault("metadata", {})
    labels = metadata["labels"] = metadata.get("labels") or {}
    if default_queue_name:
        labels.setdefault(QUEUE_NAME_LABEL, default_queue_name)
    labels[USER_LABEL] = sanitized_label(user.username)
    labels[USER_ID_LABEL] = sanitized_label(user.uid)


def sanitized_label(text: str) -> str:
    """``text`` as the value of a label: its first 63 bytes, each character that is not allowed as ``_``."""
    cut = text.encode()[:MAX_LABEL_VALUE].decode(errors="replace")
    return _FOREIGN.sub("_", cut).strip("-_.")
