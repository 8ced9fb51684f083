"""The operator as it is installed: its manifests on a control plane, and ``cfo run`` with its own account's rights."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfo.api.raycluster.kinds import RAY_CLUSTER, ROUTE
from cfo.demo import crds
from cfo.demo.run import read_objects
from cfo.manifests import render
from cfo.manifests.names import DEFAULT_NAMESPACE
from cfo.operator import WEBHOOK_SECRET_NAME
from cfo.runtime.kinds import CLUSTER_ROLE_BINDING, INGRESS, NETWORK_POLICY, SECRET
from cfo.runtime.objects import GVK, NamespacedName, Object, gvk_of, key_of
from envtest.certificates import Authority
from test.support.config_map_webhooks import free_url
from test.support.installation import ROOT, configure, events_of_the_operator, in_cluster, install, kubectl
from test.support.raycluster_environment import (
    DSC_INITIALIZATION_CRD,
    INGRESS_CONFIG_CRD,
    ROUTE_CRD,
    Environment,
    eventually,
    ray_cluster,
    start_environment,
)

RAY_CLUSTERS = crds.load()


async def play(there: Environment, *paths: Path) -> list[Object]:
    """Creates the samples of the kinds that are served here."""
    made = []
    for obj in read_objects([path for path in paths if path.exists()]):
        try:
            resource = await there.client.mapper.resource(gvk_of(obj))
        except Exception as error:
            raise AssertionError(f"{gvk_of(obj)} of {paths}") from error
        if resource.namespaced:
            obj["metadata"].setdefault("namespace", "default")
        made.append(await there.client.apply(obj))
    return made


def _verbs(event: dict[str, Any]) -> set[str]:
    """The rights that a request needed: an apply that made its object needed that to create it, too."""
    verb = event["verb"]
    if verb == "patch" and event["responseStatus"]["code"] == 201:
        return {"patch", "create"}
    return {"list", "watch"} if verb == "list" else {verb}  # a watch is told of when it has ended; it follows a list


@dataclass(frozen=True)
class Grant:
    """One right of a role: so small that it is either used or not."""

    namespace: str
    group: str
    resource: str
    verb: str
    names: tuple[str, ...]

    def allows(self, event: dict[str, Any]) -> bool:
        target = event.get("objectRef") or {}
        resource = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
        return (
            target.get("apiGroup", "") == self.group
            and fnmatchcase(resource, self.resource)
            and self.verb in _verbs(event)
            and (not self.namespace or target.get("namespace") == self.namespace)
            and (not self.names or target.get("name", "") in ("", *self.names))
        )

    def __str__(self) -> str:
        return (
            f"{self.verb} {self.group or 'core'}/{self.resource}{' of ' + ' '.join(self.names) if self.names else ''}"
        )


def grants() -> set[Grant]:
    """All rights of the operator's account."""
    found: set[Grant] = set()
    bound = {obj["roleRef"]["name"] for obj in render() if obj["kind"].endswith("RoleBinding")}
    for role in render():
        if role["kind"] in ("Role", "ClusterRole") and role["metadata"]["name"] in bound:
            found |= {
                Grant(
                    role["metadata"].get("namespace", ""), group, resource, verb, tuple(rule.get("resourceNames", ()))
                )
                for rule in role["rules"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


def forbidden(events: list[dict[str, Any]]) -> list[str]:
    return [f"{each['verb']} {each['requestURI']}" for each in events if each["responseStatus"]["code"] in (401, 403)]


NEVER_USED = {
    "get *": "reads past the cache, where the outcome of a write is not known (test_faults_*)",
    "* apps/*": "wrapped by AppWrappers (test_appwrapper_*)",
    "* batch/*": "wrapped by AppWrappers (test_appwrapper_*)",
    "* core/pods": "wrapped by AppWrappers, and heads that lack pull secrets (test_raycluster_oauth)",
    "* core/services": "wrapped by AppWrappers (test_appwrapper_*)",
    "* jobset.x-k8s.io/*": "wrapped by AppWrappers (test_appwrapper_*)",
    "* kubeflow.org/*": "wrapped by AppWrappers (test_appwrapper_*)",
    "* ray.io/rayjobs": "wrapped by AppWrappers (test_appwrapper_*)",
    "* ray.io/rayclusters": "wrapped by AppWrappers (test_appwrapper_*)",
    "* scheduling.*/podgroups": "wrapped by AppWrappers (test_appwrapper_*)",
    "create authentication.k8s.io/tokenreviews": "metrics.secureServing asks who scrapes (test_metrics)",
    "create authorization.k8s.io/subjectaccessreviews": "may who scrapes, who wraps? (test_metrics, test_appwrapper_*)",
    "create core/configmaps": "the default configuration, where there is none (test_operator)",
    "delete admissionregistration.k8s.io/*": "what a killed run with --webhook-url made (test_operator_webhooks)",
    "delete core/*": "OAuth or mTLS is turned off (test_raycluster_oauth, test_raycluster_mtls)",
    "delete networking.k8s.io/*": "OAuth is turned on (test_raycluster_ingress)",
    "delete route.openshift.io/routes": "OAuth is turned off (test_raycluster_oauth)",
    "patch core/secrets*": "renewed certificates (test_raycluster_mtls, test_operator_webhooks)",
    "patch rbac.authorization.k8s.io/*": "a binding that somebody changed (test_raycluster_oauth)",
    "update route.openshift.io/routes": "OpenShift asks for it where the host of a Route changes",
    "* workload.codeflare.dev/*": "the life of AppWrappers (test_appwrapper_*); finalizers: OpenShift asks owners",
    "* core/events": "core Events of AppWrappers (test_appwrapper_*)",
    "patch events.k8s.io/events": "an Event that comes again becomes a series (test_events)",
    "* kueue.x-k8s.io/*": "kueueIntegration and slackQueueName, off by default (test_appwrapper_*)",
    "* core/nodes": "nodes that Autopilot marks (test_appwrapper_*)",
}
"""The rights that no test here uses, by pattern: who uses them."""


async def _life(there: Environment, directory: Path, shared: Path, *, openshift: bool) -> list[dict[str, Any]]:
    """Installs, runs, plays all samples, deletes them, ends; what the operator asked meanwhile."""
    await install(there, directory)
    kuberay = {"rayDashboardOAuthEnabled": openshift, "ingressDomain": "apps.test", "mTLSEnabled": True}
    await configure(there, kuberay=kuberay, appwrapper={"enabled": True})
    async with in_cluster(there, directory, "--webhook-url", str(free_url())) as running:
        await running.ready()
        samples = await play(there, ROOT / "config" / "samples", *shared.glob("samples/ray-cluster.*.yaml"))
        clusters = [obj for obj in samples if gvk_of(obj).kind == RAY_CLUSTER.kind]
        assert clusters
        for cluster in clusters:
            if cluster["spec"].get("suspend"):
                continue
            key = key_of(cluster)

            async def look(key: NamespacedName = key) -> bool:
                kinds: list[GVK] = [NETWORK_POLICY, SECRET, ROUTE if openshift else INGRESS]
                if openshift:
                    kinds.append(CLUSTER_ROLE_BINDING)
                found = [await there.children(key.namespace, openshift=openshift)]
                return all(any(kind == one.kind for kind, _ in found[0]) for one in kinds)

            await eventually(look, f"what {key} gets")
        for obj in reversed(samples):
            if obj["kind"] != "Namespace":
                await there.delete(obj)
        for cluster in clusters:

            async def vanished(cluster: Object = cluster) -> bool:
                return await there.client.get(RAY_CLUSTER, key_of(cluster)) is None

            await eventually(vanished, f"{key_of(cluster)} gone")
        running.process.terminate()
        assert await running.exit_code() == 0, running.output
    return events_of_the_operator(there)


async def test_the_operator_gets_along_with_its_rights_and_needs_all_of_them(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shared = ROOT.parent / "shared"
    used: list[dict[str, Any]] = []
    for openshift in (False, True):
        extra = (ROUTE_CRD, INGRESS_CONFIG_CRD, DSC_INITIALIZATION_CRD) if openshift else ()
        directory = tmp_path / ("openshift" if openshift else "vanilla")
        directory.mkdir()
        async with start_environment(*RAY_CLUSTERS, *extra) as there:
            events = await _life(there, directory, shared, openshift=openshift)
            assert events
            assert forbidden(events) == []
            used += events
    unused = {str(grant) for grant in grants() if not any(grant.allows(event) for event in used)}
    print("never used here:", *sorted(unused), sep="\n  ")
    unexplained = {grant for grant in unused if not any(fnmatchcase(grant, pattern) for pattern in NEVER_USED)}
    assert unexplained == set(), "rights without a use: take them away, or say who needs them"


async def test_every_manifest_is_accepted(tmp_path: Path) -> None:
    async with start_environment(*RAY_CLUSTERS) as there:
        await install(there, tmp_path)
        for overlay in ("default", "e2e", "odh"):
            code, built = await kubectl(there, tmp_path, "kustomize", f"config/{overlay}")
            assert code == 0, built
            documents = [obj for obj in yaml.safe_load_all(built) if obj["kind"] != "Namespace"]
            for obj in documents:
                if "namespace" in obj["metadata"]:
                    obj["metadata"]["namespace"] = DEFAULT_NAMESPACE  # a dry run makes no namespace
            code, said = await kubectl(
                *(there, tmp_path, "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-"),
                stdin=yaml.safe_dump_all(documents),
            )
            assert code == 0, said
            assert said.count("serverside-applied") == len(documents)


async def test_an_installation_can_be_repeated_and_changes_nothing(tmp_path: Path) -> None:
    async with start_environment(*RAY_CLUSTERS) as there:
        await install(there, tmp_path)
        kinds = {gvk_of(obj) for obj in render()}
        before = {(gvk, str(key_of(item))): item for gvk in kinds for item in await there.client.list(gvk)}
        await install(there, tmp_path)
        after = {(gvk, str(key_of(item))): item for gvk in kinds for item in await there.client.list(gvk)}
        # a Namespace that is applied with its name alone is owned by nobody: API servers note that the second time
        ours = {(gvk_of(obj), str(key_of(obj))) for obj in render() if obj["kind"] != "Namespace"}
        versions = {
            key: (before[key]["metadata"]["resourceVersion"], after[key]["metadata"]["resourceVersion"]) for key in ours
        }
        assert {key: pair for key, pair in versions.items() if pair[0] != pair[1]} == {}


APP_WRAPPER = GVK("workload.codeflare.dev", "v1beta2", "AppWrapper")


def app_wrapper(name: str, *, finalizers: list[str]) -> Object:
    """An AppWrapper of a ConfigMap, as the operator leaves it when it is stopped."""
    template = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"of-{name}"}}
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default", "finalizers": finalizers},
        "spec": {"components": [{"podSets": [], "template": template}]},
    }


