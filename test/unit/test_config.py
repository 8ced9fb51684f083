"""The configuration document: defaults, valid values, errors and warnings."""

import tracemalloc
from datetime import timedelta
from typing import Any

import pytest
import yaml

from cfo.config.document import default_document, extract_document, parse
from cfo.config.model import OperatorConfiguration, changed_settings
from cfo.config.section import ConfigurationError


def warnings_of(document: str) -> list[str]:
    return parse(document).warnings


def error_of(document: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        parse(document)
    message = str(raised.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{}",
        "kuberay: null",
        "leaderElection: null",
        "kuberay:\n",
        "metrics: {bindAddress: null}",
    ],
)
def test_absent_and_null_values_mean_defaults(document: str) -> None:
    parsed = parse(document)
    assert parsed.configuration == OperatorConfiguration()
    assert parsed.warnings == []


def test_default_values() -> None:
    defaults = OperatorConfiguration()
    assert defaults.client_connection.qps is None
    assert defaults.client_connection.burst is None
    assert defaults.metrics.bind_address == ":8080"
    assert defaults.health.bind_address == ":8081"
    assert defaults.kuberay.ray_dashboard_oauth_enabled
    assert defaults.kuberay.mtls_enabled
    assert defaults.kuberay.ca.key_algorithm == "ecdsa"
    assert not defaults.appwrapper.enabled
    assert not defaults.flux.enabled
    assert not defaults.flux.default_setup.enabled
    assert defaults.leader_election.lease_duration == timedelta(seconds=15)


def test_empty_address_of_metrics_is_the_default_as_in_go() -> None:
    assert parse("metrics: {bindAddress: ''}").configuration.metrics.bind_address == ":8080"
    assert parse("health: {bindAddress: ''}").configuration.health.bind_address == ""


def test_default_document_means_defaults() -> None:
    parsed = parse(default_document())
    assert parsed.configuration == OperatorConfiguration()
    assert parsed.warnings == []


def test_default_document_of_the_go_operator_means_defaults() -> None:
    parsed = parse(
        """
        appwrapper:
          Config:
            autopilot: {injectAntiAffinities: true, monitorNodes: true, preferNoScheduleWeight: 50}
            faultTolerance: {admissionGracePeriod: 60000000000, resetPause: 90000000000, retryLimit: 3}
            userRBACAdmissionCheck: true
          enabled: false
        clientConnection: {burst: 100, qps: 50}
        leaderElection:
          leaderElect: null
          leaseDuration: 0s
          renewDeadline: 0s
          resourceLock: ""
          resourceName: ""
          resourceNamespace: ""
          retryPeriod: 0s
        """
    )
    assert parsed.warnings == []
    assert parsed.configuration.client_connection.qps == 50
    assert parsed.configuration.client_connection.burst == 100
    assert parsed.configuration.leader_election == OperatorConfiguration().leader_election
    assert parsed.configuration.appwrapper == OperatorConfiguration().appwrapper


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        (90_000_000_000, 90),
        (0, 0),
    ],
)
def test_durations_are_go_durations_or_nanoseconds(value: object, seconds: float) -> None:
    parsed = parse(f"appwrapper: {{faultTolerance: {{resetPause: {value}}}}}")
    assert parsed.configuration.appwrapper.fault_tolerance.reset_pause == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", ["ninety", "'5'", "1d", "1.5", "true", "[]", "-1s", "-5"])
def test_invalid_duration_is_rejected_with_path(value: str) -> None:
    message = error_of(f"appwrapper: {{Config: {{faultTolerance: {{resetPause: {value}}}}}}}")
    assert message.startswith("appwrapper.faultTolerance.resetPause: ")


def test_setting_under_appwrapper_takes_precedence_over_config() -> None:
    parsed = parse(
        "appwrapper: {Config: {faultTolerance: {retryLimit: 2, resetPause: 10s}}, faultTolerance: {retryLimit: 1}}"
    )
    tolerance = parsed.configuration.appwrapper.fault_tolerance
    assert (tolerance.retry_limit, tolerance.reset_pause) == (1, timedelta(seconds=10))
    assert parsed.warnings == [
        "appwrapper.faultTolerance.retryLimit is set, so appwrapper.Config.faultTolerance.retryLimit is ignored"
    ]


