"""``cfo run --embedded``: checks the options, and runs the demo, which needs the extra ``embedded``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cfo.console.errors import InvalidInput
from cfo.console.execution import configure_logs, execute, log_errors, namespace_variable, not_installed


def demonstrate(options: Mapping[str, Any]) -> None:
    """Run the operator on an embedded control plane with the options of ``cfo run``."""
    configure_logs(options["log_format"] or "console", options["log_level"])
    try:
        from cfo.console.demo.run import run_embedded
    except ModuleNotFoundError as error:
        raise not_installed(error) from None
    for name in ("webhook_url", "webhook_cert_dir"):
        if options[name] is not None:
            flag = f"--{name.replace('_', '-')}"
            raise InvalidInput(f"{flag} cannot be used with --embedded, which always serves webhooks")
    with log_errors(options["log_format"] == "json"):
        execute(
            partial(
                run_embedded,
                namespace=namespace_variable() or "default",
                config_name=options["config_name"],
                kubeconfig=Path(options["kubeconfig"] or "cfo.kubeconfig"),
                manifests=[Path(path) for path in options["manifests"]],
                overview=options["overview"],
                until_settled=options["until_settled"],
            )
        )