async def removed(there: Environment, directory: Path, *arguments: str) -> str:
    """Runs ``cfo uninstall`` as an administrator."""
    kubeconfig = directory / "admin.kubeconfig"
    there.plane.kubeconfig(kubeconfig)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cfo", "uninstall", "--kubeconfig", str(kubeconfig), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


@pytest.mark.parametrize("everything", [False, True])
async def test_nothing_hangs_when_the_operator_is_removed(tmp_path: Path, everything: bool) -> None:
    async with start_environment(*RAY_CLUSTERS) as there:
        # what was there before the operator was installed needs no webhook to be created
        await there.create_namespace()
        await install(there, tmp_path)
        code, said = await kubectl(there, tmp_path, "delete", *_hooks())
        assert code == 0, said
        await there.create(app_wrapper("wrapped", finalizers=["workload.codeflare.dev/finalizer", "test/other"]))
        cluster = ray_cluster()
        cluster["metadata"]["finalizers"] = ["ray.openshift.ai/oauth-finalizer"]
        await there.create(cluster)
        await install(there, tmp_path)

        said = await removed(there, tmp_path, "--patience", "1", *(["--crds"] if everything else []))

        assert "removed ray.openshift.ai/oauth-finalizer from RayCluster ns/rc" in said
        assert "removed workload.codeflare.dev/finalizer from AppWrapper default/wrapped" in said
        left = [obj for obj in render() if await there.client.get(gvk_of(obj), key_of(obj)) is not None]
        kept = {"Namespace", *([] if everything else ["CustomResourceDefinition"])}
        assert {obj["kind"] for obj in left} - {"CustomResourceDefinition"} == kept - {"CustomResourceDefinition"}
        await there.delete(cluster)  # no webhook is asked, no finalizer holds it
        assert await there.find(RAY_CLUSTER, "rc") is None
        wrapper = await there.find(APP_WRAPPER, "wrapped", "default")
        assert wrapper is not None
        assert wrapper["metadata"]["finalizers"] == ["test/other"]
        assert bool(wrapper["metadata"].get("deletionTimestamp")) is everything
        assert "deleted" not in await removed(there, tmp_path, "--patience", "1")


