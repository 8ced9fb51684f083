"""What a data scientist does with the CodeFlare SDK. Runs in an environment with the SDK, without cfo.

``python scenario.py KUBECONFIG NAMESPACE [--appwrapper]`` creates a cluster, finds it, asks for its jobs and deletes
it, and prints what the SDK returned as JSON. The SDK prints its own messages to stdout, so the result goes to stderr.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from codeflare_sdk import (
    Cluster,
    ClusterConfiguration,
    KubeConfigFileAuthentication,
    generate_cert,
    get_cluster,
    list_all_clusters,
)

NAME = "sdk"


def configuration(namespace: str, *, appwrapper: bool) -> ClusterConfiguration:
    resources: dict[str, Any] = {
        f"{group}_{kind}_{bound}": amount
        for group in ("head", "worker")
        for kind, amount in (("cpu", "500m"), ("memory", 1))
        for bound in ("requests", "limits")
    }
    if appwrapper:  # later releases have no such option
        resources["appwrapper"] = True
    return ClusterConfiguration(
        name=NAME, namespace=namespace, num_workers=1, image="ray:test", **resources
    )


def run(kubeconfig: str, namespace: str, *, appwrapper: bool) -> dict[str, Any]:
    KubeConfigFileAuthentication(kube_config_path=kubeconfig).load_kube_config()
    cluster = Cluster(configuration(namespace, appwrapper=appwrapper))
    cluster.apply()
    cluster.wait_ready(timeout=240, dashboard_check=False)
    status, ready = cluster.status(print_to_console=False)
    found = get_cluster(NAME, namespace)
    generate_cert.generate_tls_cert(NAME, namespace)
    result = {
        "status": status.name,
        "ready": ready,
        "listed": [item.name for item in list_all_clusters(namespace, print_to_console=False)],
        "found": [found.config.name, found.config.num_workers],
        "dashboard": cluster.cluster_dashboard_uri(),
        "dashboard_ready": cluster.is_dashboard_ready(),
        "client": cluster.local_client_url(),
        "job_client": cluster.job_client.get_address(),
        "jobs": cluster.list_jobs(),
        "certificates": sorted({path.name for path in Path.cwd().rglob("*.crt")}),
    }
    cluster.down()
    return result


if __name__ == "__main__":
    print(
        json.dumps(run(sys.argv[1], sys.argv[2], appwrapper="--appwrapper" in sys.argv)),
        file=sys.stderr,
    )
