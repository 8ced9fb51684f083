"""InferenceStacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.inferencestack.names import CLAIMS_FIELD_MANAGER, FIELD_MANAGER
from cfo.features.contract import Context, Kind, OptionalRole, UserRole, api_rules
from cfo.runtime import CRUD, READ, Object, Rule

if TYPE_CHECKING:
    from cfo.config.model import OperatorConfiguration
    from cfo.summaries.kind_view import KindView


class InferenceStacks(Kind, OptionalRole):
    """InferenceStacks, of every API group that has had them."""

    name = "inferencestack"
    title = "InferenceStacks"
    gvks = INFERENCE_STACKS
    field_managers = (FIELD_MANAGER, CLAIMS_FIELD_MANAGER)
    shared = True
    probes = (Rule("doublewordai.co", "inferencestacks/finalizers", "update"),)

    def is_enabled(self, configuration: OperatorConfiguration) -> bool:
        return configuration.inference_stack.enabled

    def views(self) -> tuple[KindView, ...]:
        from cfo.summaries.inferencestack import VIEWS

        return VIEWS

    def crds(self) -> list[Object]:
        from cfo.api.inferencestack.models import inference_stack_crds

        return inference_stack_crds()

    def base_rules(self, namespace: str) -> Sequence[Rule]:
        from cfo.controllers import local_queues
        from cfo.controllers.inferencestack import election_rules
        from cfo.webhooks import access

        return [*election_rules(namespace), *access.RULES, *local_queues.RULES]

    def rules(self) -> Sequence[Rule]:
        from cfo.controllers.inferencestack import RULES

        return RULES

    def user_roles(self) -> Sequence[UserRole]:
        return (
            UserRole(
                "inferencestack-editor-role",
                _user_rules(CRUD, scale=("get", "patch", "update")),
                ("admin", "edit"),
            ),
            UserRole(
                "viewer-role",
                _user_rules(READ, scale=("get",)),
                ("view",),
            ),
        )

    def setup_webhooks(self, context: Context) -> None:
        from cfo.webhooks import inferencestack

        webhook = inferencestack.setup(context.manager, context.configuration.inference_stack)
        for gvk in INFERENCE_STACKS:
            context.embedded_validators[gvk] = webhook.submission_errors

    def setup(self, context: Context) -> None:
        from cfo.controllers import inferencestack

        election = context.manager.options.leader_election
        configuration = context.configuration.inference_stack
        inferencestack.setup(context.manager, configuration, election, context.namespace)


def _user_rules(verbs: Sequence[str], scale: Sequence[str]) -> list[Rule]:
    """Return the rules of a user role, with the verbs for ``inferencestacks/scale``."""
    rules = []
    for gvk in INFERENCE_STACKS:
        rules += api_rules(verbs, gvk.group, "inferencestacks")
        rules.append(Rule(gvk.group, "inferencestacks/scale", scale))
    return rules