def _hooks() -> list[str]:
    return [
        f"{obj['kind'].lower()}/{obj['metadata']['name']}"
        for obj in render()
        if obj["kind"].endswith("WebhookConfiguration")
    ]


async def test_the_documented_manual_order_leaves_nothing_behind(tmp_path: Path) -> None:
    """The commands stand in docs/install.md; they are run as they stand there."""
    text = (ROOT / "docs" / "install.md").read_text()
    block = text.split("<!-- manual removal -->")[1].split("```sh\n")[1].split("```")[0]
    commands = [line.split(" # ")[0].split() for line in block.splitlines() if line.strip()]
    async with start_environment(*RAY_CLUSTERS) as there:
        await there.create_namespace()
        cluster = ray_cluster()
        cluster["metadata"]["finalizers"] = ["ray.openshift.ai/oauth-finalizer"]
        await there.create(cluster)
        await install(there, tmp_path)
        for command in commands:
            assert command[0] == "kubectl"
            arguments = [word.replace("NAME", "rc").replace("THEIRS", "ns") for word in command[1:]]
            code, said = await kubectl(there, tmp_path, *arguments)
            assert code == 0, (command, said)
        await there.delete(cluster)
        assert await there.find(RAY_CLUSTER, "rc") is None
        left = [obj["kind"] for obj in render() if await there.client.get(gvk_of(obj), key_of(obj)) is not None]
        assert set(left) <= {"Namespace", "CustomResourceDefinition"}


