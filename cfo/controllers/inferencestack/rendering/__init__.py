"""Renders the objects of an InferenceStack: a pure function of the stack, a profile, and facts about the cluster.

.. code-block:: python

    FieldErrors.check(validate(stack, profile))     # rendering requires a valid stack
    children = [Child.present(obj, has_owner_reference=not is_retained(obj)) for obj in render(stack, profile, facts)]
    await reconcile_children(client, stack, children)

The result contains everything that must exist, and nothing else: objects of the stack that are not in it must be
deleted, except retained ones. The objects have no owner references. They must be written in this order: a ConfigMap
precedes the Deployment that mounts it (see :mod:`.config_file`).
"""
