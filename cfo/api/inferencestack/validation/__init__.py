"""Validation of InferenceStacks: pure functions, for admission and the controller alike.

.. code-block:: python

    result = validate(stack, profile)
    result.errors      # FieldErrors: the stack cannot be rendered
    result.warnings    # what will not work, or has no effect

The original has no validation. An error is what would make the stack fail later, or what certainly is a mistake; a
warning is what existing stacks may contain. An update is rejected only for errors that the stack did not have before
(:func:`validate_update`), so that stacks from before this validation can still be changed. The controller does not
render a stack with errors, and reports them in its status.
"""
