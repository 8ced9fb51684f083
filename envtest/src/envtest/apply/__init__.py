"""Patches and field ownership, as pure functions over plain objects.

There are two kinds of writes. A patch combines a live object and a patch into the patched object
(:mod:`~envtest.apply.jsonpatch`, :mod:`~envtest.apply.mergepatch`, :mod:`~envtest.apply.strategic`). Server-side apply
merges an applied configuration with the live object, as in `structured-merge-diff`_. In both cases
:mod:`~envtest.apply.manager` computes the resulting field ownership. The layers, each using only the previous ones:

- ``fieldset``: sets of field paths, and their encoding as ``fieldsV1``;
- ``schema_types``: the view that server-side apply has of a schema: maps, lists, scalars, atomic values, list keys;
- ``value_operations``: validates, compares, merges and prunes values of such a type;
- ``updater``: the ownership rules for one operation, across all managers;
- ``manager``: encoding of ``managedFields``, timestamps, conflict messages, the special cases of the first apply.

.. _structured-merge-diff: https://github.com/kubernetes-sigs/structured-merge-diff
"""

from envtest.apply.jsonpatch import json_patch
from envtest.apply.manager import Tracker, restore_times
from envtest.apply.mergepatch import merge_patch
from envtest.apply.schema_types import ObjectType
from envtest.apply.strategic import strategic_merge

__all__ = ["ObjectType", "Tracker", "json_patch", "merge_patch", "restore_times", "strategic_merge"]
