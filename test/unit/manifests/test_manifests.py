"""``cfo manifests`` and ``config/`` produce the same objects, which are consistent and complete."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cfo.api.raycluster.names import REQUESTER_ROLE
from cfo.cli import cli
from cfo.manifests.additional import FIRST_ONLY
from cfo.manifests.names import DEPLOYMENT, LABELS, default_image
from cfo.manifests.overlays import COMPONENTS, crds, render
from cfo.version import CONFIG_MAP_NAME, __version__
from hack.generate.kustomize import ODH_COMPONENTS
from test.support.manifests import by_key, documents, dump_all, kustomize

ROOT = Path(__file__).parents[3]


def print_manifests(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, ["manifests", *arguments])
    assert result.exit_code == 0, result.output
    return documents(result.stdout)


@pytest.mark.parametrize(
    ("overlay", "arguments"),
    [
        ("default", ()),
        (
            "odh",
            (
                "--namespace",
                "opendatahub",
                *(word for name in ODH_COMPONENTS for word in ("--with", name)),
            ),
        ),
    ],
)
def test_command_prints_the_same_as_kustomize(overlay: str, arguments: tuple[str, ...]) -> None:
    printed = print_manifests(*arguments)
    if overlay == "odh":
        printed = for_odh(printed)
    assert by_key(printed) == by_key(kustomize(ROOT / "config" / overlay))


def for_odh(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the objects that Open Data Hub's operator is allowed to create."""
    return [obj for obj in objects if obj["kind"] != "PodDisruptionBudget"]


def test_overlay_of_the_end_to_end_tests_differs_in_configuration_and_resources() -> None:
    built, printed = (
        by_key(kustomize(ROOT / "config" / "e2e")),
        by_key(print_manifests("--with", "appwrapper")),
    )
    assert {kind for kind, _, _ in built.keys() - printed.keys()} == {"ConfigMap"}
    assert [key[0] for key, obj in printed.items() if obj != built.get(key)] == ["Deployment"]


