"""Admission and conversion webhooks: registration, HTTPS server and certificates.

.. code-block:: python

    class GreeterWebhook:
        def default(self, obj: Object, request: AdmissionRequest) -> None:
            obj["spec"].setdefault("greeting", "hello")

        def validate_create(self, obj: Object, request: AdmissionRequest) -> None:
            FieldErrors.check([] if obj["spec"]["greeting"] else [field.required(field.Path("spec", "greeting"))])

        ...


    webhook = GreeterWebhook()
    manager.webhooks.register(GREETER, defaulter=webhook, validator=webhook)

:mod:`.admission` has the requests, the responses and the protocols of defaulters and validators, :mod:`.conversion`
the protocol of converters. :mod:`.registration` has the registered webhooks and generates their configurations,
:mod:`.options` has the options of the server. :mod:`.server` is the HTTPS server, :mod:`.certificates` manages its
certificates, and :mod:`.setup` adds all of them to a manager. The names for authors of webhooks are exported by
:mod:`cfo.runtime`.
"""