NOT_SERVED_HERE = {
    *("cert-manager.io", "monitoring.coreos.com", "olm.operatorframework.io", "operators.coreos.com"),
    *("kustomize.config.k8s.io", "kind.x-k8s.io", "scorecard.operatorframework.io"),
}
"""Groups of APIs that come with other operators, or are no APIs of a server at all."""


async def test_every_file_is_valid_where_its_api_exists(tmp_path: Path) -> None:
    files = [path for folder in ("config", "bundle") for path in sorted((ROOT / folder).rglob("*.yaml"))]
    documents = [obj for path in files for obj in yaml.safe_load_all(path.read_text())]
    objects = [obj for obj in documents if isinstance(obj, dict) and "kind" in obj and "apiVersion" in obj]
    checked = [obj for obj in objects if gvk_of(obj).group not in NOT_SERVED_HERE]
    definitions = [obj for obj in checked if obj["kind"] == "CustomResourceDefinition"]
    assert len(checked) > 20
    async with start_environment(*RAY_CLUSTERS, definitions[0]) as there:
        for name in ("system", DEFAULT_NAMESPACE, "data-science"):
            await there.create_namespace(name)
        code, said = await kubectl(
            *(there, tmp_path, "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-"),
            stdin=yaml.safe_dump_all(checked),
        )
        assert code == 0, said
        assert said.count("serverside-applied") == len(checked)


async def test_certificates_from_elsewhere_are_served_and_nothing_of_it_is_written(tmp_path: Path) -> None:
    """As with cert-manager and OLM: ``--webhook-cert-dir``, and configurations whose names are not known."""
    folder = tmp_path / "certs"
    folder.mkdir()
    host = f"codeflare-operator-webhook-service.{DEFAULT_NAMESPACE}.svc"
    pair = Authority(name="olm").server([host])
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    async with start_environment(*RAY_CLUSTERS) as there:
        await install(there, tmp_path)
        code, said = await kubectl(there, tmp_path, "delete", *_hooks())
        assert code == 0, said
        await configure(there, webhook={"bindAddress": "127.0.0.1:0"}, kuberay={"rayDashboardOAuthEnabled": False})
        async with in_cluster(there, tmp_path, "--webhook-cert-dir", str(folder)) as running:
            await running.ready()
            running.process.terminate()
            assert await running.exit_code() == 0, running.output
        assert await there.find(SECRET, WEBHOOK_SECRET_NAME, DEFAULT_NAMESPACE) is None
        touched = {(event.get("objectRef") or {}).get("resource") for event in events_of_the_operator(there)}
        assert not touched & {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
        assert forbidden(events_of_the_operator(there)) == []
