"""Custom resources: CRDs, their registration, and the strategy of their objects.

``crd_strategy`` defaults and validates CRDs (``structural`` their schemas, ``list_types`` their list and map types),
``lifecycle`` accepts their names, establishes and removes them, ``custom_resource_strategy`` is the strategy of their
objects, and ``conversion`` converts objects between versions.
"""
