"""kopf's own examples with a changed import: ``import kopf`` becomes ``import cfo_handlers as kopf``.

They are not part of this repository: ``KOPF_EXAMPLES`` is the folder ``examples`` in a checkout or source distribution
of kopf (``make test-kopf-examples``). Examples that use pykube are skipped if it is not installed.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from cfo.runtime import GVK, Client, NamespacedName, key_of
from cfo.runtime.objects import POD
from cfo.runtime.process import free_port
from test.support import eventually

EXAMPLES = Path(os.environ.get("KOPF_EXAMPLES", ""))
KIND = GVK("kopf.dev", "v1", "KopfExample")

pytestmark = pytest.mark.skipif(
    not os.environ.get("KOPF_EXAMPLES"), reason="KOPF_EXAMPLES is not set"
)


class Expected(NamedTuple):
    """What the log of an example contains after each step; ``pod``: the example is about pods."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    pod: bool = False


EXPECTED = {
    "01-minimal": Expected(
        ("And here we are! Creating: {'duration': '1m'", "Creation is processed: 1 succeeded")
    ),
    "02-children": Expected(("Creation is processed: 1 succeeded",)),
    "03-exceptions": Expected(("Creation is processed: 1 succeeded; 3 failed",)),
    "04-events": Expected(("Creation is processed: 1 succeeded",)),
    "05-handlers": Expected(
        ("CREATED 1st", "CREATED 2nd", "FIELD CHANGED: None -> value"),
        ("UPDATED", "FIELD CHANGED: value -> changed"),
        ("DELETED 1st", "DELETED 2nd"),
    ),
    "06-peering": Expected(("Creation is processed: 1 succeeded",)),
    "07-subhandlers": Expected(("Handling creation for item1", "Handling creation for item2")),
    "08-events": Expected(
        ("Event received: {'type': 'ADDED'", "Oops!"), ("'MODIFIED'",), ("'DELETED'",)
    ),
    "09-testing": Expected(("[default/kopf-example-1] Something was logged here.",)),
    "10-builtins": Expected(
        ("Pod killing happens in 30s",), (), ("Pod killing is cancelled",), pod=True
    ),
    "11-filtering-handlers": Expected(
        ("Creation is processed: 10 succeeded; 0 failed", "Field daemon is satisfied"),
        ("Field change is satisfied",),
        ("has exited on request",),
    ),
    "12-embedded": Expected(("Hello, kopf-example-2!", "Good bye, kopf-example-2!")),
    "13-hooks": Expected(
        ("Starting retried", "Logging in in 2s", "Handler 'pod_task' succeeded"), pod=True
    ),
    "14-daemons": Expected(
        (
            "Ping from a sync daemon: field='value', retry=3",
            "Ping from an async daemon: field='value'",
        ),
        ("field='changed'",),
        ("'background_sync' has exited on request",),
    ),
    "15-timers": Expected(
        ("Ping from a sync timer: field='value'", "Ping from an async timer: field='value'")
    ),
    "16-indexing": Expected(("Timer 'intervalled' succeeded",)),
    "17-admission": Expected(("Webhook 'mutate1' succeeded", "Webhook 'authhook' succeeded")),
    "99-all-at-once": Expected(
        (
            "Handler 'create_1' succeeded",
            "Handler 'create_pod' succeeded",
            "This pod is special for us",
        ),
        (),
        ("Handler 'delete' succeeded",),
    ),
}
FORBIDDEN = re.compile(r"NotImplementedError|TypeError|AttributeError|NameError|is ignored")


@pytest.mark.parametrize("folder", EXPECTED)
@pytest.mark.timeout(120)
async def test_kopf_example_runs_with_a_changed_import(
    folder: str,
    kube_client: Client,
    kubeconfig: Path,
    install_crds: Callable[..., list[str]],
    tmp_path: Path,
) -> None:
    source = (EXAMPLES / folder / "example.py").read_text()
    if "import pykube" in source and find_spec("pykube") is None:
        pytest.skip("pykube is not installed")
    install_crds(EXAMPLES / "crd.yaml")
    program = tmp_path / "example.py"
    program.write_text(
        re.sub(r"^import kopf$", "import cfo_handlers as kopf", source, flags=re.MULTILINE)
    )
    log = tmp_path / "log"
    expected, health = EXPECTED[folder], free_port()
    run = (
        "-m",
        "cfo_handlers",
        "run",
        "-A",
        "-v",
        "-L",
        f"http://127.0.0.1:{health}/healthz",
        str(program),
    )
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *((str(program),) if folder == "12-embedded" else run),
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        await _act(folder, expected, kube_client, log)
    finally:
        if process.returncode is None and folder != "12-embedded":
            process.terminate()
        code = await asyncio.wait_for(process.wait(), 120)
    assert code == 0, log.read_text()
    assert not FORBIDDEN.search(log.read_text()), log.read_text()


