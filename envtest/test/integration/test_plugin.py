"""The pytest plugin in another project: synchronous and asynchronous tests, CRDs, webhooks, the marker."""

from __future__ import annotations

import pytest

from test.support.pytest_runs import run_pytest
from test.support.toys import TOYS

pytest_plugins = ["pytester"]

PROJECT = r"""
import asyncio
import json
import ssl
import urllib.request
from pathlib import Path

import pytest
import yaml
from envtest.api_client import APIClient
from envtest.chaos import Timing

CRD = __CRD__

def test_synchronous(control_plane, kubeconfig, namespace):
    document = yaml.safe_load(Path(kubeconfig).read_text())
    assert document["clusters"][0]["cluster"]["server"] == control_plane.url
    context = ssl.create_default_context(cadata=control_plane.ca_pem.decode())
    request = urllib.request.Request(
        control_plane.url + "/api/v1/namespaces/" + namespace,
        headers={"Authorization": "Bearer " + control_plane.token},
    )
    with urllib.request.urlopen(request, context=context) as response:
        assert json.load(response)["metadata"]["name"] == namespace

async def test_asynchronous(api_client, namespace, install_crds):
    assert install_crds(CRD) == ["toys.example.com"]
    toys = f"/apis/example.com/v1/namespaces/{namespace}/toys"
    toy = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "bear"}}
    created = await api_client.post(toys, toy)
    assert created.code == 201
    found = await api_client.get(f"{toys}/bear")
    assert found.body["metadata"]["uid"] == created.body["metadata"]["uid"]

CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {**CONTAINERS, "restartPolicy": "Always"}}
JOB = {"template": {"spec": {**CONTAINERS, "restartPolicy": "Never"}}}
MISSING = "; the control plane runs without the controllers that write this status: "

@pytest.mark.parametrize(
    ("prefix", "kind", "spec", "missing"),
    [
        ("api", "Pod", CONTAINERS, "pods"),
        (
            "apis/apps",
            "Deployment",
            {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE},
            "deployment, pods",
        ),
        ("apis/batch", "Job", JOB, "job, pods"),
    ],
)
async def test_timeout_names_missing_controllers(api_client, namespace, prefix, kind, spec, missing):
    path = f"/{prefix}/v1/namespaces/{namespace}/{kind.lower()}s"
    created = await api_client.post(path, {"metadata": {"name": "a"}, "spec": spec})
    assert created.code == 201, created
    with pytest.raises(TimeoutError) as failed:
        await api_client.until(f"{path}/a", condition=lambda body: False, timeout=0.05)
    assert str(failed.value).endswith(MISSING + missing)

HOOKS = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "hooks"},
    "webhooks": [
        {
            "name": "hooks.example.com",
            "clientConfig": {"service": {"namespace": "acme", "name": "hooks", "path": "/validate"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}
HOOKS_PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hooks"

async def test_webhooks(api_client, install_webhooks):
    webhooks = install_webhooks(HOOKS)
    assert install_webhooks(HOOKS) == webhooks
    found = await api_client.get(HOOKS_PATH)
    assert found.body["webhooks"][0]["clientConfig"]["url"] == f"https://127.0.0.1:{webhooks.port}/validate"
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(webhooks.certificate, webhooks.key)

async def test_webhooks_are_removed_after_each_test(api_client):
    assert (await api_client.get(HOOKS_PATH)).code == 404

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"

@pytest.mark.parametrize("number", [1, 2])
async def test_each_test_has_its_own_copy(forked_plane, fork_client, request_trace, number):
    assert (await fork_client.post(CONFIG_MAPS, {"metadata": {"name": "a"}})).code == 201
    request_trace.assert_requests({"create configmaps": 1})

async def test_copy_does_not_change_the_control_plane(api_client):
    assert (await api_client.get(CONFIG_MAPS + "/a")).code == 404

def test_restore(forked_plane, restore_plane, tmp_path):
    forked_plane.snapshot(tmp_path / "state")
    assert restore_plane(tmp_path / "state").token == forked_plane.token

async def test_trace_has_only_the_requests_of_the_test(request_trace, namespace):
    request_trace.assert_requests({"create namespaces": 0})

async def test_failed_test_shows_its_writes(api_client, request_trace):
    await api_client.post(CONFIG_MAPS, {"metadata": {"name": "shown"}, "data": {"color": "blue"}})
    request_trace.assert_requests({})

async def create_each_time(connection):
    async with APIClient(connection) as api:
        await api.post(CONFIG_MAPS, {"metadata": {"generateName": "a-"}})
        await asyncio.sleep(60)

def test_chaos(chaos):
    report = chaos(create_each_time, kinds=["crash"], ready="0.05", timing=Timing(0.8, 4.0, 0.1))
    assert [finding.problem.kind for finding in report.findings] == ["duplicate"]

async def test_timeout_shows_the_last_status(api_client, namespace):
    config_maps = f"/api/v1/namespaces/{namespace}/configmaps"
    async with api_client.watch(config_maps) as watch:
        with pytest.raises(TimeoutError, match="no event within 0.01 s; there was none before"):
            await watch.event(timeout=0.01)
        await api_client.post(config_maps, {"metadata": {"name": "a"}})
        await watch.event()
        with pytest.raises(TimeoutError, match="ADDED ConfigMap 'a' with status null"):
            await watch.event(timeout=0.01)

async def test_until_waits_for_a_condition(api_client, namespace):
    path = f"/api/v1/namespaces/{namespace}"
    found = await api_client.until(path, condition=lambda body: body["status"]["phase"] == "Active")
    assert found.body["metadata"]["name"] == namespace
    message = f"{path}: no response 200 that fulfils the condition within 1 s; the last one was 200: Namespace"
    with pytest.raises(TimeoutError, match=message + " .* with status {.phase.: .Active.}"):
        await api_client.until(path, condition=lambda body: False, timeout=1)
    message = f"no response 404 within 1 s; the last one was 200: ConfigMapList"
    with pytest.raises(TimeoutError, match=message):
        await api_client.until(f"{path}/configmaps", 404, timeout=1)
    await api_client.post(f"{path}/configmaps", {"metadata": {"name": "b", "finalizers": ["x.y/z"]}})
    await api_client.delete(f"{path}/configmaps/b")
    message = "status null, which is being deleted and waits for its finalizers .\"x.y/z\".$"
    with pytest.raises(TimeoutError, match=message):
        await api_client.until(f"{path}/configmaps/b", 404, timeout=0.1)
    with pytest.raises(TimeoutError, match="404: Status with message 'configmaps \"a\" not found'"):
        await api_client.until(f"{path}/configmaps/a", timeout=1)

    deployments = f"/api/v1/namespaces/{namespace}/deployments"
    hint = "Deployment is served at /apis/apps/v1/namespaces/NAMESPACE/deployments"
    with pytest.raises(TimeoutError, match=f"{deployments}: no response 200 .*404.*; {hint}"):
        await api_client.until(deployments, timeout=1)
    message = f"^{deployments}: watch refused with 404: .*could not find the requested resource.*; {hint}$"
    with pytest.raises(AssertionError, match=message):
        async with api_client.watch(deployments):
            pass
    with pytest.raises(TypeError, match="condition: 'Active': must be a function"):
        await api_client.until(path, condition="Active")

    async def is_active(body):
        return False

    with pytest.raises(TypeError, match="condition: must not be a coroutine function"):
        await api_client.until(path, condition=is_active)

@pytest.mark.real_control_plane
def test_only_on_the_real_control_plane(control_plane):
    raise AssertionError("must not run")
"""


