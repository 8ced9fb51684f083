"""Modules that are replaced while libraries are imported: they are not loaded, and what uses them later still works."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

_PROGRAM: Final = """
import sys
from cfo.startup import _DEFERRED_MODULES, tune_process

sys.modules.pop("importlib.metadata", None)  # an environment for development may have loaded it
with tune_process():
    print(*(name for name in _DEFERRED_MODULES if name in sys.modules))
    import aiohttp.helpers, aiohttp.web, aiohttp.web_protocol, prometheus_client.exposition
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    print(*aiohttp.helpers.parse_content_type("text/plain; charset=utf-8"))
    print(aiohttp.web_protocol.html_escape("<"), dict(aiohttp.helpers.proxies_from_env())["http"].proxy)
    print(aiohttp.web.FileResponse("/").status, prometheus_client.exposition.gzip.decompress.__name__)
    key = rsa.generate_private_key(65537, 2048)
    password = serialization.BestAvailableEncryption(b"password")
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, password)
    print(serialization.load_pem_private_key(text, b"password").key_size)
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    print(serialization.load_ssh_public_key(key.public_key().public_bytes(encoding, form)).key_size)
    import anyio, attr, msgspec, yaml
    from cryptography.hazmat.primitives.asymmetric import x25519
    from cryptography.x509 import Name

    print(aiohttp.FormData({"a": "b"})().size, aiohttp.MultipartWriter(boundary="x").boundary)
    print(aiohttp.client.URL("http://bücher.example").raw_host, len(aiohttp.TraceConfig().on_request_start))
    print(attr.validators.instance_of(int), attr.define(type("A", (), {}))())
    print(msgspec.json.schema(int), len(x25519.X25519PrivateKey.generate().private_bytes_raw()))
    print([type(stream).__name__ for stream in anyio.create_memory_object_stream[int](1)])
    print(Name.from_rfc4514_string("CN=a").rdns, yaml.load("[1, 2001-01-01]", yaml.SafeLoader))
    import asyncio
    from cryptography.x509 import CertificateBuilder

    print(type(CertificateBuilder().public_key(x25519.X25519PrivateKey.generate().public_key())).__name__)

    async def answer(request):
        form = await request.post()
        response = aiohttp.web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(form["file"].file.read())
        return response

    async def exchange():
        app = aiohttp.web.Application()
        app.router.add_post("/", answer)
        runner = aiohttp.web.AppRunner(app)
        await runner.setup()
        await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
        form = aiohttp.FormData()
        form.add_field("file", b"content", filename="name")
        async with aiohttp.ClientSession() as session:
            async with session.post(f"http://127.0.0.1:{runner.addresses[0][1]}", data=form) as response:
                print(await response.text())
        await runner.cleanup()

    asyncio.run(exchange())
    import html
    print(html.unescape("&lt;"))
"""


@pytest.mark.parametrize("variables", [{}, {"AIOHTTP_NO_EXTENSIONS": "1"}], ids=["C", "Python"])
def test_deferred_modules_are_loaded_when_they_are_used(variables: dict[str, str]) -> None:
    environment = {
        "http_proxy": "http://proxy:1",
        "HOME": "/",
        "PYTHONPATH": ":".join(sys.path),
        **variables,
    }
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, env=environment
    )
    assert result.stdout.splitlines() == [
        "",
        "text/plain {'charset': 'utf-8'}",
        "&lt; http://proxy:1",
        "200 decompress",
        "2048",
        "2048",
        "3 x",
        "xn--bcher-kva.example 0",
        "<instance_of validator for type <class 'int'>> A()",
        "{'type': 'integer'} 32",
        "['MemoryObjectSendStream', 'MemoryObjectReceiveStream']",
        "[<RelativeDistinguishedName(CN=a)>] [1, datetime.date(2001, 1, 1)]",
        "CertificateBuilder",
        "content",
        "<",
    ], result.stderr