async def _act(folder: str, expected: Expected, client: Client, log: Path) -> None:
    async def logs(*texts: str) -> None:
        async def found() -> bool:
            content = log.read_text()
            assert all(text in content for text in texts), content[-3000:]
            return True

        await eventually(found, f"{folder} logs {texts}")

    if folder == "12-embedded":
        await logs(*expected.created)
        return
    await logs("Created webhook configuration" if folder == "17-admission" else "Starting workers")
    obj: dict[str, Any]
    if expected.pod:
        containers = [{"name": "c", "image": "i"}]
        metadata = {"name": f"pod-{folder}", "namespace": "default"}
        obj = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": containers},
        }
    else:
        obj = yaml.safe_load((EXAMPLES / "obj.yaml").read_text())
        obj["metadata"]["namespace"] = "default"
    kind = POD if expected.pod else KIND
    key = key_of(obj)
    await client.create(obj)
    try:
        await logs(*expected.created)
        if not expected.pod:
            await client.patch(kind, key, {"spec": {"field": "changed"}})
        await logs(*expected.changed)
    finally:
        await client.delete(kind, key, grace_period_seconds=0)

    async def is_deleted() -> bool:
        return await client.get(kind, NamespacedName("default", key.name)) is None

    await eventually(is_deleted, "the object is deleted")
    await logs(*expected.deleted)


def test_every_example_of_kopf_is_known() -> None:
    folders = {path.parent.name for path in EXAMPLES.glob("*/example.py")}
    assert folders == set(EXPECTED)


PROGRAM = """
import {library} as kopf

@kopf.on.resume("kopfexamples")
@kopf.on.create("kopfexamples")
@kopf.on.update("kopfexamples")
@kopf.on.delete("kopfexamples")
def handle(name, reason, **_):
    print(f"CALLED for {{name}}: {{reason}}.", flush=True)
"""


@pytest.mark.timeout(120)
async def test_operator_moves_to_cfo_and_back_to_kopf_without_a_write(
    kube_client: Client,
    kubeconfig: Path,
    install_crds: Callable[..., list[str]],
    namespace: str,
    tmp_path: Path,
) -> None:
    install_crds(EXAMPLES / "crd.yaml")
    obj = yaml.safe_load((EXAMPLES / "obj.yaml").read_text())
    obj["metadata"] = {"name": "moved", "namespace": namespace}
    await kube_client.create(obj)
    key, version = NamespacedName(namespace, "moved"), ""
    for number, (library, call) in enumerate(
        [
            ("kopf", "create"),
            ("cfo_handlers", "resume"),
            ("kopf", "resume"),
            ("cfo_handlers", "delete"),
        ]
    ):
        program, log = tmp_path / f"program{number}.py", tmp_path / f"log{number}"
        program.write_text(PROGRAM.format(library=library))
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-m",
                    library,
                    "run",
                    "-n",
                    namespace,
                    "--standalone",
                    str(program),
                ),
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                stdout=output,
                stderr=output,
            )
        if call == "delete":
            await kube_client.delete(KIND, key)

        async def is_done(log: Path = log, call: str = call) -> bool:
            assert f"CALLED for moved: {call}." in log.read_text(), log.read_text()
            current = await kube_client.get(KIND, key)
            if call == "delete":
                return current is None
            assert current is not None
            return "kopf.zalando.org/last-handled-configuration" in current["metadata"].get(
                "annotations", {}
            )

        await eventually(is_done, f"{library} calls the handler: {call}")
        process.terminate()
        await asyncio.wait_for(process.wait(), 120)
        current = await kube_client.get(KIND, key)
        if current is not None:
            assert current["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
            assert not version or version == current["metadata"]["resourceVersion"]
            version = current["metadata"]["resourceVersion"]
