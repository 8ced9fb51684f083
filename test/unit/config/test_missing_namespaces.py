"""Namespaces that a configuration names and that do not exist."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cfo.config.missing_namespaces import missing_namespaces
from cfo.config.model import OperatorConfiguration
from cfo.runtime import GVK, Client, NamespacedName, Object
from cfo.runtime.client import Forbidden


class NamespaceClient:
    """A client of a cluster with the namespace ``team``, who is not allowed to read ``secret``."""

    def __init__(self) -> None:
        self.reads: list[str] = []

    async def get(self, kind: GVK, key: NamespacedName, *, live: bool) -> Object | None:
        self.reads.append(key.name)
        if key.name == "secret":
            raise Forbidden(403)
        return {} if key.name == "team" else None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"watchNamespaces": ["team", "secret"]}, {}),
        ({"watchNamespaces": ["tema", "team", "b"]}, {"watchNamespaces": ["tema", "b"]}),
        (
            {
                "watchNamespaces": ["a"],
                "kuberay": {"operatorNamespaces": ["a"], "ingress": {"namespaces": ["b", "team"]}},
                "flux": {"enabled": True, "adminNamespaces": ["c"]},
                "webhook": {"controllerNamespaces": ["kueue"]},
            },
            {
                "watchNamespaces": ["a"],
                "kuberay.operatorNamespaces": ["a"],
                "kuberay.ingress.namespaces": ["b"],
                "flux.adminNamespaces": ["c"],
                "webhook.controllerNamespaces": ["kueue"],
            },
        ),
        ({"kuberay": {"enabled": False, "operatorNamespaces": ["a"]}}, {}),
        ({"flux": {"adminNamespaces": ["c"]}}, {}),
    ],
)
async def test_namespaces_of_enabled_features_that_do_not_exist_are_found(
    settings: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    client = NamespaceClient()
    configuration = OperatorConfiguration.from_document(settings)
    assert await missing_namespaces(cast("Client", client), configuration) == expected
    assert len(client.reads) == len(set(client.reads)), "each is read once"


async def test_reads_are_limited() -> None:
    client = NamespaceClient()
    configuration = OperatorConfiguration(watch_namespaces=[f"n{number}" for number in range(600)])
    found = await missing_namespaces(cast("Client", client), configuration)
    assert len(client.reads) == len(found["watchNamespaces"]) == 500
