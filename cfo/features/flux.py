"""Flux: MiniClusters, FluxJobs and FluxSetups."""

from __future__ import annotations

from typing import Final

from cfo.api.flux.names import FIELD_MANAGER, FLUX_JOB, FLUX_SETUP, GROUP, MINICLUSTER
from cfo.features.contract import Context, Feature, UserRole, api_rules, lazy, review_rules
from cfo.runtime import CRUD, READ, Object, Rule


def _setup_webhooks(context: Context) -> None:
    from cfo.webhooks import flux

    configuration = context.configuration.flux
    validators = flux.setup(
        context.manager,
        (context.namespace, *configuration.admin_namespaces),
        check_permissions=configuration.user_rbac_admission_check,
        is_served=configuration.enabled,
    )
    context.embedded_validators.update(
        (kind, validator.submission_errors) for kind, validator in validators.items()
    )


def _setup(context: Context) -> None:
    from cfo.controllers import flux

    flux.setup(context.manager, context.configuration.flux, context.namespace)


def _crds() -> list[Object]:
    from cfo.api.flux.models.minicluster import minicluster_crd
    from cfo.api.flux.models.queue import fluxjob_crd, fluxsetup_crd

    return [fluxjob_crd(), fluxsetup_crd(), minicluster_crd()]


FLUX: Final = Feature(
    name="flux",
    title="Flux",
    enabled=lambda configuration: configuration.flux.enabled,
    kinds=(FLUX_JOB, MINICLUSTER, FLUX_SETUP),
    views=lazy("cfo.summaries.flux:VIEWS"),
    crds=_crds,
    base_rules=review_rules,
    rules=lazy("cfo.controllers.flux:RULES"),
    probe=Rule(GROUP, "miniclusters/finalizers", "update"),
    user_roles=(
        UserRole(
            "flux-editor-role",
            [
                *api_rules(CRUD, GROUP, "fluxjobs", "miniclusters"),
                Rule(GROUP, "miniclusters/scale", ("get", "patch", "update")),
            ],
            ("admin", "edit"),
        ),
        UserRole("flux-viewer-role", api_rules(READ, GROUP, "fluxjobs", "miniclusters"), ("view",)),
        # FluxSetups set quotas, so only cluster administrators can edit them
        UserRole("fluxsetup-viewer-role", api_rules(READ, GROUP, "fluxsetups"), ("view",)),
    ),
    field_managers=(FIELD_MANAGER,),
    setup_webhooks=_setup_webhooks,
    setup=_setup,
)
