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
protocols that webhooks implement, :mod:`.registration` what is registered and the configurations generated from that,
:mod:`.server` the HTTPS server, :mod:`.certificates` what it is believed by.
"""
