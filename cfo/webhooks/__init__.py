"""The operator's admission webhooks, one package per kind.

The module ``webhook`` of each package contains the webhook class and ``setup()``.
"""
