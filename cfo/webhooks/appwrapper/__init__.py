"""Admission of AppWrappers: label them with their creator, and reject AppWrappers that cannot run.

An AppWrapper lets its creator create objects through the operator. It may therefore contain only objects that its
creator is allowed to create, in its own namespace. Nothing that was validated on creation can change later.

* :mod:`.webhook`: the defaulter and validator that API servers call, ``setup()``, and the RayClusters in components,
  which the webhook of RayClusters validates as well.
* :mod:`.access`: ask the API server whether the wrapped kinds are served, and whether the user can create them.
* :mod:`.json_types`: check counts and JSON types before anything else reads the AppWrapper.
* :mod:`.validation`: check an AppWrapper. Pure functions. It also finds errors that would otherwise surface only when
  components are created, or never.
"""

from cfo.webhooks.appwrapper.webhook import AppWrapperWebhook, rules, setup

__all__ = ["AppWrapperWebhook", "rules", "setup"]
