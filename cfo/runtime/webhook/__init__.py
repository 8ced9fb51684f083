"""Admission webhooks: request and response types, the HTTPS server, and its certificates.

.. code-block:: python

    class GreeterWebhook:
        def default(self, obj: Object, request: AdmissionRequest) -> None:
            obj["spec"].setdefault("greeting", "hello")

        def validate_create(self, obj: Object, request: AdmissionRequest) -> None:
            FieldErrors.check([] if obj["spec"]["greeting"] else [field.required(field.Path("spec", "greeting"))])

        ...


    webhook = GreeterWebhook()
    manager.webhooks.register(GREETER, defaulter=webhook, validator=webhook)

This package exports the names that authors of webhooks need.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
