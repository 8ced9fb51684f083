"""The client of the API server: configuration, transport, verbs, errors and server-side apply.

.. code-block:: python

    config = await load_config()
    async with Transport(config) as transport:
        client = Client(transport, RESTMapper(transport), field_manager="example")
        pod = await client.get(GVK("", "v1", "Pod"), NamespacedName("default", "web"))

The public names are exported by :mod:`cfo.runtime`.
"""
