"""Kubeconfig files for tests of the client configuration."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cfo.runtime import ClientConfig

TOKEN = "very-secret-token"


def kubeconfig(
    path: Path,
    user: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://api.example.com:6443/", **(cluster or {})}}
        ],
        "users": [{"name": "u", "user": {"token": TOKEN} if user is None else dict(user)}],
        **fields,
    }
    path.write_text(yaml.safe_dump(document))
    return path


def environment(home: Path, **variables: str) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"], **variables}


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def authorization(config: ClientConfig, *, renew: bool = False) -> str:
    return (await config.authenticate(renew=renew)).authorization
