"""The webhook server in a process of its own, for the benchmark: prints its port, serves until its input ends."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from cfo.runtime import logs
from cfo.runtime.objects import GVK, NamespacedName, Object
from cfo.runtime.webhook.admission import AdmissionRequest
from cfo.runtime.webhook.certificates.material import Stored, advance
from cfo.runtime.webhook.certificates.serving import ServingCertificate
from cfo.runtime.webhook.field import FieldErrors, Path, forbidden
from cfo.runtime.webhook.metrics import WebhookMetrics
from cfo.runtime.webhook.options import RotatedCertificates
from cfo.runtime.webhook.registration import Webhooks
from cfo.runtime.webhook.server import WebhookServer

WIDGET = GVK("bench.example.com", "v1", "Widget")


class Injecting:
    """Adds a sidecar, a volume and an annotation, as operators do."""

    def default(self, obj: Object, request: AdmissionRequest) -> None:
        obj["metadata"].setdefault("annotations", {})["bench.example.com/version"] = "1"
        pod = obj["spec"]["template"]["spec"]
        pod["containers"].append({"name": "proxy", "image": "registry.example.com/proxy:1", "args": ["--port=8443"]})
        pod.setdefault("volumes", []).append({"name": "tls", "secret": {"secretName": "tls"}})

    def validate_create(self, obj: Object, request: AdmissionRequest) -> None:
        privileged = Path("spec", "template", "spec")
        FieldErrors.check(
            forbidden(privileged.child("hostNetwork"), "not here")
            for key in obj["spec"]["template"]["spec"]
            if key == "hostNetwork"
        )

    def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> None: ...
    def validate_delete(self, obj: Object, request: AdmissionRequest) -> None: ...


async def main() -> None:
    logs.configure("json", "warning")
    policy = RotatedCertificates(secret=NamespacedName("", ""))
    material, _ = advance(Stored(), policy, ("127.0.0.1",), now=datetime.now(UTC))
    serving = ServingCertificate()
    serving.serve(material.pair)
    webhooks = Webhooks()
    webhook = Injecting()
    webhooks.register(WIDGET, defaulter=webhook, validator=webhook)
    server = WebhookServer(
        webhooks, serving, WebhookMetrics(CollectorRegistry()), bind_address="127.0.0.1:0", drain=0.0
    )
    running = asyncio.create_task(server.run())
    while not server.listening:  # noqa: ASYNC110 (once, at the start)
        await asyncio.sleep(0.01)
    print(server.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.stop()
    await running


if __name__ == "__main__":
    asyncio.run(main())
