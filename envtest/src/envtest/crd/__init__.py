"""Custom resources: definitions, what makes them served, and the objects themselves.

``definition`` judges a CustomResourceDefinition (``structural`` its schemas), ``lifecycle`` accepts its names,
establishes and removes it, ``resource`` is the strategy of the objects, ``conversion`` asks conversion webhooks.
"""
