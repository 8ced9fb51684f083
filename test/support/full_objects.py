"""AppWrappers as large as etcd accepts, on the real control plane and on the embedded one."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest

from cfo.runtime.client.errors import InternalError, is_too_large
from cfo.runtime.objects.unstructured import Object
from envtest.apimachinery.errors import internal_error
from envtest.storage import store
from test.support.raycluster_environment import Environment

ETCD_LIMIT: Final = 1536 << 10
TOO_LARGE: Final = "etcdserver: request is too large"
"""What kube-apiserver answers with code 500 to a write that would make an object larger than 1.5 MiB."""


_UNCERTAINTY: Final = 4096
"""How many bytes more or fewer the stored object may have than its JSON here: managedFields and the request to etcd."""


def limit_object_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the embedded control plane store no object of more than 1.5 MiB, as etcd.

    As in kube-apiserver, such an object first loses its managedFields. A server-side apply keeps them there.
    """
    update = store.Store.update

    def limited_update(
        self: store.Store, resource: Any, obj: Object, *args: Any, **options: Any
    ) -> Any:
        if len(orjson.dumps(obj)) > ETCD_LIMIT:
            obj["metadata"].pop("managedFields", None)
        if len(orjson.dumps(obj)) > ETCD_LIMIT:
            raise internal_error(TOO_LARGE)
        return update(self, resource, obj, *args, **options)

    monkeypatch.setattr(store.Store, "update", limited_update)


async def fill_up(environment: Environment, wrapper: Object) -> None:
    """Add the longest annotation to the first component of ``wrapper`` that etcd accepts, without managedFields."""
    first, *others = wrapper["spec"]["components"]
    room = ETCD_LIMIT - len(orjson.dumps(wrapper))
    fits = room - _UNCERTAINTY
    fails = room + _UNCERTAINTY
    while fails - fits > 1:
        length = (fits + fails) // 2
        filled = {**first, "annotations": {"a": "x" * length}}
        patch = {
            "metadata": {"managedFields": [{}]},
            "spec": {"components": [filled, *others]},
        }
        try:
            await environment.patch(wrapper, patch)
            fits = length
        except InternalError as error:
            if not is_too_large(error):
                raise
            fails = length
