"""The operator's admission webhooks, one package per kind.

Each package exports ``setup()``, which registers its webhooks.
"""
