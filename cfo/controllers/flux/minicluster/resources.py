"""The objects of a MiniCluster: Secret, ConfigMap, Services and Job. The pods are in :mod:`.pods`.

The Secret has the CURVE certificate with which the brokers authenticate each other and encrypt: an X25519 key pair in
`Z85`_, in ZeroMQ's property format, as ``flux keygen`` writes it.

.. _Z85: https://rfc.zeromq.org/spec/32/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from cfo.api.flux.facts import queue_of
from cfo.api.flux.names import MINICLUSTER_LABEL
from cfo.controllers.flux.minicluster.plan import (
    BROKER_PORT,
    CERTIFICATE_KEY,
    DEFAULT_BACKOFF_LIMIT,
    DEFAULT_DEADLINE_SECONDS,
    INDEX_LABEL,
    JOB_LABELS_ANNOTATION,
    JOB_NAME_LABEL,
    MAXIMUM_SIZE_ANNOTATION,
    SCRIPTS_HASH_ANNOTATION,
    SPEC_HASH_ANNOTATION,
    Plan,
    config_map_name,
    lead_host,
    secret_name,
    spec_hash,
    wanted_suspend,
)
from cfo.controllers.flux.minicluster.pods import pod_template
from cfo.controllers.flux.minicluster.scripts import script_files, scripts_hash
from cfo.runtime import CONFIG_MAP, GVK, JOB, SECRET, SERVICE, Object
from cfo.runtime.objects import new_object

Z85_ALPHABET: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)


def create_certificate(host: str) -> str:
    """Return the text of a certificate with a new key pair; ``host`` is recorded as the host that created it."""
    secret = X25519PrivateKey.generate()
    public_text = z85_encode(secret.public_key().public_bytes_raw())
    return (
        "# CURVE certificate of a Flux instance. Keep it secret: its owner can join the instance.\n"
        "metadata\n"
        '    name = "flux-cert-generator"\n'
        f'    keygen.hostname = "{host}"\n'
        "curve\n"
        f'    public-key = "{public_text}"\n'
        f'    secret-key = "{z85_encode(secret.private_bytes_raw())}"\n'
    )


def z85_encode(data: bytes) -> str:
    """Encode ``data`` in Z85: five characters for each four bytes. Raises :class:`ValueError` for another length."""
    if len(data) % 4:
        raise ValueError(f"{len(data)} bytes: the length must be a multiple of 4")
    characters = []
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        characters += [Z85_ALPHABET[number // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(characters)


def desired_secret(plan: Plan) -> Object:
    """Return the Secret with the certificate of ``spec.flux.curveCert``, or with a new one. It cannot be changed."""
    certificate = plan.flux.get("curveCert") or create_certificate(lead_host(plan.name))
    return _object(
        plan,
        SECRET,
        secret_name(plan.name),
        immutable=True,
        stringData={CERTIFICATE_KEY: certificate},
    )


def desired_config_map(plan: Plan) -> Object:
    """Return the ConfigMap with the scripts."""
    scripts = {key: text for key, (_, text) in script_files(plan).items()}
    return _object(plan, CONFIG_MAP, config_map_name(plan.name), data=scripts)


def desired_service(plan: Plan) -> Object:
    """Return the Service that gives the pods their DNS names, or with ``flux.minimalService`` one of the lead broker.

    The headless Service publishes addresses before the pods are ready, because the brokers need them to get ready.
    """
    selector = {JOB_NAME_LABEL: plan.name}
    if plan.flux.get("minimalService"):
        spec: Object = {"selector": {**selector, INDEX_LABEL: "0"}, "ports": _ports([BROKER_PORT])}
    else:
        spec = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": True}
    return _object(plan, SERVICE, plan.service, spec=spec)


def desired_sidecar_service(plan: Plan, container: Mapping[str, Any], name: str) -> Object:
    """Return the Service ``name`` of the ports of ``container``, on all pods."""
    spec = {
        "selector": {"app.kubernetes.io/name": plan.name},
        "ports": _ports(container.get("ports") or ()),
    }
    return _object(plan, SERVICE, name, spec=spec)


def desired_job(plan: Plan) -> Object:
    """Return the Job as it is created; :mod:`.job_changes` has what changes later.

    The Job has succeeded when the pod of the lead broker has, so the other brokers end with it. A Job
    with a queue of Kueue is suspended, as Kueue's webhook does it, so it has no pods without Kueue. ``suspend`` is
    absent if nothing decides on it.
    """
    annotations = {
        SPEC_HASH_ANNOTATION: spec_hash(plan.cluster),
        MAXIMUM_SIZE_ANNOTATION: str(plan.maximum),
        SCRIPTS_HASH_ANNOTATION: scripts_hash(plan),
    }
    label_keys = job_label_keys(plan)
    if label_keys:
        annotations[JOB_LABELS_ANNOTATION] = label_keys
    spec: Object = {
        "completionMode": "Indexed",
        "completions": plan.size,
        "parallelism": plan.size,
        "backoffLimit": backoff_limit(plan.spec),
        "activeDeadlineSeconds": deadline_seconds(plan.spec),
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        "template": pod_template(plan),
    }
    suspend = True if queue_of(plan.cluster) else wanted_suspend(plan.cluster)
    if suspend is not None:
        spec["suspend"] = suspend
    job = _object(plan, JOB, plan.name, spec=spec)
    # The API server gives a Job without labels those of its template, one of which is the MiniCluster's name.
    job["metadata"]["labels"] = job_labels(plan) if plan.spec.get("jobLabels") else {}
    job["metadata"]["annotations"] = annotations
    return job


def job_labels(plan: Plan) -> dict[str, str]:
    """Return the labels that the Job must have."""
    return {**(plan.spec.get("jobLabels") or {}), MINICLUSTER_LABEL: plan.name}


def job_label_keys(plan: Plan) -> str:
    """Return the keys of ``spec.jobLabels`` as the Job's annotation records them, empty if there are none."""
    return ",".join(sorted(plan.spec.get("jobLabels") or {}))


def backoff_limit(spec: Mapping[str, Any]) -> int:
    """Return the number of retries of the Job; 0 means the default, as in the Go operator."""
    return int(spec.get("backoffLimit") or DEFAULT_BACKOFF_LIMIT)


def deadline_seconds(spec: Mapping[str, Any]) -> int:
    """Return the seconds after which the Job fails."""
    seconds = spec.get("deadlineSeconds")
    return DEFAULT_DEADLINE_SECONDS if seconds is None else int(seconds)


def _object(plan: Plan, gvk: GVK, name: str, **fields: Any) -> Object:
    return new_object(gvk, name, plan.namespace, labels={MINICLUSTER_LABEL: plan.name}, **fields)


def _ports(numbers: Any) -> list[Object]:
    """Return ports of a Service; the API server requires names if there are several."""
    ports: list[Object] = [
        {"port": number, "targetPort": number, "protocol": "TCP"} for number in map(int, numbers)
    ]
    if len(ports) > 1:
        for port in ports:
            port["name"] = f"port-{port['port']}"
    return ports
