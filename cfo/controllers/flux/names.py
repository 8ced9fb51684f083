"""Names that all Flux controllers share."""

from __future__ import annotations

from typing import Final

FIELD_MANAGER: Final = "codeflare-flux"
"""The field manager of the objects of MiniClusters, and of the statuses of all Flux kinds."""
