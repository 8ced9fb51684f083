"""Handlers: the decorators of kopf on the cache and the queue of :mod:`cfo.runtime`.

.. code-block:: python

    import cfo_handlers as kopf


    @kopf.on.create("kopfexamples")
    def create(spec, name, **_):
        return {"message": f"{name} was created with {spec}"}

``cfo handlers run FILE`` runs such a file as an operator; :func:`add_to` adds the handlers to a manager. An operator
that was written with kopf needs another import and no other change, within the limits that docs/from-kopf.md lists.

The functions, their parameters and the keywords of handlers have the names and the meaning that they have in kopf. The
annotations and the finalizer of objects are kopf's, so that an operator can be moved in both directions.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