def test_key_algorithm_is_case_insensitive() -> None:
    assert (
        parse("kuberay: {ca: {keyAlgorithm: RSA}}").configuration.kuberay.ca.key_algorithm == "rsa"
    )


def test_keys_are_case_insensitive_as_in_go() -> None:
    parsed = parse("kubeRay: {mtlsenabled: false}\nappwrapper: {config: {schedulerName: x}}")
    assert not parsed.configuration.kuberay.mtls_enabled
    assert parsed.configuration.appwrapper.scheduler_name == "x"
    assert parsed.warnings == [
        f"key {path} is spelled {name}; it is accepted, because case is ignored as in Go"
        for path, name in (
            ("kubeRay", "kuberay"),
            ("kubeRay.mtlsenabled", "mTLSEnabled"),
            ("appwrapper.config", "Config"),
        )
    ]


@pytest.mark.parametrize(
    ("document", "path", "keys"),
    [
        (
            "kubeRay: {mTLSEnabled: false}\nkuberay: {mTLSEnabled: true}",
            "kuberay",
            "kubeRay, kuberay",
        ),
        (
            "kuberay: {mTLSEnabled: false, mtlsenabled: true}",
            "kuberay.mTLSEnabled",
            "mTLSEnabled, mtlsenabled",
        ),
        (
            "kuberay: {profiles: [{name: a, mtls: x, mTLS: y}]}",
            "kuberay.profiles[0].mTLS",
            "mtls, mTLS",
        ),
        ("appwrapper: {Config: {}, config: {}}", "appwrapper.Config", "Config, config"),
    ],
)
def test_two_spellings_of_a_key_are_rejected(document: str, path: str, keys: str) -> None:
    assert error_of(document).startswith(
        f"{path}: is set more than once, as {keys}; keep one of them"
    )


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (
            "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {}}",
            "is a manifest of kind Secret, not a config",
        ),
        (
            "{apiVersion: apps/v1, kind: Deployment, spec: {}}",
            "is a manifest of kind Deployment, not a configuration",
        ),
        (
            "{apiVersion: v1, kind: List, items: []}",
            "is a list of objects, not a configuration document; give one",
        ),
        (
            "{kind: ConfigMap, data: {config.yaml: '{kind: ConfigMap, data: {}}'}}",
            "is a whole ConfigMap inside of anoth",
        ),
        ("{kind: ConfigMap, data: {config.yaml: 5}}", "data: must be a mapping of strings"),
        ("{kind: ConfigMap, data: [a]}", "data: must be a mapping of strings"),
    ],
)
def test_manifest_in_place_of_the_document_is_rejected(manifest: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(extract_document(manifest))
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("metrics", "health", "webhook", "pair"),
    [
        (":8080", ":8080", ":9443", "metrics.bindAddress and health.bindAddress"),
        ("127.0.0.1:8080", "0.0.0.0:8080", ":9443", "metrics.bindAddress and health.bindAddress"),
        (":9443", "0", "127.0.0.1:9443", "metrics.bindAddress and webhook.bindAddress"),
        ("127.0.0.1:8080", "127.0.0.2:8080", ":9443", ""),
        (":0", ":0", ":0", ""),
        ("0", "0", ":9443", ""),
    ],
)
def test_servers_must_not_share_a_port(metrics: str, health: str, webhook: str, pair: str) -> None:
    document = f"metrics: {{bindAddress: '{metrics}'}}\nhealth: {{bindAddress: '{health}'}}\n"
    document += f"webhook: {{bindAddress: '{webhook}'}}\n"
    if pair:
        assert error_of(document).startswith(f"{pair} must not use the same port: ")
    else:
        parse(document)


def test_changed_settings_are_listed_by_path() -> None:
    old = parse("kuberay: {ingressDomain: a.test}").configuration
    new = parse(
        "kuberay: {operatorNamespaces: [ray]}\nleaderElection: {leaseDuration: 20s}"
    ).configuration
    assert changed_settings(old, new) == [
        "kuberay.ingressDomain",
        "kuberay.operatorNamespaces",
        "leaderElection.leaseDuration",
    ]
    assert changed_settings(old, old) == []


