"""The operator's admission webhooks, one package per kind; each has a module ``webhook`` with the webhook class and
``setup()``."""
