"""Admission of AppWrappers: label them with their creator, and reject AppWrappers that cannot run.

An AppWrapper lets its creator create objects through the operator. It may therefore contain only objects that its
creator is allowed to create (:mod:`cfo.webhooks.access`), in its own namespace. Nothing that was validated on creation
can change later.
"""

from cfo.webhooks.appwrapper.webhook import AppWrapperWebhook, setup

__all__ = ["AppWrapperWebhook", "setup"]
