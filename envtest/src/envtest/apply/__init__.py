"""Patches and field ownership, as pure functions over plain objects.

What flows through here: a live object and a patch go in, the patched object comes out
(:mod:`~envtest.apply.jsonpatch`, :mod:`~envtest.apply.mergepatch`,
:mod:`~envtest.apply.strategic`), or an applied configuration and the live object are merged as
`structured-merge-diff`_ does it. Either way :mod:`~envtest.apply.manager` says who owns what afterwards.
The layers, each knowing only those before it:

- ``fieldset``: sets of field paths, and how ``fieldsV1`` spells them;
- ``types``: what server-side apply needs to know of a schema: maps, lists, scalars, what is atomic, what keys are;
- ``typed``: validate, compare, merge and prune values of such a type;
- ``updater``: the ownership rules for one operation, over all managers;
- ``manager``: ``managedFields`` on the wire, times, conflicts in words, the oddities around the first apply.

.. _structured-merge-diff: https://github.com/kubernetes-sigs/structured-merge-diff
"""

from envtest.apply.jsonpatch import json_patch
from envtest.apply.manager import Tracker, keep_times
from envtest.apply.mergepatch import merge_patch
from envtest.apply.strategic import strategic_merge
from envtest.apply.types import ObjectType

__all__ = ["ObjectType", "Tracker", "json_patch", "keep_times", "merge_patch", "strategic_merge"]
