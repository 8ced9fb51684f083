"""The messages for JSON values of a wrong type: those of Go's decoder and of the converter for unstructured objects."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.builtins.normalization import DecodeError, WrongTypeError, decode

NUMBER = "json: cannot unmarshal number"
CAPABILITIES = "Capabilities.spec.containers.securityContext.capabilities"
SECRET = "SecretVolumeSource.spec.volumes.VolumeSource.secret"
PORT = "ContainerPort.spec.containers.ports.containerPort"


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{}, {"name": "a", **fields}]}}


@pytest.mark.parametrize(
    ("obj", "decoded", "converted", "path"),
    [
        (
            container(image=5),
            f"{NUMBER} into Go struct field Container.spec.containers.image of type string",
            "cannot convert int64 to string",
            "spec.containers[1].image",
        ),
        (
            container(ports=[{"containerPort": "x"}]),
            f"json: cannot unmarshal string into Go struct field {PORT} of type int32",
            "unrecognized type: int32",
            "spec.containers[1].ports[0].containerPort",
        ),
        (
            container(ports=[{"containerPort": 1.5}]),
            f"{NUMBER} 1.5 into Go struct field {PORT} of type int32",
            "cannot convert float64 to int32",
            "spec.containers[1].ports[0].containerPort",
        ),
        (
            container(imagePullPolicy=5),
            f"{NUMBER} into Go struct field Container.spec.containers.imagePullPolicy of type v1.PullPolicy",
            "cannot convert int64 to string",
            "spec.containers[1].imagePullPolicy",
        ),
        (
            container(securityContext={"capabilities": {"add": [True]}}),
            f"json: cannot unmarshal bool into Go struct field {CAPABILITIES}.add of type v1.Capability",
            "unrecognized type: string",
            "spec.containers[1].securityContext.capabilities.add[0]",
        ),
        (
            {"spec": {"volumes": [{"secret": {"secretName": 5}}]}},
            f"{NUMBER} into Go struct field {SECRET}.secretName of type string",
            "cannot convert int64 to string",
            "spec.volumes[0].secret.secretName",
        ),
        (
            container(env={}),
            "json: cannot unmarshal object into Go struct field Container.spec.containers.env of type []v1.EnvVar",
            "cannot restore slice from map",
            "spec.containers[1].env",
        ),
        (
            {"spec": []},
            "json: cannot unmarshal array into Go struct field Pod.spec of type v1.PodSpec",
            "cannot restore struct from: slice",
            "spec",
        ),
        (
            {"metadata": {"labels": {"a.b": True}}},
            "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
            "unrecognized type: string",
            "metadata.labels.a.b",
        ),
        (
            {"metadata": {"labels": "x"}},
            "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            "cannot restore map from string",
            "metadata.labels",
        ),
        (
            {"metadata": {"creationTimestamp": 5}},
            f"{NUMBER} into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            f"{NUMBER} into Go value of type string",
            "metadata.creationTimestamp",
        ),
    ],
)
def test_wrong_type(obj: dict[str, Any], decoded: str, converted: str, path: str) -> None:
    with pytest.raises(DecodeError) as raised:
        decode("io.k8s.api.core.v1.Pod", obj)
    assert (str(raised.value), raised.value.converted, raised.value.path) == (
        decoded,
        converted,
        path,
    )


def test_type_that_decodes_itself_ends_the_decoding() -> None:
    metadata = {"labels": 5, "creationTimestamp": 5, "name": 5}
    with pytest.raises(WrongTypeError) as raised:
        decode("io.k8s.api.core.v1.Pod", {"metadata": metadata})
    text = f"{NUMBER} into Go struct field ObjectMeta.metadata.creationTimestamp of type string"
    assert (str(raised.value), raised.value.converted) == (text, "cannot restore map from int64")


def test_wrong_port_of_a_service_names_the_field() -> None:
    with pytest.raises(WrongTypeError) as raised:
        decode("io.k8s.api.core.v1.Service", {"spec": {"ports": [{"targetPort": True}]}})
    text = "json: cannot unmarshal bool into Go"
    assert (
        str(raised.value) == f"{text} struct field ServicePort.spec.ports.targetPort of type int32"
    )
    assert raised.value.converted == f"{text} value of type int32"


def test_number_of_too_many_bits_is_not_cut_by_a_type_that_decodes_itself() -> None:
    for probe, is_cut in (
        ({"periodSeconds": 2**31}, True),
        ({"tcpSocket": {"port": 2**31}}, False),
    ):
        with pytest.raises(WrongTypeError) as raised:
            decode("io.k8s.api.core.v1.Pod", container(livenessProbe=probe))
        assert raised.value.is_overflow is is_cut


def test_wrong_quantity_does_not_name_the_field() -> None:
    with pytest.raises(DecodeError, match="quantities must match the regular expression"):
        decode("io.k8s.api.core.v1.Pod", container(resources={"limits": {"cpu": True}}))
