"""Public key infrastructure: private keys, certificates and their rotation, and certificate requests."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
