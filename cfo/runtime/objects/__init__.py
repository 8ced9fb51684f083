"""Objects in their wire form: identity, metadata, owner references, conditions, kinds and typed resources."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