def test_effective_document_is_valid_and_means_the_same() -> None:
    configuration = parse(
        "kuberay: {ingressDomain: a.test}\nappwrapper: {faultTolerance: {resetPause: 5s}}"
    ).configuration
    document = configuration.to_document()
    assert document["kuberay"]["ingressDomain"] == "a.test"
    assert document["appwrapper"]["faultTolerance"]["resetPause"] == "5s"
    assert document["webhook"]["enabled"] is None
    parsed = parse(yaml.safe_dump(document))
    assert (parsed.configuration, parsed.warnings) == (configuration, [])


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (
            "300",
            "300 is shorter than 1s, because integers are nanoseconds; for seconds, write 300s",
        ),
        ("999000000", "999000000 is shorter than 1s, because integers"),
        ("500ms", "'500ms' is shorter than 1s"),
        ("100ns", "'100ns' is shorter than 1s"),
        ("1000000000", ""),
        ("1s", ""),
        ("0s", ""),
        ("0", ""),
    ],
)
def test_duration_below_one_second_is_warned_of(setting: str, reason: str) -> None:
    path = "appwrapper.faultTolerance.warmupGracePeriod"
    warnings = warnings_of(f"appwrapper: {{faultTolerance: {{warmupGracePeriod: {setting}}}}}")
    assert len(warnings) == bool(reason)
    assert all(warning.startswith(f"{path}: {reason}") for warning in warnings)


def test_integer_of_seconds_for_leader_election_is_warned_of_although_the_default_is_used() -> None:
    parsed = parse("leaderElection: {leaseDuration: 15}")
    assert parsed.configuration.leader_election == OperatorConfiguration().leader_election
    (warning,) = parsed.warnings
    assert warning == (
        "leaderElection.leaseDuration: 15 is shorter than 1s, because integers are nanoseconds; for seconds, write "
        "15s; it counts as 0, so the default is used"
    )


def test_all_conflicts_of_settings_are_reported_at_once() -> None:
    document = """
        debug: {bindAddress: metrics}
        metrics: {bindAddress: ":8081"}
        watchNamespaces: [team]
        kuberay: {networkPolicy: {defaultDeny: {namespaceSelector: a=b}}}
    """
    with pytest.raises(ConfigurationError) as raised:
        parse(document)
    assert [problem.partition(" ")[0] for problem in raised.value.problems] == [
        "debug.bindAddress",
        "kuberay.networkPolicy.defaultDeny.namespaceSelector",
        "metrics.bindAddress",
    ]
    with pytest.raises(ConfigurationError) as raised:
        parse("leaderElection: {leaseDuration: 1s, renewDeadline: 1s, retryPeriod: 1s}")
    assert raised.value.problems == (
        "leaderElection: leaseDuration (1s) must be greater than renewDeadline (1s)",
        "leaderElection: renewDeadline (1s) must be greater than 1.2 times retryPeriod (1s)",
    )


@pytest.mark.parametrize(
    "line", ["unknown: 1\n", "unknown{0}: 1\n"], ids=["duplicates", "unknown keys"]
)
def test_number_of_warnings_is_bounded(line: str) -> None:
    warnings = parse("".join(line.format(number) for number in range(10_000))).warnings
    assert (len(warnings), warnings[-1]) == (101, "at most 100 warnings are shown")
    assert all("unknown" in warning for warning in warnings[:-1])


@pytest.mark.parametrize(
    "value",
    ["a," * 16_000, ", ".join(f"a{index}" for index in range(8_000))],
    ids=["duplicates in it", "unknown keys in it"],
)
def test_warnings_show_the_start_of_a_long_key(value: str) -> None:
    tracemalloc.start()
    try:
        warnings = parse(f"? {'k' * 32_000}\n: {{{value}}}\n").warnings
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    assert any("kkk" in warning for warning in warnings)
    assert max(map(len, warnings)) < 300


@pytest.mark.parametrize("function", [parse, extract_document])
def test_size_of_a_document_is_limited(function: Any) -> None:
    with pytest.raises(ConfigurationError, match="longer than 262144 characters"):
        function("a" * 262145)


def test_deeply_nested_document_is_an_error_in_one_line() -> None:
    with pytest.raises(ConfigurationError, match="nested too deeply"):
        parse(extract_document("a: " + "[" * 20_000))


def test_duplicate_keys_are_warned_about_and_last_one_is_used() -> None:
    parsed = parse(
        "kuberay:\n  mTLSEnabled: true\n  mTLSEnabled: false\nappwrapper: &a {enabled: true}\n"
    )
    assert parsed.warnings == [
        "duplicate key kuberay.mTLSEnabled on lines 2 and 3; the last one is used"
    ]
    assert parsed.configuration.kuberay.mtls_enabled is False
    assert warnings_of("kuberay: {}\nkuberay: {mTLSEnabled: false}") == [
        "duplicate key kuberay on lines 1 and 2; the last one is used"
    ]


