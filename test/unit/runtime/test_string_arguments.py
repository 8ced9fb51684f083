"""One string where the library takes a list of strings: its characters must not be taken for the strings."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from cfo.runtime.cache.cache import Cache
from cfo.runtime.cache.selectors import Operator, Requirement, Selection
from cfo.runtime.manager.metrics_server import MetricsTLS
from cfo.runtime.objects import field
from cfo.runtime.objects.conditions import Conditions
from cfo.runtime.objects.resource.custom_resource import CustomResource
from cfo.runtime.objects.unstructured import GVK
from cfo.runtime.pki.rotation import issue_certificate
from cfo.runtime.webhook.admission import AdmissionResponse, Operation
from cfo.runtime.webhook.registration import Webhook, Webhooks

WORD: Any = "word"
UNUSED: Any = SimpleNamespace()
WIDGET = GVK("example.com", "v1", "Widget")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def declare(**keywords: Any) -> None:
    class Site(CustomResource, group="example.com", version="v1", **keywords):
        """A class whose declaration is invalid."""


def new_webhook(**keywords: Any) -> Webhook:
    lists: dict[str, Any] = {"groups": (), "versions": (), "resources": (), **keywords}
    return Webhook(name="a.b.c", path="/a", handler=UNUSED, mutating=True, **lists)


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: Selection.of(fields=WORD), "fields"),
        (lambda: Selection.of(namespaces=WORD), "namespaces"),
        (lambda: Requirement.create("key", Operator.IN, WORD), "values"),
        (lambda: Cache(UNUSED, UNUSED, namespaces=WORD), "namespaces"),
        (lambda: Cache(UNUSED, UNUSED, field_managers=WORD), "field_managers"),
        (lambda: MetricsTLS(names=WORD), "names"),
        (lambda: Conditions({"metadata": {}}, now=NOW).summarize(WORD), "types"),
        (lambda: field.not_supported("spec.size", "XL", WORD), "supported"),
        (lambda: declare(short_names=WORD), "class Site: short_names"),
        (lambda: declare(categories=WORD), "class Site: categories"),
        (lambda: issue_certificate(UNUSED, WORD, UNUSED, now=NOW), "names"),
        (lambda: AdmissionResponse(allowed=True, warnings=WORD), "warnings"),
        (lambda: new_webhook(groups=WORD), "groups"),
        (lambda: new_webhook(versions=WORD), "versions"),
        (lambda: new_webhook(resources=WORD), "resources"),
        (lambda: new_webhook(operations=WORD), "operations"),
    ],
)
def test_one_string_instead_of_a_list_is_rejected(build: Callable[[], object], name: str) -> None:
    with pytest.raises(TypeError) as caught:
        build()
    assert str(caught.value) == f"{name}: 'word': must be a list of strings"


@pytest.mark.parametrize("name", ["operations", "validator_operations"])
def test_one_operation_instead_of_a_list_is_rejected(name: str) -> None:
    one: dict[str, Any] = {name: Operation.CREATE}
    with pytest.raises(TypeError, match=f"^{name}: .*: must be a list of strings$"):
        Webhooks().register(WIDGET, validator=UNUSED, **one)
