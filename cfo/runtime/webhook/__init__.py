"""Admission and conversion webhooks: request and response types, the HTTPS server, and its certificates.

.. code-block:: python

    class GreeterWebhook:
        def default(self, obj: Object, request: AdmissionRequest) -> None:
            obj["spec"].setdefault("greeting", "hello")

        def validate_create(self, obj: Object, request: AdmissionRequest) -> None:
            FieldErrors.check([] if obj["spec"]["greeting"] else [field.required(field.Path("spec", "greeting"))])

        ...


    webhook = GreeterWebhook()
    manager.webhooks.register(GREETER, defaulter=webhook, validator=webhook)

The modules:

* :mod:`.admission`: admission requests and responses, and the protocols that webhooks implement.
* :mod:`.conversion`: the protocol of converters, and ConversionReviews.
* :mod:`.registration`: the registered webhooks, and the webhook configurations generated from them.
* :mod:`.options`: options of the server and its certificates.
* :mod:`.server`: the HTTPS server. It decodes and encodes with :mod:`.review`, dispatches through
  :mod:`.review_handlers`, and counts in :mod:`.metrics`.
* :mod:`.certificates`: serving certificates, their rotation, and CA injection.
* :mod:`.setup`: adds all of this to a manager.

This package exports the names that authors of webhooks need.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
