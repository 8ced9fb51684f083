"""Which object was created for a component, as the status of the component records it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from cfo.api.appwrapper.names import RESOURCES_DEPLOYED
from cfo.api.reading import elements, mapping

CREATED: Final = "ComponentCreatedSuccessfully"
"""The reason of a component's condition if its object was created; the message has the uid."""
DELETED: Final = "ComponentDeleted"
"""The reason of a component's condition if its object was deleted; the message still has the uid.

The Go operator spells it ``CompononetDeleted``.
"""

_UID: Final = re.compile(r"[0-9a-fA-F-]{1,64}")
_UID_SEPARATOR: Final = ", uid "


def identity_message(display_name: str, uid: str) -> str:
    """Return the condition message that identifies the created object, for :func:`recorded_uid`."""
    return f"{display_name}{_UID_SEPARATOR}{uid}"


def recorded_uid(recorded: Mapping[str, Any]) -> str:
    """Return the uid of the object that was created for a component with this status, also if it was deleted.

    Empty if none was created.
    """
    for condition in map(mapping, elements(recorded.get("conditions"))):
        if condition.get("type") != RESOURCES_DEPLOYED:
            continue
        if condition.get("reason") not in (CREATED, DELETED):
            return ""  # the message may contain arbitrary text, such as an API server error
        uid = str(condition.get("message") or "").rpartition(_UID_SEPARATOR)[2]
        return uid if _UID.fullmatch(uid) else ""
    return ""
