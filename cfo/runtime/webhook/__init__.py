"""Admission and conversion webhooks: request and response types, the HTTPS server, and its certificates.

.. code-block:: python

    class GreeterWebhook:
        def default(self, obj: Object, request: AdmissionRequest) -> None:
            obj["spec"].setdefault("greeting", "hello")

        def validate_create(self, obj: Object, request: AdmissionRequest) -> None:
            FieldErrors.check([] if obj["spec"]["greeting"] else [required(Path("spec", "greeting"))])

        ...


    webhook = GreeterWebhook()
    manager.webhooks.register(GREETER, defaulter=webhook, validator=webhook)

The modules:

* :mod:`.admission`: admission requests and responses, and the protocols that webhooks implement.
* :mod:`.field`: field paths and field errors.
* :mod:`.conversion`: the protocol of converters, and ConversionReviews.
* :mod:`.registration`: the registered webhooks, and the webhook configurations generated from them.
* :mod:`.options`: options of the server and its certificates.
* :mod:`.server`: the HTTPS server. It decodes and encodes with :mod:`.review`, dispatches through :mod:`.handlers`, and
  counts in :mod:`.metrics`.
* :mod:`.certificates`: serving certificates, their rotation, and CA injection.
* :mod:`.setup`: adds all of this to a manager.

This package re-exports the names that authors of webhooks need. It imports them when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfo.runtime.webhook.admission import (
        AdmissionRequest,
        AdmissionResponse,
        Defaulter,
        Denied,
        Handler,
        InvalidObject,
        Operation,
        UserInfo,
        Validator,
    )
    from cfo.runtime.webhook.conversion import Converter
    from cfo.runtime.webhook.field import FieldError, FieldErrors, Path
    from cfo.runtime.webhook.options import (
        CertificateFiles,
        RotatedCertificates,
        ServiceReference,
        WebhookOptions,
        WebhookURL,
    )
    from cfo.runtime.webhook.registration import Webhook, Webhooks

__all__ = [
    "AdmissionRequest",
    "AdmissionResponse",
    "CertificateFiles",
    "Converter",
    "Defaulter",
    "Denied",
    "FieldError",
    "FieldErrors",
    "Handler",
    "InvalidObject",
    "Operation",
    "Path",
    "RotatedCertificates",
    "ServiceReference",
    "UserInfo",
    "Validator",
    "Webhook",
    "WebhookOptions",
    "WebhookURL",
    "Webhooks",
]

_MODULES = ("field", "admission", "options", "conversion", "registration")


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first used (PEP 562)."""
    if name in __all__:
        for module_name in _MODULES:
            module = import_module(f"{__name__}.{module_name}")
            if name in module.__all__:
                globals()[name] = value = getattr(module, name)
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
