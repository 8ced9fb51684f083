"""What a program needs from its machine: clock, logs, sockets, files and the health of its event loop."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
