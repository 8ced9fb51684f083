"""The Table columns of the built-in kinds, and functions that compute the cells of a row.

Names, types and order of the columns equal those in kube-apiserver's ``pkg/printers/internalversion``. Descriptions of
up to 60 characters are also identical; longer ones are field documentation in kube-apiserver and are summarized here.
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
"""Printers by group and kind."""