@pytest.mark.parametrize("setting", ["kueueIntegration: true", "slackQueueName: slack"])
def test_settings_of_disabled_appwrappers_for_kueue_are_warned_about(setting: str) -> None:
    key, _, _ = setting.partition(":")
    assert warnings_of(f"appwrapper: {{{setting}}}") == [
        f"appwrapper.{key} has no effect, because appwrapper.enabled is false"
    ]
    assert warnings_of(f"appwrapper: {{enabled: true, {setting}}}") == []


API_SERVER = "kuberay.networkPolicy.egress.apiServerCIDRs is empty"
ISSUER = "kuberay.networkPolicy.egress.destinations has no cidrs"
DESTINATION = {"cidrs": ["192.0.2.0/24"], "ports": [443]}
OIDC = {"enabled": True, "oidc": {"issuerURL": "https://issuer.example", "secretName": "s"}}


@pytest.mark.parametrize(
    ("kuberay", "egress", "expected"),
    [
        pytest.param({}, {}, [], id="nothing needs the API server"),
        pytest.param({"authentication": {"enabled": True}}, {}, [API_SERVER], id="proxies"),
        pytest.param({"ca": {"issuer": "certificateSigningRequest"}}, {}, [API_SERVER], id="pods"),
        pytest.param({"authentication": OIDC}, {}, [API_SERVER, ISSUER], id="OIDC"),
        pytest.param(
            {"authentication": OIDC}, {"apiServerCIDRs": ["192.0.2.1/32"]}, [ISSUER], id="issuer"
        ),
        pytest.param({"authentication": OIDC}, {"destinations": [DESTINATION]}, [], id="allowed"),
        pytest.param({"authentication": OIDC}, {"restrict": False}, [], id="not restricted"),
        pytest.param({"authentication": OIDC, "enabled": False}, {}, [], id="not enabled"),
    ],
)
def test_restricted_egress_that_breaks_other_settings_is_warned_about(
    kuberay: dict[str, Any], egress: dict[str, Any], expected: list[str]
) -> None:
    policy = {"egress": {"restrict": True, **egress}}
    document = {"kuberay": {"ingressDomain": "a.example", "networkPolicy": policy, **kuberay}}
    warnings = parse(yaml.safe_dump(document)).warnings
    assert [warning.split(",")[0] for warning in warnings] == expected


def test_namespace_of_kuberay_that_is_not_detected_is_warned_about() -> None:
    (warning,) = warnings_of("watchNamespaces: [team]")
    assert warning.startswith("kuberay.operatorNamespaces is not set: with watchNamespaces")
    assert warnings_of("{watchNamespaces: [team], kuberay: {operatorNamespaces: [ray]}}") == []
    assert warnings_of("{watchNamespaces: [team], kuberay: {enabled: false}}") == []


def test_settings_of_the_go_operators_kueue_integration_are_named() -> None:
    """Without a suggestion: the nearest setting, `kueueIntegration`, means something else."""
    document = "appwrapper: {Config: {enableKueueIntegrations: true, kueueJobReconciller: {}}}"
    first, second = warnings_of(document)
    start = "key appwrapper.Config.{} of the Go operator is ignored: Kueue's own integration"
    assert first.startswith(start.format("enableKueueIntegrations"))
    assert second.startswith(start.format("kueueJobReconciller"))


def test_unknown_keys_are_warned_about_with_path_and_suggestion() -> None:
    assert warnings_of("kubray: {}") == ["unknown key kubray (did you mean kuberay?), ignored"]
    assert warnings_of("kuberay: {nope: 1}\nwhatever: {a: 1}") == [
        "unknown key kuberay.nope, ignored",
        "unknown key whatever, ignored",
    ]
    assert warnings_of("ingressDomain: example.com") == [
        "unknown key ingressDomain (did you mean kuberay.ingressDomain?), ignored"
    ]
    taints = "appwrapper: {autopilot: {resourceTaints: {gpu: [{key: a, effect: NoExecute, colour: red}]}}}"
    assert warnings_of(taints) == [
        "unknown key appwrapper.autopilot.resourceTaints.gpu[0].colour, ignored"
    ]


