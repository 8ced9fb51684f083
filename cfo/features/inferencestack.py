"""InferenceStacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cfo.api.inferencestack.kinds import INFERENCE_STACKS
from cfo.api.inferencestack.names import CLAIMS_FIELD_MANAGER, FIELD_MANAGER
from cfo.features.contract import Context, Feature, UserRole, api_rules, lazy, review_rules
from cfo.runtime import CRUD, READ, Rule

_election_rules = lazy("cfo.controllers.inferencestack:election_rules")


def _setup_webhooks(context: Context) -> None:
    from cfo.webhooks import inferencestack

    webhook = inferencestack.setup(context.manager, context.configuration.inference_stack)
    context.embedded_validators.update(dict.fromkeys(INFERENCE_STACKS, webhook.submission_errors))


def _setup(context: Context) -> None:
    from cfo.controllers import inferencestack

    election = context.manager.options.leader_election
    inferencestack.setup(context.manager, context.configuration.inference_stack, election)


def _user_rules(verbs: Sequence[str], *scale: str) -> list[Rule]:
    return [
        rule
        for gvk in INFERENCE_STACKS
        for rule in (
            *api_rules(verbs, gvk.group, "inferencestacks"),
            Rule(gvk.group, "inferencestacks/scale", scale),
        )
    ]


STACKS: Final = Feature(
    name="inferencestack",
    title="InferenceStacks",
    enabled=lambda configuration: configuration.inference_stack.enabled,
    kinds=INFERENCE_STACKS,
    views=lazy("cfo.summaries.inferencestack:VIEWS"),
    shared=True,
    crds=lazy("cfo.api.inferencestack.models:inference_stack_crds"),
    base_rules=lambda namespace: [*_election_rules(namespace), *review_rules(namespace)],
    rules=lazy("cfo.controllers.inferencestack:RULES"),
    probe=Rule("doublewordai.co", "inferencestacks/finalizers", "update"),
    user_roles=(
        UserRole(
            "inferencestack-editor-role",
            _user_rules(CRUD, "get", "patch", "update"),
            ("admin", "edit"),
        ),
        UserRole("viewer-role", _user_rules(READ, "get"), ("view",)),
    ),
    field_managers=(FIELD_MANAGER, CLAIMS_FIELD_MANAGER),
    setup_webhooks=_setup_webhooks,
    setup=_setup,
)
