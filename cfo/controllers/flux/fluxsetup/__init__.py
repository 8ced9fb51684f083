"""The controller of FluxSetups: decides which FluxJobs get quota (:mod:`cfo.controllers.flux.queue`)."""

from cfo.controllers.flux.fluxsetup.default_setup import create_default
from cfo.controllers.flux.fluxsetup.reconciler import FluxSetupReconciler, setup
from cfo.runtime import Rule

__all__ = ["create_default", "rules", "setup"]


def rules() -> list[Rule]:
    """Return the RBAC rules of the controller."""
    return [*FluxSetupReconciler.rules]
