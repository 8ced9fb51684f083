"""An operator for the InferenceStacks of one major version only, which OLM installs.

Several of them run in one cluster, so all names contain the major version. They are the same for all versions of a
major version, so that an update replaces the pods of one Deployment, which share one Lease; two operators of one major
version never reconcile at the same time. The CRDs and the roles of users are shared by all operators, and therefore not
part of them: :func:`shared_objects`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import yaml
from msgspec.structs import replace

from cfo import operator
from cfo.config.model import OperatorConfiguration
from cfo.config.watch import configuration_watch_rules
from cfo.features.inferencestack import InferenceStacks
from cfo.manifests import workload
from cfo.manifests.rbac import aggregated
from cfo.runtime import EVENT_RULES, Object, Rule, leader_election_rules
from cfo.runtime.controller import AVAILABILITY_RULES
from cfo.webhooks import access

_STACKS: Final = InferenceStacks()

STACK_OPERATOR: Final = "inference-stack-operator"
"""The name of the operator, and of its OLM package: the original's."""

_LABEL: Final = "app.kubernetes.io/name"
_INSTANCE: Final = "app.kubernetes.io/instance"


class StackOperator(NamedTuple):
    """The operator of one major version: ``v2``."""

    version: str

    @property
    def name(self) -> str:
        """The name of the Deployment, ServiceAccount, Lease and ConfigMap."""
        return f"{STACK_OPERATOR}-{self.version}"

    @property
    def manager_lease(self) -> str:
        """The name of the Lease of the replicas; the controllers of stacks also hold the Lease ``name``."""
        return f"{self.name}-manager"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all objects, and the selector of the Deployment."""
        return {_LABEL: STACK_OPERATOR, _INSTANCE: self.name}

    def configuration(self) -> dict[str, Any]:
        """Return the configuration: only InferenceStacks of this major version, and Leases of its own."""
        return {
            "inferenceStack": {"enabled": True, "operatorVersion": self.version},
            "kuberay": {"enabled": False},
            "leaderElection": {"leaderElect": True, "resourceName": self.manager_lease},
        }

    def config_map(self) -> Object:
        """Return the ConfigMap with :meth:`configuration`."""
        document = yaml.safe_dump(self.configuration(), sort_keys=False)
        return self._labelled(
            {"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.yaml": document}}, self.name
        )

    def deployment(self, image: str) -> Object:
        """Return the Deployment, which reads the webhooks' certificate from the directory where OLM mounts it."""
        found = self._labelled(workload.deployment("", image), self.name)
        spec = found["spec"]
        spec["selector"]["matchLabels"] = self.labels
        template = spec["template"]
        template["metadata"]["labels"] = self.labels
        pod = template["spec"]
        pod["serviceAccountName"] = self.name
        for constraint in pod["topologySpreadConstraints"]:
            constraint["labelSelector"]["matchLabels"] = self.labels
        directory = OperatorConfiguration().webhook.cert_dir
        pod["containers"][0]["args"] = [f"--config={self.name}", f"--webhook-cert-dir={directory}"]
        return found

    def metrics_service(self) -> Object:
        """Return the Service through which Prometheus scrapes the metrics."""
        service = self._labelled(workload.metrics_service(""), f"{self.name}-metrics")
        service["spec"]["selector"] = self.labels
        return service

    def disruption_budget(self) -> Object:
        """Return the PodDisruptionBudget."""
        budget = self._labelled(workload.disruption_budget(""), self.name)
        budget["spec"]["selector"]["matchLabels"] = self.labels
        return budget

    def rules(self, namespace: str) -> list[Rule]:
        """Return the RBAC rules of an operator in ``namespace``; OLM manages the certificate and the webhooks."""
        return [
            Rule("", "configmaps", ("get",), [self.name], namespace=namespace),
            *configuration_watch_rules(self.name, namespace),
            *AVAILABILITY_RULES,
            *EVENT_RULES,
            *leader_election_rules(self.name, namespace),
            *leader_election_rules(self.manager_lease, namespace),
            *access.RULES,
            *_STACKS.rules(),
        ]

    def webhooks(self, namespace: str) -> list[Object]:
        """Return the validating webhooks, whose names contain the version: OLM creates a configuration for each."""
        configuration = OperatorConfiguration.from_document(self.configuration())
        groups = {gvk.group for gvk in _STACKS.gvks}
        webhooks: list[Object] = []
        for found in operator.webhook_configurations(namespace, configuration):
            for webhook in found["webhooks"]:
                if any(groups.intersection(rule["apiGroups"]) for rule in webhook["rules"]):
                    webhooks.append({**webhook, "name": f"{self.version}.{webhook['name']}"})
        return webhooks

    def _labelled(self, obj: Object, name: str) -> Object:
        return {**obj, "metadata": {"name": name, "labels": self.labels}}


def shared_objects() -> list[Object]:
    """Return what the operators of all major versions share: the CRDs, and roles for users of InferenceStacks."""
    labels = {_LABEL: STACK_OPERATOR}
    roles = [
        replace(role, name=role.name.removeprefix(f"{_STACKS.name}-"))
        for role in _STACKS.user_roles()
    ]
    objects = [*_STACKS.crds(), *(aggregated(role, STACK_OPERATOR) for role in roles)]
    for obj in objects:
        obj["metadata"]["labels"] = {
            **{
                key: value
                for key, value in obj["metadata"].get("labels", {}).items()
                if "aggregate" in key
            },
            **labels,
        }
    return objects
