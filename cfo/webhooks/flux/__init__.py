"""Admission of MiniClusters, FluxJobs and FluxSetups: reject objects that cannot run.

:mod:`cfo.api.flux.validation` has the rules, which the controllers apply as well. :mod:`.webhook` has the validators
that API servers call, and ``setup()``.
"""

from cfo.webhooks.flux.webhook import FluxValidator, setup

__all__ = ["FluxValidator", "setup"]
