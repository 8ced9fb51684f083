"""The checks of the Pod Security Standards, as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.admission.pod_security_checks import Level, violations

COMPLIANT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(security: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i", "securityContext": security or {}}], **spec}


def found(level: Level, spec: dict[str, Any], **annotations: str) -> list[str]:
    named = {
        name.replace("__", "/").replace("_", "."): value for name, value in annotations.items()
    }
    return [str(each) for each in violations(level, {"annotations": named}, spec)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (pod(), []),
        (pod(hostPID=True, hostIPC=True), ["host namespaces (hostPID=true, hostIPC=true)"]),
        (
            pod(
                {"privileged": True},
                initContainers=[{"name": "i", "securityContext": {"privileged": True}}],
            ),
            ['privileged (containers "i", "c" must not set securityContext.privileged=true)'],
        ),
        (
            pod(
                {"windowsOptions": {"hostProcess": True}},
                securityContext={"windowsOptions": {"hostProcess": True}},
            ),
            [
                'hostProcess (pod and container "c" must not set securityContext.windowsOptions.hostProcess=true)'
            ],
        ),
        (
            {
                "containers": [
                    {"name": "c", "livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 1}}}
                ]
            },
            ['probe or lifecycle host (container "c" uses probe or lifecycle host "10.0.0.1")'],
        ),
        (
            pod({"procMount": "Unmasked"}),
            ['procMount (container "c" must not set securityContext.procMount to "Unmasked")'],
        ),
        (pod({"procMount": "Unmasked"}, hostUsers=False), []),
        (
            pod({"seLinuxOptions": {"type": "container_t", "role": "r"}}),
            [
                'seLinuxOptions (container "c" set forbidden securityContext.seLinuxOptions: role may not be set)'
            ],
        ),
        (
            pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "emptyDir": {}}]),
            ['hostPath volumes (volume "v")'],
        ),
    ],
)
def test_baseline(spec: dict[str, Any], expected: list[str]) -> None:
    assert found(Level("baseline"), spec) == expected


def test_restricted_replaces_the_checks_that_it_tightens() -> None:
    security = {**COMPLIANT, "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}
    spec = pod(security, volumes=[{"name": "v", "hostPath": {"path": "/"}}])
    assert found(Level("restricted"), spec) == [
        'unrestricted capabilities (container "c" must not include "SYS_ADMIN" in securityContext.capabilities.add)',
        'restricted volume types (volume "v" uses restricted volume type "hostPath")',
    ]
    old = found(Level("restricted", 21), spec)
    assert old[0].startswith("non-default capabilities"), "the stricter check exists since v1.22"


@pytest.mark.parametrize(("version", "count"), [(7, 1), (8, 2), (18, 2), (19, 3), (22, 4), (99, 4)])
def test_checks_begin_with_the_version_that_introduced_them(version: int, count: int) -> None:
    assert len(found(Level("restricted", version), pod())) == count


def test_windows_pods_need_no_linux_settings_since_the_os_field_exists() -> None:
    spec = pod(os={"name": "windows"}, securityContext={"runAsNonRoot": True})
    assert found(Level("restricted"), spec) == []
    assert found(Level("restricted", 24), spec)


def test_safe_sysctls_were_added_over_time() -> None:
    spec = pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]})
    assert found(Level("baseline", 31), spec) == ["forbidden sysctls (net.ipv4.tcp_rmem)"]
    assert found(Level("baseline", 32), spec) == []


def test_privileged_allows_everything() -> None:
    assert found(Level(), pod({"privileged": True}, hostNetwork=True)) == []


def test_annotations_were_the_first_seccomp_profiles() -> None:
    annotation = {"seccomp_security_alpha_kubernetes_io__pod": "unconfined"}
    assert found(Level("baseline", 18), pod(), **annotation) == [
        'seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")'
    ]
    assert found(Level("baseline", 19), pod(), **annotation) == []