def test_key_of_a_map_in_a_warning_is_printable_and_at_most_100_characters() -> None:
    key = "\\e[31m" + "r" * 200
    taint = "{key: a, effect: NoExecute, colour: red}"
    (warning,) = warnings_of(
        f'appwrapper: {{autopilot: {{resourceTaints: {{"{key}": [{taint}]}}}}}}'
    )
    assert warning.isprintable()
    assert len(warning) < 200


SHARED_HOST = "{name: a, namespace: b, dashboardListener: c, dashboardHost: d}"
OIDC = "{issuerURL: 'https://dex.test', secretName: s}"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("kuberay: [unclosed", "not valid YAML: "),
        ("- a", "must be a mapping of sections, not a list"),
        ("kuberay: 3", "kuberay: 3: must be a mapping"),
        ("kuberay: {mTLSEnabled: 'yes'}", "kuberay.mTLSEnabled: 'yes': must be true or false"),
        ("kuberay: {ingressDomain: A_b}", "kuberay.ingressDomain: 'A_b': must be a domain name"),
        (
            "appwrapper: {defaultQueueName: Bad Q}",
            "appwrapper.defaultQueueName: 'Bad Q': must be the name of a LocalQueue",
        ),
        (
            f"appwrapper: {{defaultQueueName: {'a' * 32}.{'b' * 32}}}",
            f"appwrapper.defaultQueueName: '{'a' * 32}.{'b' * 32}': must be the name of a LocalQueue",
        ),
        (
            "appwrapper: {slackQueueName: Bad Q}",
            "appwrapper.slackQueueName: 'Bad Q': must be the name of an object",
        ),
        (
            "kuberay: {ingress: {tlsSecretName: Bad Q}}",
            "kuberay.ingress.tlsSecretName: 'Bad Q': must be the name of an object",
        ),
        (
            "webhook: {mutatingConfigurationName: Bad Q}",
            "webhook.mutatingConfigurationName: 'Bad Q': must be the name of an object",
        ),
        (
            "kuberay: {operatorNamespaces: [ok, 1]}",
            "kuberay.operatorNamespaces[1]: 1: must be the name of a namespace",
        ),
        (
            "kuberay: {ca: {keyAlgorithm: dsa}}",
            "kuberay.ca.keyAlgorithm: 'dsa': must be 'ecdsa' or 'rsa'",
        ),
        (
            "kuberay: {ca: {issuer: csr}}",
            "kuberay.ca.issuer: 'csr': must be 'secret' or 'certificateSigningRequest'",
        ),
        (
            "kuberay: {ca: {nodeCertificateLifetime: 59m}}",
            "kuberay.ca.nodeCertificateLifetime: '59m': must be at least 1h",
        ),
        (
            "kuberay: {gateway: {name: gw}}",
            "kuberay.gateway: namespace, dashboardListener must be set as well",
        ),
        (
            "kuberay: {gateway: {clientListener: c}}",
            "kuberay.gateway: name, namespace, dashboardListener must be set",
        ),
        (
            "kuberay: {gateway: {name: A}}",
            "kuberay.gateway.name: 'A': must be the name of an object",
        ),
        (
            f"kuberay: {{gateway: {SHARED_HOST}, authentication: {{oidc: {OIDC}}}}}",
            "kuberay: gateway.dashboardHost and authentication.oidc must not be set together",
        ),
        (
            "kuberay: {rayDashboardOAuthEnabled: false, authentication: {enabled: true}}",
            "kuberay: authentication.enabled requires rayDashboardOAuthEnabled: true, or a profile that enforces",
        ),
        (
            "kuberay: {profiles: [{mTLS: enforced}]}",
            "kuberay.profiles[0].name: is required",
        ),
        (
            "kuberay: {profiles: [{name: a, namespaceSelector: x in y}]}",
            "kuberay.profiles[0].namespaceSelector: 'x in y': found 'y' where '(' was expected",
        ),
        (
            'watchNamespaces: ["a\\n"]',
            "watchNamespaces[0]: 'a\\n': must be the name of a namespace",
        ),
        ("metrics: {bindAddress: 8080}", "metrics.bindAddress: 8080: must be a string"),
        (
            "kuberay: {networkPolicy: {egress: {apiServerCIDRs: [10.0.0.1/8]}}}",
            "kuberay.networkPolicy.egress.apiServerCIDRs[0]: '10.0.0.1/8': must be a CIDR in canonical form",
        ),
        (
            "kuberay: {networkPolicy: {egress: {dnsCIDRs: [10.0.0.1]}}}",
            "kuberay.networkPolicy.egress.dnsCIDRs[0]: ",
        ),
        (
            "kuberay: {networkPolicy: {egress: {destinations: [{ports: [443]}]}}}",
            "kuberay.networkPolicy.egress.destinations[0]: must contain cidrs or namespaces",
        ),
        (
            "kuberay: {networkPolicy: {egress: {destinations: [{namespaces: [minio]}]}}}",
            "kuberay.networkPolicy.egress.destinations[0].ports: ",
        ),
        (
            "kuberay: {networkPolicy: {egress: {destinations: [{namespaces: [minio], ports: []}]}}}",
            "kuberay.networkPolicy.egress.destinations[0].ports: []: must be a list of 1 to 100 elements",
        ),
        (
            "kuberay: {networkPolicy: {egress: {destinations: [{namespaces: [minio], ports: [65536]}]}}}",
            "kuberay.networkPolicy.egress.destinations[0].ports[0]: 65536: must be an integer from 1 to 65535",
        ),
        (
            "kuberay: {networkPolicy: {defaultDeny: {namespaceSelector: {a: b}}}}",
            "kuberay.networkPolicy.defaultDeny.namespaceSelector: must be a label selector",
        ),
        (
            "{watchNamespaces: [a], kuberay: {networkPolicy: {defaultDeny: {namespaceSelector: ''}}}}",
            "kuberay.networkPolicy.defaultDeny.namespaceSelector requires an operator for all namespaces",
        ),
        ("health: {bindAddress: ':99999'}", "health.bindAddress: ':99999': must be HOST:PORT"),
        (
            "health: {livenessEndpointName: a/b}",
            "health.livenessEndpointName: 'a/b': must be one path segment",
        ),
        ("clientConnection: {qps: fast}", "clientConnection.qps: 'fast': must be a number"),
        ("clientConnection: {burst: 1.5}", "clientConnection.burst: 1.5: must be an integer"),
        (
            "leaderElection: {leaseDuration: 5s}",
            "leaderElection: leaseDuration (5s) must be greater than renewDeadline (10s)",
        ),
        (
            "leaderElection: {resourceLock: endpoints}",
            "leaderElection.resourceLock: 'endpoints': must be 'leases'",
        ),
        ("webhook: {bindAddress: '0'}", "webhook.bindAddress: '0': must be HOST:PORT"),
        ("debug: {bindAddress: ':6060'}", "debug.bindAddress: ':6060': must be a loopback address"),
        (
            "debug: {bindAddress: '192.0.2.1:6060'}",
            "debug.bindAddress: '192.0.2.1:6060': must be a loopback address",
        ),
        (
            "debug: {bindAddress: metrics}",
            'debug.bindAddress "metrics" requires metrics.secureServing',
        ),
        ("webhook: {enabled: 1}", "webhook.enabled: 1: must be true or false"),
        (
            "webhook: {serviceName: A_b}",
            "webhook.serviceName: 'A_b': must be the name of a Service",
        ),
        (
            "kuberay: {ingress: {className: Foo Bar}}",
            "kuberay.ingress.className: 'Foo Bar': must be the name of an object",
        ),
        (
            "appwrapper: {autopilot: {resourceTaints: {gpu: [{key: a b, effect: NoExecute}]}}}",
            "appwrapper.autopilot.resourceTaints.gpu[0].key: 'a b': must be a label key: ",
        ),
        (
            "appwrapper: {autopilot: {resourceTaints: {gpu: [{key: a, value: b c, effect: NoExecute}]}}}",
            "appwrapper.autopilot.resourceTaints.gpu[0].value: 'b c': must be a label value",
        ),
        ("metrics: {dashboard: true}", "metrics: dashboard requires secureServing: true"),
        (
            "metrics: {dashboard: true, secureServing: true, bindAddress: '0'}",
            "metrics: dashboard requires secureServing: true",
        ),
        ("webhook: {certDir: ''}", "webhook.certDir: '': "),
        ("webhook: {clientCAFile: ''}", "webhook.clientCAFile: '': "),
        (
            "flux: {adminNamespaces: [Admins]}",
            "flux.adminNamespaces[0]: 'Admins': must be the name of a namespace",
        ),
        (
            "flux: {defaultSetup: {maxSize: -1}}",
            "flux.defaultSetup.maxSize: -1: must be an integer from 0 to 2147483647",
        ),
        (
            "flux: {defaultSetup: {queueingStrategy: LIFO}}",
            "flux.defaultSetup.queueingStrategy: 'LIFO': must be 'BestEffortFIFO', 'StrictFIFO' or 'Backfill'",
        ),
        (
            "flux: {enabled: true, warmupGracePeriod: 0s}",
            "flux: warmupGracePeriod (0) must be at least 10s, or no pod starts in time",
        ),
        ("appwrapper: {Config: 3}", "appwrapper.Config: must be a mapping"),
        (
            "appwrapper: {enabled: true, faultTolerance: {gracePeriodCeiling: 10s}}",
            "appwrapper: faultTolerance.admissionGracePeriod (1m) must not exceed faultTolerance.gracePeriodCeiling",
        ),
    ],
)
def test_invalid_value_is_reported_in_one_line_with_path(document: str, message: str) -> None:
    assert error_of(document).startswith(message)


