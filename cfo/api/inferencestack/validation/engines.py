"""Whether the settings of a stack suit its engine: fields that another engine has no use for, and arguments of vLLM.

Names and paths become arguments of a program and keys of a JSON file, so only characters that mean nothing there are
accepted. The number of LoRA adapters is limited, because each becomes a target in the ConfigMap of the gateway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from cfo.api.inferencestack.engines import VLLM
from cfo.api.inferencestack.resolution import ResolvedStack, is_enabled
from cfo.api.inferencestack.validation.pods import as_integer
from cfo.runtime import FieldError
from cfo.runtime.objects.field import (
    OMIT,
    Path,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)

MAX_ADAPTERS: Final = 200
"""The maximum number of LoRA adapters of a stack."""
MAX_ARGUMENTS: Final = 64
_MAX_ARGUMENT: Final = 1024

_APPLICATIONS: Final = Path("spec", "applications")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}")
_LOCATION: Final = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._/:@+=~-]{0,511}")
_NAME_FORM: Final = "must be a letter or digit, followed by at most 127 letters, digits and ._/:-"
_LOCATION_FORM: Final = (
    "must be a letter, digit or '/', followed by at most 511 letters, digits and ._/:@+=~-"
)
_ARGUMENT: Final = re.compile(r"--([a-z0-9][a-z0-9._-]*)(=.*)?", re.DOTALL)

_OTHER_ENGINES: Final = {
    "externalEngineImage": "the engine vllm has one container; use image",
    "sidecarImage": "the engine vllm has no sidecar",
    "sidecar": "the engine vllm has no sidecar",
}
_OWN_FIELDS: Final = ("extraArgs", "loraAdapters")
_READER_HINTS: Final = {
    "accessToken": "use accessTokenSecretRef",
    "loras": "use loraAdapters",
    "enginePort": f"its port is {VLLM.port}",
    "cudaVisibleDevices": "use env: CUDA_VISIBLE_DEVICES",
    "logLevel": "use env: VLLM_LOGGING_LEVEL",
    "maxBatchSize": "use extraArgs: --max-num-seqs",
    "prefillChunkSize": "use extraArgs: --max-num-batched-tokens",
    "quantType": "use extraArgs: --quantization",
    "disableCudaGraph": "use extraArgs: --enforce-eager",
}
_OWN_ARGUMENTS: Final = {
    "model": "readerConfig.modelName",
    "served-model-name": "readerConfig.consumerGroup",
    "tensor-parallel-size": "readerConfig.tensorParallel",
    "max-model-len": "readerConfig.maxSequenceLength",
    "enable-lora": "loraAdapters",
    "lora-modules": "loraAdapters",
}
"""Arguments that a field sets."""
_FIXED_ARGUMENTS: Final = frozenset(
    {"api-key", "config", "headless", "host", "port", "root-path", "uds"}
)
"""Arguments with which the gateway or the probes would not reach vLLM, or that replace all others."""


def engine_errors(stack: ResolvedStack) -> Iterator[FieldError]:
    """Yield the errors that follow from the engine of ``stack``, whose JSON types are correct."""
    written = [(Path("spec", "applicationTemplate"), stack.spec.get("applicationTemplate") or {})]
    written += (
        (_APPLICATIONS.key(name), section)
        for name, section in (stack.spec.get("applications") or {}).items()
    )
    if stack.engine is not VLLM:
        for path, section in written:
            yield from _other_engine_errors(section, path)
        return
    yield from _stack_errors(stack)
    for path, section in written:
        yield from _field_errors(section, path)
    applications = stack.applications.values()
    models = {str(section["readerConfig"].get("consumerGroup")) for section in applications}
    count = sum(len(section.get("loraAdapters") or ()) for section in applications)
    if count > MAX_ADAPTERS:
        yield replace(
            too_many(_APPLICATIONS, count, MAX_ADAPTERS),
            detail=f"must have at most {MAX_ADAPTERS} loraAdapters in all applications",
        )
        return
    for name, section in stack.applications.items():
        path = _APPLICATIONS.key(name)
        yield from _reader_errors(section.get("readerConfig") or {}, path.child("readerConfig"))
        yield from _adapter_errors(section, path.child("loraAdapters"), models)
        yield from _argument_errors(section.get("extraArgs") or (), path.child("extraArgs"))
        scaling = section.get("scaling") or {}
        is_scaled_by_keda = is_enabled(scaling) and scaling.get("type") != "HPA"
        triggers = (scaling.get("spec") or {}).get("triggers")
        if is_scaled_by_keda and not triggers:
            yield required(
                path.child("scaling", "spec", "triggers"),
                "the gateway of the engine vllm has no queue by which KEDA could scale; set triggers, or the type HPA",
            )


def _other_engine_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in an application of another engine, or in the template."""
    if section.get("engine") == VLLM.name:
        reason = "set vllm in spec.applicationTemplate: the gateway depends on it"
        yield forbidden(path.child("engine"), reason)
    for name in _OWN_FIELDS:
        if section.get(name) is not None:
            yield forbidden(path.child(name), "only the engine vllm has it")


