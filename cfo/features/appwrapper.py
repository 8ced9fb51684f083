"""AppWrappers, and Kueue, which admits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import structlog

from cfo.api.appwrapper.names import APPWRAPPER, FIELD_MANAGER, FINALIZER, QUOTA_FINALIZER
from cfo.features.contract import Context, Kind, OptionalRole, UserRole, api_rules
from cfo.runtime import CRUD, GVK, READ, Object, Rule

if TYPE_CHECKING:
    from cfo.checks.findings import Check
    from cfo.config.model import OperatorConfiguration
    from cfo.summaries.kind_view import KindView

_log = structlog.get_logger(__name__)


class AppWrappers(Kind, OptionalRole):
    """AppWrappers. Their role allows to create pods, so it is installed only with them."""

    name = "appwrapper"
    title = "AppWrappers"
    gvks = (APPWRAPPER,)
    field_managers = (FIELD_MANAGER,)
    probes = (Rule(APPWRAPPER.group, "appwrappers/finalizers", "update"),)

    def is_enabled(self, configuration: OperatorConfiguration) -> bool:
        return configuration.appwrapper.enabled

    def views(self) -> tuple[KindView, ...]:
        from cfo.summaries.appwrapper import VIEWS

        return VIEWS

    def crds(self) -> list[Object]:
        from cfo.api.appwrapper.models import appwrapper_crd

        return [appwrapper_crd()]

    def base_rules(self, namespace: str) -> Sequence[Rule]:
        from cfo.controllers import local_queues
        from cfo.webhooks import access

        return [*access.RULES, *local_queues.RULES]

    def rules(self) -> Sequence[Rule]:
        from cfo.controllers.appwrapper import RULES

        return RULES

    def user_roles(self) -> Sequence[UserRole]:
        return (
            UserRole(
                "appwrapper-editor-role",
                api_rules(CRUD, APPWRAPPER.group, "appwrappers"),
                ("admin", "edit"),
            ),
            UserRole(
                "viewer-role",
                api_rules(READ, APPWRAPPER.group, "appwrappers"),
                ("view",),
            ),
        )

    def finalizers(self) -> Mapping[GVK, str]:
        from cfo.api.kueue import WORKLOADS

        return {APPWRAPPER: FINALIZER, **dict.fromkeys(WORKLOADS, QUOTA_FINALIZER)}

    def checks(self) -> Mapping[str, Check]:
        from cfo.checks import appwrapper

        return {"kueue": appwrapper.kueue}

    def setup_webhooks(self, context: Context) -> None:
        from cfo.webhooks import appwrapper

        appwrapper.setup(
            context.manager,
            context.configuration.appwrapper,
            context.embedded_validators,
            context.part,
        )

    def setup(self, context: Context) -> None:
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
        own_kinds: list[GVK] = []
        for kind in context.kinds:
            own_kinds += kind.gvks
        appwrapper.setup(context.manager, configuration, own_kinds)


class Kueue(OptionalRole):
    """Kueue, if it admits AppWrappers."""

    name = "kueue"
    title = "Kueue"
    probes = (Rule("kueue.x-k8s.io", "workloads/finalizers", "update"),)

    def is_enabled(self, configuration: OperatorConfiguration) -> bool:
        return configuration.appwrapper.uses_kueue

    def rules(self) -> Sequence[Rule]:
        from cfo.controllers.appwrapper import KUEUE_RULES

        return KUEUE_RULES