def test_all_invalid_fields_are_reported() -> None:
    message = error_of("kuberay: {mTLSEnabled: 1, ingressDomain: 2}\nmetrics: {bindAddress: 3}")
    for path in ("kuberay.mTLSEnabled", "kuberay.ingressDomain", "metrics.bindAddress"):
        assert path in message
    with pytest.raises(ConfigurationError) as caught:
        parse("kuberay: {mTLSEnabled: 1, ingressDomain: 2}\nmetrics: {bindAddress: 3}")
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    "document",
    [
        f"clientConnection: {{burst: 1{'0' * 5000}}}",
        f"webhook: {{enabled: 0x{'f' * 6000}}}",
        "kuberay: 2020-13-45",
        f"kuberay: {{ca: {{nodeCertificateLifetime: {'9' * 30}}}}}",
    ],
)
def test_values_that_python_cannot_represent_are_errors(document: str) -> None:
    assert "\n" not in error_of(extract_document(document))


def mapping_of(levels: str, value: str) -> str:
    """Return a document with one key for each level, whose value contains that of the level before, by an alias."""
    return "a: &a {x: 0, y: 1}\n" + "".join(
        f"{level}: &{level} {value.format(', '.join(9 * [f'*{before}']))}\n"
        for before, level in zip("a" + levels, levels, strict=False)
    )