@pytest.mark.parametrize("component", sorted(COMPONENTS))
def test_components_are_the_same_in_kustomize(component: str, tmp_path: Path) -> None:
    """Without the CRDs, which no component changes, and on which kustomize spends most of its time."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "config" / "crd" / "kustomization.yaml").write_text("resources: []\n")
    layers: dict[str, dict[str, Any]] = {
        "base": {"resources": ["../config/default"], "namespace": "elsewhere"},
        "overlay": {"resources": ["../base"], "components": [f"../config/{component}"]},
    }
    for name, layer in layers.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "kustomization.yaml").write_text(yaml.safe_dump(layer))
    printed = by_key(print_manifests("--with", component, "--namespace", "elsewhere"))
    built = by_key(kustomize(tmp_path / "overlay"))
    for crd in crds():
        name = crd["metadata"]["name"]
        assert printed.pop(("CustomResourceDefinition", "", name)) == crd
    assert printed.keys() == built.keys()
    assert printed == built


def test_odh_overlay_reads_image_and_namespace_from_params_env(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "config", tmp_path / "config")
    params = tmp_path / "config" / "manager" / "params.env"
    assert f"codeflare-operator-controller-image={default_image()}\n" in params.read_text()
    params.write_text(
        "codeflare-operator-controller-image=registry.test/cfo@sha256:0\nnamespace=redhat-ods\n"
    )
    built = kustomize(tmp_path / "config" / "odh")
    assert by_key(built) == by_key(
        for_odh(render("redhat-ods", "registry.test/cfo@sha256:0", ODH_COMPONENTS))
    )
    assert "CustomResourceDefinition" in {obj["kind"] for obj in built}


def test_only_the_given_namespace_is_used() -> None:
    for components in ([], sorted(COMPONENTS)):
        text = dump_all(render(namespace="only-here", components=components))
        assert "openshift-operators" not in text
        assert "system\n" not in text


def test_names_equal_those_of_the_go_operator() -> None:
    names = {(kind, name) for kind, _, name in by_key(render())}
    assert names >= {
        ("ClusterRole", "codeflare-operator-appwrapper-editor-role"),
        ("ClusterRole", "codeflare-operator-manager-role"),
        ("ClusterRole", "codeflare-operator-viewer-role"),
        ("ClusterRoleBinding", "codeflare-operator-manager-rolebinding"),
        ("CustomResourceDefinition", "appwrappers.workload.codeflare.dev"),
        ("Deployment", "codeflare-operator-manager"),
        ("MutatingWebhookConfiguration", "codeflare-operator-mutating-webhook-configuration"),
        ("Namespace", "openshift-operators"),
        ("Role", "codeflare-operator-leader-election-role"),
        ("RoleBinding", "codeflare-operator-leader-election-rolebinding"),
        ("Service", "codeflare-operator-manager-metrics"),
        ("Service", "codeflare-operator-webhook-service"),
        ("ServiceAccount", "codeflare-operator-controller-manager"),
        ("ValidatingWebhookConfiguration", "codeflare-operator-validating-webhook-configuration"),
    }
    (deployment,) = [obj for obj in render() if obj["kind"] == "Deployment"]
    assert deployment["spec"]["selector"] == {"matchLabels": LABELS}
    assert deployment["spec"]["template"]["spec"]["containers"][0]["command"] == ["/manager"]


def test_deployment_has_restricted_security_context() -> None:
    (deployment,) = [obj for obj in render() if obj["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert container["resources"].keys() == {"requests", "limits"}


def test_references_between_objects_are_valid() -> None:
    objects = render(components=COMPONENTS)
    existing = {(obj["kind"], obj["metadata"]["name"]) for obj in objects}
    for obj in objects:
        if "roleRef" in obj:
            assert (obj["roleRef"]["kind"], obj["roleRef"]["name"]) in existing
            for subject in obj["subjects"]:
                assert (subject["kind"], subject["name"]) in existing
        for hook in obj.get("webhooks", ()):
            assert ("Service", hook["clientConfig"]["service"]["name"]) in existing


IMAGE_NOTE = (
    f"Note: the image is {default_image()}, the default: check that its registry has it, and that the tag is not one "
    "of the Go operator, whose images have the same name; or set --image\n"
)
ADDITIONAL = ("--additional", "--namespace", "b", "--watch-namespace", "team")


def test_additional_operator_shares_no_object_with_the_first_one() -> None:
    components = sorted({*COMPONENTS} - {*FIRST_ONLY})
    options = [word for name in components for word in ("--with", name)]
    printed = print_manifests(*ADDITIONAL, "--label-selector", "a=b", *options)
    shared = by_key(printed).keys() & by_key(render(components=COMPONENTS)).keys()
    # The operators bind this role for RayClusters by its name.
    assert {name for _, _, name in shared} == {REQUESTER_ROLE}
    by_kind = {(obj["kind"], obj["metadata"]["name"]): obj for obj in printed}
    for kind, _ in by_kind:
        assert not kind.endswith(("WebhookConfiguration", "CustomResourceDefinition"))
    bindings = [obj for obj in printed if "roleRef" in obj]
    for binding in bindings:
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in by_kind
    # Its ConfigMap is not printed: applied again, it would replace what administrators have changed.
    assert ("ConfigMap", CONFIG_MAP_NAME) not in by_kind
    (container,) = by_kind["Deployment", DEPLOYMENT]["spec"]["template"]["spec"]["containers"]
    (argument,) = container["args"]
    assert yaml.safe_load(argument.removeprefix("--default-config=")) == {
        "webhook": {"enabled": False},
        "watchNamespaces": ["team"],
        "labelSelector": "a=b",
    }


def test_additional_operator_has_no_permissions_for_webhooks() -> None:
    """Otherwise a client with its token could let the API servers send all reviews to another program."""
    components = sorted({*COMPONENTS} - {*FIRST_ONLY})
    options = [word for name in components for word in ("--with", name)]
    for printed, is_first in (
        (print_manifests(*ADDITIONAL, *options), False),
        (print_manifests("--namespace", "b", *options), True),
    ):
        rules = [rule for obj in printed for rule in obj.get("rules") or ()]
        writing = {"create", "update", "patch", "delete", "*"}
        of_webhooks = [
            rule
            for rule in rules
            if any("webhookconfigurations" in resource for resource in rule.get("resources", ()))
            and writing & {*rule["verbs"]}
        ]
        named = {name for rule in rules for name in rule.get("resourceNames", ())}
        assert bool(of_webhooks) == is_first
        assert ("codeflare-operator-webhook-server-cert" in named) == is_first


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--namespace", "No_Such"), "--namespace"),
        (("--image", "a b"), "--image"),
        (("--image", "nginx:latest:foo"), "must be an image reference"),
        (("--image", "host:5000:v1"), "must be an image reference"),
        (("--image", "host/Name:v1"), "must be an image reference"),
        (("--image", "host/cfo@sha256:..."), "or with @sha256: and 64 hexadecimal digits"),
        (("--with", "everything"), "--with"),
        (("--with", "network-policy", "--api-server-cidr", "192.0.2.2"), "must be a CIDR"),
        (("--with", "network-policy", "--api-server-cidr", "192.0.2.2/28"), "must be a CIDR"),
        (("--with", "network-policy", "--api-server-cidr", "192.0.2.0/255.255.255.0"), "a CIDR"),
        (("--additional", "--watch-namespace", "a"), "requires --namespace"),
        (
            ("--additional", "--namespace", "openshift-operators", "--watch-namespace", "a"),
            "not that of the first one",
        ),
        (("--additional", "--namespace", "b"), "requires --watch-namespace or --label-selector"),
        (("--watch-namespace", "No_Such"), "--watch-namespace: watchNamespaces[0]: 'No_Such'"),
        (("--label-selector", "a=b"), "requires --additional"),
        (("--tenant", "a", "--watch-namespace", "b"), "--tenant"),
        (("--tenant", "a", "--additional"), "--tenant"),
        (("--tenant", "a", "--image", "x"), "--tenant"),
        (("--tenant", "a", "--label-selector", "a=b"), "--tenant"),
        ((*ADDITIONAL, "--with", "certmanager"), "only for the first operator"),
        ((*ADDITIONAL, "--with", "reserved-hosts"), "only for the first operator"),
        ((*ADDITIONAL, "--watch-namespace", "No_Such"), "watchNamespaces"),
        ((*ADDITIONAL, "--label-selector", "a=b=c"), "labelSelector"),
        (("--tenant", "a", "--roles-only"), "--tenant"),
        (("--roles-only",), "no component: must name components with a role: appwrapper, "),
        (("--roles-only", "--with", "csr", "--with", "certmanager"), "--with: certmanager: must"),
        (("--roles-only", "--with", "csr", "--image", "a"), "must not be combined with --image"),
        (
            ("--roles-only", *ADDITIONAL, "--label-selector", "a=b", "--with", "csr"),
            "--label-selector",
        ),
    ],
)
def test_invalid_arguments_are_rejected(arguments: tuple[str, ...], word: str) -> None:
    result = CliRunner().invoke(cli, ["manifests", *arguments])
    assert result.exit_code == 2
    assert word in result.output


def test_note_names_the_settings_of_the_first_operator() -> None:
    result = CliRunner().invoke(cli, ["manifests", *ADDITIONAL, "--label-selector", "a=b"])
    assert result.stderr == (
        "Note: first set watchNamespaces without team or a labelSelector that excludes a=b in the ConfigMap "
        "codeflare-operator-config of the first operator, and restart it: otherwise both reconcile the same objects, "
        "and overwrite each other's writes; cfo doctor checks this\n"
        "Note: the permissions are only for team, which must exist: if the ConfigMap b/codeflare-operator-config "
        f"exists, its watchNamespaces must name no others\n{IMAGE_NOTE}"
    )
    assert all(isinstance(obj, dict) for obj in yaml.safe_load_all(result.stdout))


@pytest.mark.parametrize(("options", "suffix"), [((), ""), (("--additional",), "-ops")])
def test_roles_only_are_those_of_the_installation(options: tuple[str, ...], suffix: str) -> None:
    """Also of an additional operator, whose roles have other names."""
    arguments = ["manifests", "--roles-only", "--namespace", "ops", "--with", "gateway", *options]
    result = CliRunner().invoke(cli, arguments)
    note = (
        "Note: the roles are for the whole cluster, as an operator with only a label selector needs them: for one with "
        "watchNamespaces, add --watch-namespace for each of them\n"
    )
    assert (result.exit_code, result.stderr) == (0, note if options else "")
    found = list(yaml.safe_load_all(result.stdout))
    part = {"labelSelector": "a=b"} if options else None
    installation = render("ops", components=["gateway"], part=part)
    assert [(obj["kind"], obj["metadata"]["name"]) for obj in found] == [
        ("ClusterRole", f"codeflare-operator-manager-gateway-role{suffix}"),
        ("ClusterRoleBinding", f"codeflare-operator-manager-gateway-rolebinding{suffix}"),
    ]
    assert all(obj in installation for obj in found)


def test_network_policy_names_the_label_that_the_namespace_of_prometheus_needs() -> None:
    options = ("--with", "prometheus", "--with", "network-policy", "--image", "mirror.test/cfo:v1")
    result = CliRunner().invoke(cli, ["manifests", *options])
    assert result.stderr == (
        "Note: the NetworkPolicy admits scrapes only from namespaces with the label metrics=enabled: kubectl label "
        "namespace PROMETHEUS metrics=enabled\n"
    )


def test_component_of_a_feature_that_is_off_by_default_prints_a_note() -> None:
    result = CliRunner().invoke(
        cli, ["manifests", "--with", "kueue", "--with", "openshift", "--with", "prometheus"]
    )
    assert result.stderr == (
        "Note: --with kueue adds permissions; the ConfigMap codeflare-operator-config has to enable what uses them, "
        f"which is off by default\n{IMAGE_NOTE}"
    )


@pytest.mark.parametrize(
    ("arguments", "note"),
    [((), IMAGE_NOTE), (("--image", "mirror.test/cfo:v1"), ""), (("--tenant", "team"), "")],
)
def test_default_image_prints_a_note(arguments: tuple[str, ...], note: str) -> None:
    result = CliRunner().invoke(cli, ["manifests", *arguments])
    assert (result.exit_code, result.stderr) == (0, note)
    assert "Note:" not in result.stdout


def test_compatibility_matrix_is_consistent() -> None:
    stack = yaml.safe_load((ROOT / "config" / "stack.yaml").read_text())["components"]
    readme = (ROOT / "README.md").read_text()
    matrix = readme.partition("<!-- Compatibility Matrix start -->")[2].partition(
        "<!-- Compatibility Matrix end -->"
    )[0]
    result = CliRunner().invoke(cli, ["version", "--stack"])
    assert result.exit_code == 0
    versions = dict(line.rsplit(None, 1) for line in result.output.splitlines())
    assert [component["name"] for component in stack] == list(versions)
    for component in stack:
        assert (
            f"| {component['name']} | [{component['version']}]({component['releases']}{component['version']}) |"
            in matrix
        )
        assert versions[component["name"]] == component["version"]
    assert versions["CodeFlare Operator"] == f"v{__version__}"


def test_uninstall_reports_missing_kubeconfig_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["uninstall", "--kubeconfig", str(tmp_path / "none")])
    assert result.exit_code == 3
    assert len(result.output.strip().splitlines()) == 1
    assert "none" in result.output


def test_api_server_checks_field_names_except_where_this_operator_reports_unknown_ones() -> None:
    unchecked = {
        crd["spec"]["names"]["kind"]
        for crd in crds()
        if "x-kubernetes-preserve-unknown-fields" in json.dumps(crd)
    }
    # The webhook of InferenceStacks refuses them; those of a component are in the condition UnknownFields.
    assert unchecked == {"AppWrapper", "InferenceStack"}
