"""A library for Kubernetes operators on asyncio, with controller-runtime's concepts and names.

.. code-block:: python

    class Greeter:
        rules = [Rule("", "configmaps", CRUD)]

        def __init__(self, client: Client) -> None:
            self.client = client

        async def reconcile(self, request: Request) -> Result:
            account = await self.client.get(SERVICE_ACCOUNT, request)  # from the cache
            if account is None or is_deleting(account):
                return Result()
            children = [Child.present(greeting_for(account))]
            results = await reconcile_children(self.client, account, children)  # writes only what differs
            results.raise_errors()
            return Result(requeue_after=results.retry_after)


    manager = Manager(await load_config(), ManagerOptions(field_manager="greeter"))
    Builder(manager).for_(SERVICE_ACCOUNT).owns(CONFIG_MAP).complete(Greeter(manager.client))
    await manager.run(handle_signals=True)

Data flow: a watch line goes into the :class:`Cache` and from there as an event to the handlers of a
:class:`Controller`, whose work queue passes each :data:`Request` to the :class:`Reconciler`. Writes of its
:class:`Client` are reported by later watch lines.

Objects are plain dicts in their wire form. Each package (:mod:`~cfo.runtime.client`, :mod:`~cfo.runtime.webhook` and so
on) lists its public names in its ``__init__.pyi``; the names that most programs need are public here, too. A name is
imported from its module on first use, so importing :mod:`cfo.runtime` is cheap. Functions whose names are clear only
together with the module's name are used through the module: ``field.required(...)``, ``logs.configure()``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
