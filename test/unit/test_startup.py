"""Modules that are replaced while libraries are imported: they are not loaded, and what uses them later still works."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

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
    import html
    print(html.unescape("&lt;"))
"""


def test_deferred_modules_are_loaded_when_they_are_used() -> None:
    environment = {"http_proxy": "http://proxy:1", "HOME": "/", "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, env=environment)
    assert result.stdout.splitlines() == [
        "",
        "text/plain {'charset': 'utf-8'}",
        "&lt; http://proxy:1",
        "200 decompress",
        "2048",
        "2048",
        "<",
    ], result.stderr
