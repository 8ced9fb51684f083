"""The size to which the cache is limited for kinds that users can create as well."""

from __future__ import annotations

from typing import Final

MAX_CACHED_BYTES: Final = 64 << 10
"""The maximum size of a cached object: children have a few kilobytes.

A larger object looks like one that does not exist. That is safe, because the first write of a child can only create.
"""
