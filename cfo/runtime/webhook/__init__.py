"""Admission and conversion webhooks: what is asked, what is answered, and the server and certificates between.

.. code-block:: python

    class GreeterWebhook:
        def default(self, obj: Object, request: AdmissionRequest) -> None:
            obj["spec"].setdefault("greeting", "hello")

        def validate_create(self, obj: Object, request: AdmissionRequest) -> None:
            FieldErrors.check([] if obj["spec"]["greeting"] else [required(Path("spec", "greeting"))])

        ...


    webhook = GreeterWebhook()
    manager.webhooks.register(GREETER, defaulter=webhook, validator=webhook)

The parts: :mod:`.field` says what is wrong with which field, :mod:`.admission` holds requests, responses and the
protocols that webhooks implement, :mod:`.conversion` those of converters; :mod:`.registration` is what is registered
and the configurations generated from that, :mod:`.options` how it is served; :mod:`.server` is the HTTPS server,
:mod:`.certificates` what it is believed by, and :mod:`.setup` puts all of it into a manager. The names that authors
of webhooks need are here as well, imported when they are first used.
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
    """Imports a public name from its module when it is first asked for (PEP 562)."""
    if name in __all__:
        for home in _MODULES:
            module = import_module(f"{__name__}.{home}")
            if name in module.__all__:
                globals()[name] = value = getattr(module, name)
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
