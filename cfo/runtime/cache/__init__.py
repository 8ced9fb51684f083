"""Informers and the shared cache: list and watch, objects stored as bytes, indexes, and reads without requests."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
