"""The operator's admission webhooks, one package per kind; the module ``webhook`` has its class and ``setup()``."""
