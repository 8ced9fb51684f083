"""``cfo run --dev --embedded``: the operator is restarted, the control plane and its objects stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.console.dev import operator_program
from cfo.console.dev.supervisor import Supervisor
from cfo.runtime import CONFIG_MAP, Client, NamespacedName, RESTMapper, Transport, load_config
from test.support.raycluster_environment import eventually

CLUSTER = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: kept, namespace: default}
spec: {headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: head, image: ray}]}}}}
"""


async def test_restart_of_the_operator_keeps_the_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    monkeypatch.setattr(operator_program, "_SOURCE", source)
    supervisors: list[Supervisor] = []
    new_supervisor = operator_program.new_supervisor

    def keep_supervisor(*arguments: Any) -> Supervisor:
        supervisors.append(new_supervisor(*arguments))
        return supervisors[0]

    monkeypatch.setattr(operator_program, "new_supervisor", keep_supervisor)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    kubeconfig = tmp_path / "kubeconfig"
    reports: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await operator_program.run_embedded(
                ["--log-level", "error"],
                key=NamespacedName("default", "codeflare-operator-config"),
                kubeconfig=kubeconfig,
                manifests=[tmp_path / "cluster.yaml"],
                report=reports.append,
                handle_signals=False,
            )

        tasks.start_soon(run)

        async def is_started() -> bool:
            return bool(reports)

        await eventually(is_started, "the control plane")
        async with Transport(await load_config(str(kubeconfig))) as transport:
            client = Client(transport, RESTMapper(transport), field_manager="test")

            async def cluster_uid() -> str | None:
                cluster = await client.get(RAY_CLUSTER, NamespacedName("default", "kept"))
                return cluster["metadata"]["uid"] if cluster else None

            uid = await eventually(cluster_uid, "the RayCluster, admitted by the webhooks")
            (source / "changed.py").write_text("x = 1\n")

            async def is_restarted() -> bool:
                return "changed.py changed, restarting" in reports

            await eventually(is_restarted, "the restart")
            assert await cluster_uid() == uid
            assert (
                await client.get(CONFIG_MAP, NamespacedName("default", "codeflare-operator-config"))
                is not None
            )
        supervisors[0].stop()
    assert not kubeconfig.exists()
