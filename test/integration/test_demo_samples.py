"""The samples of ``make run`` show what a person meets: authentication, a queue, and failures with their reasons."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from pathlib import Path

import anyio
import yaml

from cfo.api.inferencestack.kinds import PERSISTENT_VOLUME_CLAIM
from cfo.console.demo.run import CONFIGURATION, control_plane
from cfo.features import all_views
from cfo.runtime import (
    NAMESPACE,
    Client,
    NamespacedName,
    Object,
    RESTMapper,
    Transport,
    gvk_of,
    key_of,
)
from cfo.runtime.objects import new_object
from test.support.preloaded import PreloadedCommand

ROOT = Path(__file__).parents[2]

OWN_OBJECTS = """\
apiVersion: flux-framework.org/v1alpha1
kind: FluxSetup
metadata: {name: team}
spec: {max-size: 4, mini-cluster: {size: 1}}
---
apiVersion: flux-framework.org/v1alpha1
kind: FluxJob
metadata: {name: mine}
spec: {size: 2, command: sleep 1}
---
apiVersion: workload.codeflare.dev/v1beta2
kind: AppWrapper
metadata: {name: report}
spec:
  components:
    - template:
        apiVersion: batch/v1
        kind: Job
        metadata: {name: report}
        spec:
          template:
            spec:
              restartPolicy: Never
              containers: [{name: report, image: "report:latest", command: [sleep, "1"]}]
"""


async def settle(directory: Path, manifests: str) -> str:
    """Run the operator with ``manifests`` in ``directory`` until they have settled, and return its standard output."""
    output = directory / "output"
    with output.open("w") as stdout:
        process = await PreloadedCommand.start(
            "run",
            "--embedded",
            "--until-settled",
            "100",
            "--apply",
            manifests,
            env=os.environ,
            cwd=directory,
            stdout=stdout.fileno(),
        )
        log = (await process.stderr.read()).decode()
        code = await process.wait()
    assert code == 0, output.read_text() + log
    return output.read_text()


async def test_jobs_of_users_end_without_annotations(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN_OBJECTS)
    output = await settle(tmp_path, "own.yaml")
    assert "FluxJob default/mine is JobFinished: The command succeeded." in output
    assert "AppWrapper default/report is Succeeded" in output


def complete_manifests(page: Path) -> Iterator[Object]:
    """Yield the objects of the kinds that people see in the examples on a page."""
    kinds = {view.gvk for view in all_views()}
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        for document in yaml.safe_load_all(block):
            if isinstance(document, dict) and gvk_of(document) in kinds:
                yield document


async def test_examples_of_the_pages_for_users_settle_as_they_are(tmp_path: Path) -> None:
    pages = ("appwrapper", "flux", "inferencestack", "inferencestack-public-images", "raycluster")
    found = [obj for page in pages for obj in complete_manifests(ROOT / "docs" / f"{page}.md")]
    kinds = {obj["kind"] for obj in found}
    assert kinds == {
        "AppWrapper",
        "FluxJob",
        "FluxSetup",
        "InferenceStack",
        "RayCluster",
        "RayJob",
    }
    namespaces = {obj["metadata"].get("namespace", "default") for obj in found}
    found += [new_object(NAMESPACE, name) for name in sorted(namespaces - {"default"})]
    (tmp_path / "examples.yaml").write_text(yaml.safe_dump_all(found))
    output = await settle(tmp_path, "examples.yaml")
    _, _, table = output.partition("All applied workloads have settled")
    assert re.search(r"RayCluster default/train-\w{5} is ready", output), "that of the RayJob"
    assert "AppWrapper" in table
    assert "    ->" not in table, table


async def test_role_edit_contains_the_roles_of_the_operator(tmp_path: Path) -> None:
    config_map = NamespacedName("default", "codeflare-operator-config")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "eve",
            "resourceAttributes": {
                "namespace": "default",
                "verb": "create",
                "group": "flux-framework.org",
                "resource": "fluxjobs",
            },
        },
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "eve", "namespace": "default"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "edit",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
    }
    async with (
        control_plane(
            config_map, {"config.yaml": CONFIGURATION}, tmp_path / "kubeconfig"
        ) as target,
        Transport(target) as transport,
    ):
        client = Client(transport, RESTMapper(transport), field_manager="test")
        await client.create(binding)
        is_allowed = False
        with anyio.fail_after(30):
            while not is_allowed:
                answer = await client.create(copy.deepcopy(review))
                is_allowed = answer["status"]["allowed"]
                await anyio.sleep(0.05)


async def test_default_samples_settle_and_explain_their_failures(tmp_path: Path) -> None:
    output = await settle(tmp_path, str(ROOT / "config/samples"))
    lines = output.splitlines()
    rows = {words[2]: words for line in lines if len(words := line.split()) > 3}
    assert sum("✓ All applied workloads have settled (" in line for line in lines) == 1
    assert rows["interactive"][0] == "✓"
    assert rows["queued"][3] == "suspended"
    assert (rows["queued-report"][3], rows["failing-report"][3]) == ("Suspended", "Failed")
    assert "ImagePullBackOff" in output or "ErrImagePull" in output
    assert "exit code 3" in output
    assert "https://ray-dashboard-interactive-default.apps.example.test" in output
    assert "authentication none" not in output


async def test_volume_claim_can_be_deleted(tmp_path: Path) -> None:
    config_map = NamespacedName("default", "codeflare-operator-config")
    claim = new_object(PERSISTENT_VOLUME_CLAIM, "cache", "default")
    claim["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    async with (
        control_plane(
            config_map, {"config.yaml": CONFIGURATION}, tmp_path / "kubeconfig"
        ) as target,
        Transport(target) as transport,
    ):
        client = Client(transport, RESTMapper(transport), field_manager="test")
        created = await client.create(claim)
        assert created["metadata"]["finalizers"]
        await client.delete(PERSISTENT_VOLUME_CLAIM, key_of(claim))
        with anyio.fail_after(30):
            is_deleted = False
            while not is_deleted:
                is_deleted = await client.get(PERSISTENT_VOLUME_CLAIM, key_of(claim)) is None
                await anyio.sleep(0.05)
