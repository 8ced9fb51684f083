"""What objects look like: schema nodes, and what follows from them.

``node`` is the schema itself, ``formats`` and ``quantities`` are the leaf types; ``defaulting``, ``pruning`` and
``validation`` are compiled from nodes; ``cel`` is the expression language; ``strict`` finds unknown fields.
"""