def test_fixtures_in_another_project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    pytester.makepyfile(PROJECT.replace("__CRD__", repr(TOYS)))
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    result = run_pytest(pytester, "--strict-markers")
    result.assert_outcomes(passed=15, failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*Writes to the control plane*",
            "201 create configmaps default/shown by admin",
            "*color*blue*",
        ]
    )


REJECTED = """
async def test_assertion_shows_the_message(api_client):
    config_map = {"metadata": {"name": "a", "uid": "1", "labels": {"a": "b c", "d": "e", "f": 1}}}
    config_maps = "/api/v1/namespaces/default/configmaps"
    assert (await api_client.post(config_maps, config_map)).code == 201
"""


def test_failed_assertion_about_the_code_shows_the_message(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    pytester.makepyfile(REJECTED)
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    result = run_pytest(pytester)
    result.assert_outcomes(failed=1)
    message = (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number'
    )
    result.stdout.fnmatch_lines(
        [
            f"*where 400 = Response(code=400, reason='BadRequest', message='{message} *of type string').code"
        ]
    )


CONTROLLERS = """
import pytest

@pytest.fixture(scope="session")
def controllers():
    return ("gc", "namespace", "replicaset")

def test_controllers(control_plane):
    assert control_plane.controllers == {expected}
"""


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ((), ("gc", "namespace", "replicaset")),
        (("--controllers=gc,pods",), ("gc", "pods")),
        (("--controllers=none",), ()),
    ],
    ids=["fixture", "option", "none"],
)
def test_controllers_are_those_of_the_option_or_the_fixture(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    option: tuple[str, ...],
    expected: tuple[str, ...],
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    pytester.makepyfile(CONTROLLERS.format(expected=expected))
    result = run_pytest(pytester, *option)
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("option", "error"),
    [
        (
            "--controllers=,",
            "--controllers ',': must be names of controllers, separated by commas*",
        ),
        ("--controllers=none,gc", "controllers: none, gc: must be names of controllers, or only *"),
        ("--controllers=deploy", "controller 'deploy': must be one of gc, namespace, *"),
        (
            "--kubernetes-version=1.20",
            "Kubernetes version '1.20' is not supported: must be one of *",
        ),
    ],
)
def test_invalid_option_ends_the_run_in_one_line(
    pytester: pytest.Pytester, option: str, error: str
) -> None:
    pytester.makepyfile("def test_any(): pass")
    result = run_pytest(pytester, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {error}"])
    assert "Traceback" not in result.stderr.str()


def test_missing_programs_are_one_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(pytester.path))
    pytester.makepyfile("def test_any(control_plane): pass")
    result = run_pytest(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [f"etcd not found in {pytester.path}, the folder that KUBEBUILDER_ASSETS or assets names"]
    )
    assert "During handling" not in result.stdout.str()


