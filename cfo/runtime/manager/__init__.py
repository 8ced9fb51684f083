"""The manager: start and stop, leader election, Events, health, metrics and debug servers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
