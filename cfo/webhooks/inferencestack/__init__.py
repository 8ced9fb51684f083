"""Admission of InferenceStacks: reject stacks that cannot be rendered, and warn about what will not work.

:mod:`.webhook` is the validator that API servers call, and ``setup()``. The rules are in
:mod:`cfo.api.inferencestack.validation`, because the controller applies them as well. There is no defaulter: clients
such as the original console edit the spec, so it must contain only what they wrote.
"""

from cfo.webhooks.inferencestack.webhook import InferenceStackWebhook, setup

__all__ = ["InferenceStackWebhook", "setup"]
