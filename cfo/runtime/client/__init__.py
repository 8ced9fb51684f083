"""The client of the API server: configuration, transport, verbs, errors and server-side apply.

.. code-block:: python

    config = await load_config()
    async with Transport(config) as transport:
        client = Client(transport, RESTMapper(transport), field_manager="example")
        pod = await client.get(GVK("", "v1", "Pod"), NamespacedName("default", "web"))

:mod:`cfo.runtime` exports those that most programs need, too.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
