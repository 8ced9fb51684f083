"""AppWrappers, and Kueue, which admits them."""

from __future__ import annotations

from typing import Final

import structlog

from cfo.api.appwrapper.names import APPWRAPPER, FIELD_MANAGER, FINALIZER
from cfo.features.contract import Context, Feature, UserRole, api_rules, lazy, review_rules
from cfo.runtime import CRUD, READ, Object, Rule

_log = structlog.get_logger(__name__)


def _setup_webhooks(context: Context) -> None:
    from cfo.webhooks import appwrapper

    appwrapper.setup(context.manager, context.configuration.appwrapper, context.embedded_validators)


def _setup(context: Context) -> None:
    from cfo.controllers import appwrapper

    configuration = context.configuration.appwrapper
    if not configuration.require_admission_webhook:
        _log.warning(
            "AppWrapper validation is not required: while the webhook is missing, "
            "anyone who can create an AppWrapper gains this operator's permissions"
        )
    elif not context.serves_webhooks:
        _log.warning(
            "Not serving webhooks; new AppWrappers are not deployed unless another process serves them"
        )
    appwrapper.setup(context.manager, configuration)


def _crds() -> list[Object]:
    from cfo.api.appwrapper.models import appwrapper_crd

    return [appwrapper_crd()]


APPWRAPPERS: Final = Feature(
    name="appwrapper",
    title="AppWrappers",
    enabled=lambda configuration: configuration.appwrapper.enabled,
    kinds=(APPWRAPPER,),
    views=lazy("cfo.summaries.appwrapper:VIEWS"),
    crds=_crds,
    finalizers={APPWRAPPER: FINALIZER},
    base_rules=review_rules,
    rules=lazy("cfo.controllers.appwrapper:RULES"),
    probe=Rule(APPWRAPPER.group, "appwrappers/finalizers", "update"),
    user_roles=(
        UserRole(
            "appwrapper-editor-role",
            api_rules(CRUD, APPWRAPPER.group, "appwrappers"),
            ("admin", "edit"),
        ),
        UserRole("viewer-role", api_rules(READ, APPWRAPPER.group, "appwrappers"), ("view",)),
    ),
    field_managers=(FIELD_MANAGER,),
    setup_webhooks=_setup_webhooks,
    setup=_setup,
)

KUEUE: Final = Feature(
    name="kueue",
    title="Kueue",
    enabled=lambda configuration: configuration.appwrapper.uses_kueue,
    rules=lazy("cfo.controllers.appwrapper:KUEUE_RULES"),
    probe=Rule("kueue.x-k8s.io", "workloads/finalizers", "update"),
    checks={"kueue": lazy("cfo.checks.findings:kueue")},
)