@pytest.mark.parametrize(
    "document",
    [
        f"0x{'f' * 6000}",
        f"appwrapper: {{Config: 0x{'f' * 6000}}}",
        f"? 0x{'f' * 6000}\n: 1",
        "watchNamespaces: !!set {a}",
        "kuberay: {enabled: !!bool x}",
        "kuberay: {enabled: !!int ''}",
        "kuberay: {enabled: !!timestamp x}",
        f"kuberay: {{enabled: {'59:' * 2000}59.5}}",
        mapping_of("bcdefghi", "[{}]") + "watchNamespaces: !!pairs [a: *i]",
        mapping_of("bcdefghi", "{{<<: [{}]}}"),
        "a: &a [" + "{key: a, effect: NoSchedule}, " * 500 + "]\n"
        "appwrapper: {autopilot: {resourceTaints: {"
        + "".join(f"r{number}: *a, " for number in range(500))
        + "}}}",
    ],
)
def test_documents_that_cannot_be_read_are_errors(document: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^not valid YAML: "):
        parse(extract_document(document))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            'kuberay: {ingress: {annotations: {"a\\nb\\e": 1}}}',
            r"kuberay.ingress.annotations.a\nb\x1b: 1: must be",
        ),
        ('{kind: "a\\nb", data: {}}', r"is a manifest of kind a\nb, "),
        (
            f"kuberay: {{ingressDomain: {'A' * 100_000}}}",
            f"kuberay.ingressDomain: '{'A' * 98}…: must be a domain",
        ),
        (f"watchNamespaces: [{'1, ' * 10_000}]", "watchNamespaces[0]: 1: must be"),
    ],
)
def test_messages_are_one_line_and_limited(document: str, message: str) -> None:
    found = error_of(document)
    assert found.startswith(message)
    assert found.isprintable()
    assert len(found) < 4000


