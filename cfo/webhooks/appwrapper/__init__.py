"""Admission of AppWrappers: label them with their creator, and reject AppWrappers that cannot run.

An AppWrapper lets its creator create objects through the operator. It may therefore contain only objects that its
creator is allowed to create, in its own namespace. Nothing that was validated on creation can change later.
"""

from cfo.webhooks.appwrapper.webhook import AppWrapperWebhook, rules, setup

__all__ = ["AppWrapperWebhook", "rules", "setup"]
