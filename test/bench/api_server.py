"""The API server of a benchmark: envtest in a separate process.

The measured program is another process. The benchmark itself is the third one: it generates the load. The audit log of
the API server shows which requests the measured program sent, and when.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import yaml

from cfo.api.appwrapper.models import appwrapper_crd
from cfo.console.demo import crds
from cfo.runtime import Client, RESTMapper, Transport, load_config
from cfo.runtime.objects.unstructured import Object
from test.bench.processes import IDLE_SECONDS, MeasuredProcess, start_process, wait_until

OPERATOR_USER = "bench-operator"
"""The user of the measured program; only its requests are counted."""

CONCURRENCY = 24
"""How many requests of the load generator are in flight at a time."""


async def run_concurrently(
    calls: Iterable[Callable[[], Awaitable[Any]]], limit: int = CONCURRENCY
) -> None:
    """Run all ``calls``, at most ``limit`` at a time."""
    remaining = iter(calls)

    async def work() -> None:
        for call in remaining:
            await call()

    async with asyncio.TaskGroup() as workers:
        for _ in range(limit):
            workers.create_task(work())


@dataclass(frozen=True)
class RequestCounts:
    """Requests of the measured program, without watches and leases.

    ``by_resource`` are counts by ``verb resource``, for errors by ``verb resource -> status code``. ``last`` is the
    Unix time of the last response.
    """

    by_resource: dict[str, int]
    last: float

    @property
    def total(self) -> int:
        """All requests."""
        return sum(self.by_resource.values())

    @property
    def writes(self) -> int:
        """Successful writes, without Events and access reviews."""
        writes = ("create ", "update ", "patch ", "delete ")
        return sum(
            count
            for request, count in self.by_resource.items()
            if request.startswith(writes)
            and not request.endswith(("reviews", " events"))
            and " -> " not in request
        )


class APIServer:
    """A running API server. :attr:`client` is for the load generator, :attr:`kubeconfig` for the measured program."""

    def __init__(self, process: MeasuredProcess, folder: Path, client: Client) -> None:
        self.process = process
        self.folder = folder
        self.client = client
        self.kubeconfig = folder / "operator.kubeconfig"
        self.admin_kubeconfig = folder / "admin.kubeconfig"
        self._audit_log = folder / "audit.log"

    def audit_position(self) -> int:
        """Return the current end of the audit log, in bytes, for :meth:`requests_since`."""
        return self._audit_log.stat().st_size

    def requests_since(self, position: int = 0) -> RequestCounts:
        """Count the requests of the measured program after ``position`` of the audit log.

        Raises :class:`RuntimeError` if the API server responded to one of them with a server error, because then the
        measurement is invalid.
        """
        counts: Counter[str] = Counter()
        last = 0.0
        with self._audit_log.open("rb") as file:
            file.seek(position)
            for line in file:
                if OPERATOR_USER.encode() not in line or not line.endswith(b"\n"):
                    continue
                event = orjson.loads(line)
                reference = event.get("objectRef", {})
                resource = reference.get("resource") or event["requestURI"].partition("?")[0]
                if (
                    event["verb"] == "watch"
                    or resource == "leases"
                    or event["user"]["username"] != OPERATOR_USER
                ):
                    continue
                if reference.get("subresource"):
                    resource += f"/{reference['subresource']}"
                code = event["responseStatus"]["code"]
                if code >= 500:
                    raise RuntimeError(
                        f"the API server responded to {event['verb']} {event['requestURI']} with {code}"
                    )
                counts[f"{event['verb']} {resource}{f' -> {code}' if code >= 400 else ''}"] += 1
                last = max(last, datetime.fromisoformat(event["stageTimestamp"]).timestamp())
        return RequestCounts(dict(counts), last)

    async def wait_until_idle(self, idle: float = IDLE_SECONDS, timeout: float = 1200.0) -> None:
        """Wait until no client has sent a request for ``idle`` seconds, except for lease renewals.

        Raises :class:`TimeoutError` after ``timeout`` seconds.
        """
        end = time.monotonic() + timeout
        since, position = time.monotonic(), self.audit_position()
        while time.monotonic() - since < idle:
            await asyncio.sleep(0.05)
            with self._audit_log.open("rb") as file:
                file.seek(position)
                lines = file.readlines()
            position += sum(map(len, lines))
            if any(b"/leases" not in line for line in lines):
                since = time.monotonic()
            if time.monotonic() > end:
                raise TimeoutError(f"the API server was not idle within {timeout:.0f} s")

    async def create_all(self, objects: Iterable[Object]) -> None:
        """Create all ``objects``, several at a time."""
        await run_concurrently(partial(self.client.create, obj) for obj in objects)


@asynccontextmanager
async def api_server(
    *extra_crds: Object, controllers: Sequence[str] = ()
) -> AsyncIterator[APIServer]:
    """Run envtest with the CRDs of RayClusters and AppWrappers and ``extra_crds``, in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="cfo-bench-") as name:
        folder = Path(name)
        crd_file = folder / "crds.yaml"
        crd_file.write_bytes(
            b"\n---\n".join(
                orjson.dumps(crd) for crd in [*crds.load(), appwrapper_crd(), *extra_crds]
            )
        )
        token, admin = secrets.token_hex(16), folder / "admin.kubeconfig"
        (folder / "tokens.csv").write_text(
            f'{token},{OPERATOR_USER},{OPERATOR_USER},"system:masters"\n'
        )
        command = [
            *(sys.executable, "-m", "envtest", "--kubeconfig", str(admin), "--crds", str(crd_file)),
            *(
                "--token-auth-file",
                str(folder / "tokens.csv"),
                "--audit-log",
                str(folder / "audit.log"),
            ),
            *(
                "--controllers",
                ",".join(controllers) or "none",
                "--service-cluster-ip-range",
                "10.0.0.0/16",
            ),
        ]
        async with start_process(command, folder / "envtest.log") as process:

            def is_ready() -> bool:
                process.check_running()
                # envtest prints "export KUBECONFIG=..." when it is ready.
                return "export" in process.log.read_text(errors="replace")

            await wait_until(is_ready, "start of the API server", 60)
            document = yaml.safe_load(admin.read_text())
            document["users"][0]["user"] = {"token": token}
            (folder / "operator.kubeconfig").write_text(yaml.safe_dump(document))
            async with Transport(await load_config(str(admin))) as transport:
                yield APIServer(
                    process, folder, Client(transport, RESTMapper(transport), field_manager="bench")
                )