FAILURES = """
def test_restore(restore_plane):
    restore_plane("nope")

def test_wrong_count(request_trace):
    request_trace.assert_requests({"create pod": 0})

async def test_timeout(api_client):
    await api_client.until("/nope", timeout=0.1)
"""


def test_failures_show_the_lines_of_the_test_only(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    pytester.makepyfile(FAILURES)
    result = run_pytest(pytester, "-o", "asyncio_mode=auto")
    result.assert_outcomes(failed=3)
    for module in ("threaded.py", "snapshots.py", "trace.py", "api_client.py", "embedded.py"):
        assert f"{module}:" not in result.stdout.str()


OVERRIDE = """
import pytest

@pytest.fixture(scope="session")
def {name}():
    return {value}
"""


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("controllers", ("gc", "pods"), ("gc", "namespace", "serviceaccount")),
        ("control_plane_scenario", {"nodes": [{"name": "node-1"}]}, None),
    ],
    ids=["controllers", "scenario"],
)
@pytest.mark.parametrize("first", ["one", "two"])
def test_override_in_one_of_two_folders_is_an_error_in_any_order(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: object,
    default: object,
    first: str,
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    test = "def test_any(namespace): pass"
    pytester.makepyfile(
        **{
            "one/test_a": test,
            "two/test_b": test,
            "two/conftest": OVERRIDE.format(name=name, value=value),
        }
    )
    wanted = {"one": default, "two": value}
    second = "two" if first == "one" else "one"
    result = run_pytest(pytester, first, second)
    result.assert_outcomes(passed=1, errors=1)
    message = (
        f"fixture {name}: this test asks for {wanted[second]!r}, but the control plane of the session was started "
        f"with {wanted[first]!r}; override the fixture only in the conftest.py of the root folder"
    )
    assert message in result.stdout.str()


def test_equal_overrides_and_the_option_are_no_error(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    test = "def test_any(control_plane): assert control_plane.controllers == ('gc',)"
    other = OVERRIDE.format(name="controllers", value=("gc", "pods"))
    scenario = OVERRIDE.format(name="control_plane_scenario", value={"nodes": []})
    pytester.makepyfile(
        **{
            "one/test_a": test,
            "one/conftest": scenario,
            "two/test_b": test,
            "two/conftest": other + scenario,
        }
    )
    result = run_pytest(pytester, "--controllers=gc")
    result.assert_outcomes(passed=2)


FAULTS = """
import pytest
from envtest import User
from envtest.faults import Fault

POD = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"

@pytest.fixture(scope="session")
def control_plane_scenario():
    return {"nodes": [{"name": "node-1"}]}

@pytest.fixture(scope="session")
def control_plane_crds():
    return [__CRD__]

async def test_crds(api_client):
    assert (await api_client.get("/apis/example.com/v1/toys")).code == 200

async def test_scenario(api_client, namespace):
    path = f"/api/v1/namespaces/{namespace}/pods"
    await api_client.post(path, POD)
    found = await api_client.until(
        f"{path}/a", condition=lambda pod: pod["status"]["phase"] == "Running"
    )
    assert found.body["spec"]["nodeName"] == "node-1"

async def test_faults_and_users(forked_plane, fork_client):
    fault = forked_plane.faults.add(Fault(verbs=("list",), code=503))
    assert (await fork_client.get(CONFIG_MAPS)).code == 503
    assert (fault.injected, forked_plane.faults.rules) == (1, (fault,))
    forked_plane.faults.clear()
    forked_plane.add_user("alice-token", User("alice"))
    headers = {"Authorization": "Bearer alice-token"}
    assert (await fork_client.get(CONFIG_MAPS, headers=headers)).code == 403
    assert forked_plane.audit.events[-1]["user"]["username"] == "alice"
    certificate, key = forked_plane.client_certificate("bob", ("team",))
    assert certificate.startswith(b"-----BEGIN CERTIFICATE")

def test_time(control_plane):
    before = control_plane.advance(0)
    assert (control_plane.advance(3600) - before).total_seconds() >= 3600
"""


def test_faults_users_and_scenario_in_another_project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    pytester.makepyfile(FAULTS.replace("__CRD__", repr(TOYS)))
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    run_pytest(pytester).assert_outcomes(passed=4)


def test_controllers_that_are_a_string_are_one_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    pytester.makepyfile(
        CONTROLLERS.format(expected=()).replace('("gc", "namespace", "replicaset")', '"gc"')
    )
    result = run_pytest(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["controllers: 'gc': must be a sequence of names, such as *"])


MISSING_WEBHOOKS = """
def test_missing(install_webhooks):
    install_webhooks("nope.yaml")
"""


def test_missing_webhooks_fail_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    pytester.makepyfile(MISSING_WEBHOOKS)
    result = run_pytest(pytester)
    result.assert_outcomes(failed=1)
    assert "threaded.py" not in result.stdout.str()


SYNCHRONOUS = """
import pytest

@pytest.fixture
async def code(api_client):
    return (await api_client.get("/version")).code

def test_client(api_client):
    pass

def test_fork(fork_client):
    pass

def test_fixture(code):
    assert code == 200
"""


def test_synchronous_test_with_an_asynchronous_client_fails_at_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    pytester.makepyfile(SYNCHRONOUS)
    result = run_pytest(pytester, "-o", "asyncio_mode=auto")
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(
        [
            "fixture api_client: test_client must be `async def`, *",
            "fixture fork_client: test_fork must be `async def`, *",
        ]
    )


def test_version_for_the_real_control_plane_is_a_warning(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_any(): pass")
    options = ("--control-plane=real", "--kubernetes-version=1.34")
    result = run_pytest(pytester, *options)
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*--kubernetes-version=1.34 is ignored: the real control plane *"])
