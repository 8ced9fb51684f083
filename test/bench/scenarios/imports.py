"""Start-up cost: importing cfo.runtime and its peers, and commands until their first line of output."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time

import orjson

from test.bench.harness import REPOSITORY, Case, Sample, benchmark

KUBECONFIG = """
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'https://x'}}]
users: [{name: u, user: {token: abc}}]
"""
PROGRAMS = {  # FILE is a kubeconfig
    "aiohttp": "import aiohttp",
    "cfo.runtime": "import cfo.runtime",
    "cfo.runtime.Client": "from cfo.runtime import Client",
    "cfo.runtime.Manager": "from cfo.runtime import Manager",
    "cfo.operator": "import cfo.operator",
    "envtest.embedded": "import envtest.planes.embedded",
    "kubernetes_asyncio.client": "import kubernetes_asyncio.client",
    "kopf": "import kopf",
    "kubeconfig with cfo": "import asyncio, cfo.runtime.client\nasyncio.run(cfo.runtime.load_config(FILE))",
    "kubeconfig with kubernetes_asyncio": (
        "import asyncio, kubernetes_asyncio.client, kubernetes_asyncio.config\n"
        "settings = kubernetes_asyncio.client.Configuration()\n"
        "asyncio.run(kubernetes_asyncio.config.load_kube_config(FILE, client_configuration=settings))"
    ),
}
MEASUREMENT = """
import time
FILE = %r
started_at, cpu = time.perf_counter(), time.process_time()
%s
values = {"wall s": time.perf_counter() - started_at, "cpu s": time.process_time() - cpu}
import json, psutil
print(json.dumps(values | {"rss MB": psutil.Process().memory_info().rss / 1e6}))
"""
COMMANDS = {
    "cfo --help": ["--help"],
    "cfo version": ["version"],
    "cfo envtest": ["envtest"],
    "cfo envtest --controllers none": ["envtest", "--controllers", "none"],
}


@benchmark(
    title="an import (or the loading of a kubeconfig) in a new interpreter",
    subjects=tuple(PROGRAMS),
    repeat=5,
)
async def imports(case: Case) -> Sample:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(KUBECONFIG)
        file.flush()
        code = MEASUREMENT % (file.name, PROGRAMS[case.subject])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code), stdout=asyncio.subprocess.PIPE, cwd=REPOSITORY
        )
        output, _ = await process.communicate()
    return Sample(orjson.loads(output))


@benchmark(
    title="a command, from exec until its first line of output", subjects=tuple(COMMANDS), repeat=5
)
async def commands(case: Case) -> Sample:
    def first_line() -> float:
        with tempfile.TemporaryDirectory() as folder:
            started_at = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "cfo", *COMMANDS[case.subject]],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PYTHONPATH": str(REPOSITORY), "HOME": folder},
                cwd=folder,
            )
            assert process.stdout is not None
            try:
                if not process.stdout.readline():
                    raise RuntimeError(f"{case.subject}: no output")
                return time.perf_counter() - started_at
            finally:
                process.terminate()
                process.communicate(timeout=20)

    return Sample({"first line s": await asyncio.to_thread(first_line)})