def _stack_errors(stack: ResolvedStack) -> Iterator[FieldError]:
    config = Path("spec", "gateway", "config")
    for key in stack.gateway.get("config") or {}:
        yield forbidden(config.child(key), "the gateway of the engine vllm has no such parameters")
    if "kedaNamespace" in (stack.spec.get("networkPolicy") or {}):
        yield forbidden(
            Path("spec", "networkPolicy", "kedaNamespace"), "KEDA does not call the gateway of vllm"
        )


def _field_errors(section: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors in fields of ``section``, as written, that have no meaning for vLLM."""
    engine = section.get("engine")
    if engine is not None and engine != VLLM.name:
        yield invalid(path.child("engine"), engine, "must be vllm, as in spec.applicationTemplate")
    for name, reason in _OTHER_ENGINES.items():
        if section.get(name) is not None:
            yield forbidden(path.child(name), reason)
    if (section.get("scaling") or {}).get("metricTarget") is not None:
        yield forbidden(
            path.child("scaling", "metricTarget"), "the gateway of the engine vllm has no queue"
        )
    known = VLLM.reader_keys or frozenset()
    for key in section.get("readerConfig") or {}:
        if key not in known:
            others = f"set arguments of vLLM in extraArgs; it has only {', '.join(sorted(known))}"
            hint = _READER_HINTS.get(key, others)
            at = path.child("readerConfig", key)
            yield forbidden(at, f"the engine vllm does not have it: {hint}")


def _reader_errors(reader: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    model = reader.get("modelName")
    group = reader.get("consumerGroup")
    device = reader.get("device")
    if model in (None, ""):
        yield required(
            path.child("modelName"), "the Hugging Face id or the path of the model that vLLM serves"
        )
    elif not _LOCATION.fullmatch(str(model)):
        yield invalid(path.child("modelName"), model, _LOCATION_FORM)
    if not _NAME.fullmatch(str(group)):
        yield invalid(path.child("consumerGroup"), group, _NAME_FORM)
    if device not in ("cpu", "cuda"):
        yield not_supported(path.child("device"), device, ("cpu", "cuda"))
    length = reader.get("maxSequenceLength")
    if length is not None and not as_integer(length):
        yield invalid(path.child("maxSequenceLength"), length, "must be a positive integer")


def _adapter_errors(
    section: Mapping[str, Any], path: Path, models: set[str]
) -> Iterator[FieldError]:
    """Yield the errors in the LoRA adapters of an application; their names are added to ``models``."""
    for index, adapter in enumerate(section.get("loraAdapters") or ()):
        at = path.index(index)
        name = adapter.get("name")
        yield from _pattern_errors(name, at.child("name"), _NAME, _NAME_FORM)
        yield from _pattern_errors(adapter.get("path"), at.child("path"), _LOCATION, _LOCATION_FORM)
        if name and name in models:
            yield duplicate(at.child("name"), name)
        elif name:
            models.add(name)


def _pattern_errors(
    value: str | None, path: Path, pattern: re.Pattern[str], form: str
) -> Iterator[FieldError]:
    """Yield an error unless ``value`` is set and matches ``pattern``, which ``form`` describes."""
    if not value:
        yield required(path)
    elif not pattern.fullmatch(value):
        yield invalid(path, value, form)


def _argument_errors(arguments: Any, path: Path) -> Iterator[FieldError]:
    if len(arguments) > MAX_ARGUMENTS:
        yield too_many(path, len(arguments), MAX_ARGUMENTS)
        return
    for index, argument in enumerate(arguments):
        at = path.index(index)
        if len(argument) > _MAX_ARGUMENT:
            yield too_long(at, OMIT, _MAX_ARGUMENT)
            continue
        found = _ARGUMENT.fullmatch(argument)
        if found is None:
            yield invalid(at, argument, "must be one argument of the form --name or --name=value")
            continue
        name, _, _ = found[1].replace("_", "-").partition(".")
        if name in _OWN_ARGUMENTS:
            yield forbidden(at, f"set by {_OWN_ARGUMENTS[name]}")
        elif name in _FIXED_ARGUMENTS or name.startswith("ssl-"):
            yield forbidden(at, f"--{name} would make vLLM unreachable for the gateway")
