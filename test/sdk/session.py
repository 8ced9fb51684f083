"""What a data scientist does with CodeFlare SDK; runs in the SDK's interpreter and imports nothing of this project.

Usage: ``python session.py ACTION NAME NAMESPACE``, with ``KUBECONFIG`` in the environment. ACTION is ``create``,
``describe`` or ``delete``. The last line of the output is a JSON document.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from codeflare_sdk import Cluster, ClusterConfiguration, get_cluster, list_all_clusters


def create(name: str, namespace: str) -> dict[str, Any]:
    cluster = Cluster(
        ClusterConfiguration(name=name, namespace=namespace, num_workers=1, image="ray")
    )
    cluster.apply(
        timeout=1
    )  # without the webhook, the SDK finds no CA with a name of the new generation
    return {}


def describe(name: str, namespace: str) -> dict[str, Any]:
    listed = list_all_clusters(namespace, print_to_console=False)
    cluster = get_cluster(name, namespace)
    return {
        "listed": {item.name: item.dashboard for item in listed},
        "dashboard": cluster.cluster_dashboard_uri(),
    }


def delete(name: str, namespace: str) -> dict[str, Any]:
    get_cluster(name, namespace).down()
    return {"listed": [item.name for item in list_all_clusters(namespace, print_to_console=False)]}


if __name__ == "__main__":
    action, *arguments = sys.argv[1:]
    print(
        json.dumps({"create": create, "describe": describe, "delete": delete}[action](*arguments))
    )