def test_further_problems_are_counted() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(f"watchNamespaces: [{'1, ' * 100}]")
    error = caught.value.within("here")
    assert (len(error.problems), error.problems[-1]) == (21, "here: and 80 more problems")


@pytest.mark.parametrize("address", [":8080", "127.0.0.1:0", "[::1]:8443", "localhost:1", "0"])
def test_bind_address_formats_of_go_are_accepted(address: str) -> None:
    assert (
        parse(f"metrics: {{bindAddress: '{address}'}}").configuration.metrics.bind_address
        == address
    )


def test_document_is_extracted_from_config_map_manifest() -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\ndata:\n  config.yaml: |\n    kuberay: 5\n"
    assert extract_document(manifest) == "kuberay: 5\n"
    assert extract_document("kuberay: {}") == "kuberay: {}"
    with pytest.raises(ConfigurationError, match=r"exactly one key.*found a, b"):
        extract_document("kind: ConfigMap\ndata: {a: x, b: y}")


@pytest.mark.parametrize(
    ("authentication", "problem"),
    [
        ("{verifier: OIDC}", "verifier OIDC requires oidc"),
        ("{oidc: {secretName: x}}", "oidc.issuerURL"),
        ("{oidc: {issuerURL: 'http://dex.test', secretName: x}}", "must be an https URL"),
        ("{oidc: {issuerURL: 'https://dex.test?x=1', secretName: x}}", "must be an https URL"),
        ("{oidc: {issuerURL: 'https://dex.test', secretName: X}}", "must be the name of an object"),
        (
            "{oidc: {issuerURL: 'https://dex.test', secretName: x, scopes: [email]}}",
            "scopes must contain openid",
        ),
        (
            "{oidc: {issuerURL: 'https://dex.test', secretName: x, usernamePrefix: 'a b'}}",
            "printable ASCII",
        ),
        ("{audiences: ['a,b']}", "printable ASCII"),
        ("{audiences: ['$(NAME)']}", "printable ASCII"),
        (
            "{verifier: OIDC, oidc: {issuerURL: 'https://dex.test', secretName: x, groupsPrefix: ''}}",
            "groupsPrefix must not be empty",
        ),
        (
            "{verifier: OIDC, oidc: {issuerURL: 'https://dex.test', secretName: x, usernamePrefix: ''}}",
            "usernamePrefix must not be empty",
        ),
    ],
)
def test_invalid_authentication_is_rejected(authentication: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        parse(f"kuberay: {{authentication: {authentication}}}")
    assert str(caught.value).startswith("kuberay.authentication")


def test_optional_section_is_parsed_like_others() -> None:
    text = "kuberay: {authentication: {OIDC: {issuerurl: 'https://dex.test', secretName: x, issuer: y}}}"
    parsed = parse(text)
    assert parsed.configuration.kuberay.authentication.oidc is not None
    assert parsed.configuration.kuberay.authentication.oidc.issuer_url == "https://dex.test"
    assert (
        parsed.warnings[-1]
        == "unknown key kuberay.authentication.OIDC.issuer (did you mean issuerURL?), ignored"
    )


@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan", "1" + "0" * 400, "true", "'5'", "[1]"])
def test_rates_are_finite_numbers(value: str) -> None:
    assert error_of(f"clientConnection: {{qps: {value}}}").startswith("clientConnection.qps: ")


def test_section_of_a_program_names_unknown_and_missing_keys() -> None:
    with pytest.raises(ConfigurationError) as caught:
        OperatorConfiguration.from_document({"kuberay": {"profiles": [{"nme": "a"}]}, "metric": {}})
    assert caught.value.problems == (
        "metric: is unknown",
        "kuberay.profiles[0].nme: is unknown",
        "kuberay.profiles[0].name: is required",
    )


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (
            "kuberay: {profiles: [{name: a, mTLS: on}]}",
            "kuberay.profiles[0].mTLS: true (YAML reads on and yes as true): must be 'default' or 'enforced'",
        ),
        (
            "kuberay: {ingressDomain: no}",
            "kuberay.ingressDomain: false (YAML reads off and no as false): must be a domain name",
        ),
        (
            "leaderElection: {leaseDuration: yes}",
            "leaderElection.leaseDuration: true (YAML reads on and yes as true): must be a duration",
        ),
    ],
)
def test_boolean_in_place_of_another_type_is_shown_as_yaml_reads_it(
    document: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse(document)
    assert problem in str(error.value)
