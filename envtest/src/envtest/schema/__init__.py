"""Schemas of objects, and the validation, defaulting and pruning that is compiled from them.

``node`` is the schema itself; ``formats``, ``patterns`` and ``quantity`` are the leaf types. ``validation`` and
``shaping`` (defaulting, pruning, strict decoding) are compiled from nodes. ``cel`` is the expression language, and
``rules`` are the ``x-kubernetes-validations`` written in it.
"""
