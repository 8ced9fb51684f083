"""Complete and validate MaintenanceWindows with admission webhooks, with certificates that the program manages."""

import argparse
import sys

import anyio
import yaml

from cfo.runtime import (
    GVK,
    ClientConfig,
    ConfigError,
    FieldError,
    FieldErrors,
    Manager,
    ManagerOptions,
    NamespacedName,
    Object,
    field,
    is_deleting,
    load_config,
    logs,
)
from cfo.runtime.controller import RunnableFailed
from cfo.runtime.objects import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION
from cfo.runtime.webhook import (
    AdmissionRequest,
    RotatedCertificates,
    ServiceReference,
    WebhookOptions,
    WebhookURL,
)

WINDOW = GVK("example.com", "v1", "MaintenanceWindow")
NAME = "maintenance-windows"
SPEC = field.Path("spec")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class WindowWebhook:
    """Sets defaults that a CRD cannot express, and validates rules that its schema cannot express."""

    def default(self, obj: Object, request: AdmissionRequest) -> None:
        """Set the requester, and every day if no day is set; the API server may call this more than once."""
        spec = obj["spec"]
        spec.setdefault("days", list(DAYS))
        spec.setdefault("requestedBy", request.user_info.username)

    def validate_create(self, obj: Object, request: AdmissionRequest) -> list[str]:
        """Report all errors together; the returned warnings are shown to the user."""
        spec = obj["spec"]
        errors: list[FieldError] = []
        for index, day in enumerate(spec["days"]):
            path = SPEC.child("days").index(index)
            if day not in DAYS:
                errors.append(field.not_supported(path, day, DAYS))
            elif day in spec["days"][:index]:
                errors.append(field.duplicate(path, day))
        minutes = spec["durationMinutes"]
        if minutes > 24 * 60:
            errors.append(
                field.invalid(
                    SPEC.child("durationMinutes"), minutes, "must be at most one day (1440)"
                )
            )
        FieldErrors.check(errors)
        return ["the window is longer than eight hours"] if minutes > 8 * 60 else []

    def validate_update(self, old: Object, obj: Object, request: AdmissionRequest) -> list[str]:
        """Reject a change of the requester, and apply the same checks as on create.

        An object that is being deleted must be able to lose its finalizers, whatever else it contains.
        """
        if is_deleting(obj):
            return []
        if old["spec"].get("requestedBy") != obj["spec"]["requestedBy"]:
            raise FieldErrors([field.forbidden(SPEC.child("requestedBy"), "is immutable")])
        return self.validate_create(obj, request)

    def validate_delete(self, obj: Object, request: AdmissionRequest) -> None:
        """Not called: the webhook is registered for CREATE and UPDATE, the default."""


def new_manager(config: ClientConfig, url: str = "") -> Manager:
    """Return a manager that serves the webhooks, at ``url`` instead of through the Service if it is set."""
    options = WebhookOptions(
        service=ServiceReference(config.namespace, NAME),
        certificates=RotatedCertificates(secret=NamespacedName(config.namespace, f"{NAME}-cert")),
        mutating_configuration=NAME,
        validating_configuration=NAME,
        url=WebhookURL.parse(url) if url else None,
    )
    manager = Manager(config, ManagerOptions(field_manager=NAME, webhook=options))
    webhook = WindowWebhook()
    manager.webhooks.register(WINDOW, defaulter=webhook, validator=webhook)
    return manager


def manifests(config: ClientConfig) -> list[Object | None]:
    """Return the webhook configurations for a deployment in the cluster; the running program sets their CA."""
    webhooks = new_manager(config).webhooks
    kinds = (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
    return [
        webhooks.configuration(kind, NAME, ServiceReference(config.namespace, NAME))
        for kind in kinds
    ]


async def main() -> None:
    """Run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--webhook-url",
        default="",
        help="https://HOST:PORT where the API server reaches this process",
    )
    parser.add_argument(
        "--manifests", action="store_true", help="print the webhook configurations and exit"
    )
    args = parser.parse_args()
    logs.configure()
    config = await load_config()
    if args.manifests:
        yaml.safe_dump_all(manifests(config), sys.stdout, sort_keys=False)
        return
    await new_manager(config, args.webhook_url).run(handle_signals=True)


if __name__ == "__main__":
    try:
        anyio.run(main)
    except (ConfigError, RunnableFailed) as error:
        sys.exit(str(error))
