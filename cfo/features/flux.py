"""Flux: MiniClusters, FluxJobs and FluxSetups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cfo.api.flux.names import FIELD_MANAGER, FLUX_JOB, FLUX_SETUP, GROUP, MINICLUSTER
from cfo.features.contract import Context, Kind, OptionalRole, UserRole, api_rules
from cfo.runtime import CRUD, READ, Object, Rule

if TYPE_CHECKING:
    from cfo.config.model import OperatorConfiguration
    from cfo.summaries.kind_view import KindView


class Flux(Kind, OptionalRole):
    """The kinds of Flux."""

    name = "flux"
    title = "Flux"
    gvks = (FLUX_JOB, MINICLUSTER, FLUX_SETUP)
    field_managers = (FIELD_MANAGER,)
    probes = (Rule(GROUP, "miniclusters/finalizers", "update"),)

    def is_enabled(self, configuration: OperatorConfiguration) -> bool:
        return configuration.flux.enabled

    def views(self) -> tuple[KindView, ...]:
        from cfo.summaries.flux import VIEWS

        return VIEWS

    def crds(self) -> list[Object]:
        from cfo.api.flux.models.minicluster import minicluster_crd
        from cfo.api.flux.models.queue import fluxjob_crd, fluxsetup_crd

        return [fluxjob_crd(), fluxsetup_crd(), minicluster_crd()]

    def base_rules(self, namespace: str) -> Sequence[Rule]:
        from cfo.controllers import local_queues
        from cfo.webhooks import access

        return [*access.RULES, *local_queues.RULES]

    def rules(self) -> Sequence[Rule]:
        from cfo.controllers.flux import RULES

        return RULES

    def user_roles(self) -> Sequence[UserRole]:
        scale = Rule(GROUP, "miniclusters/scale", ("get", "patch", "update"))
        return (
            UserRole(
                "flux-editor-role",
                [*api_rules(CRUD, GROUP, "fluxjobs", "miniclusters"), scale],
                ("admin", "edit"),
            ),
            UserRole(
                "flux-viewer-role",
                api_rules(READ, GROUP, "fluxjobs", "miniclusters"),
                ("view",),
            ),
            # FluxSetups set quotas, so only cluster administrators can edit them
            UserRole(
                "fluxsetup-viewer-role",
                api_rules(READ, GROUP, "fluxsetups"),
                ("view",),
            ),
        )

    def setup_webhooks(self, context: Context) -> None:
        from cfo.webhooks import flux

        configuration = context.configuration.flux
        validators = flux.setup(
            context.manager,
            (context.namespace, *configuration.admin_namespaces),
            check_permissions=configuration.user_rbac_admission_check,
            is_served=configuration.enabled,
            part=context.part,
        )
        for gvk, validator in validators.items():
            context.embedded_validators[gvk] = validator.submission_errors

    def setup(self, context: Context) -> None:
        from cfo.controllers import flux

        flux.setup(context.manager, context.configuration.flux, context.namespace)
