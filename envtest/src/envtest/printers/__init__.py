"""What tables of the built-in kinds show, kind by kind: columns, and the cells of a row.

Names, types and order of the columns are those of kube-apiserver's ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Final

from envtest.printers.columns import Printer
from envtest.printers.control import CONTROL
from envtest.printers.core import CORE
from envtest.printers.infrastructure import INFRASTRUCTURE
from envtest.printers.pods import POD
from envtest.printers.workloads import WORKLOADS

__all__ = ["PRINTERS"]

PRINTERS: Final[dict[tuple[str, str], Printer]] = {
    ("", "Pod"): POD,
    **CORE,
    **WORKLOADS,
    **CONTROL,
    **INFRASTRUCTURE,
}
"""By group and kind."""
