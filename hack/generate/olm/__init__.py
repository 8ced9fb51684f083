"""The OLM bundle and catalog, and the objects with which OLM installs from it.

:mod:`~hack.generate.olm.channels` decides which versions each channel offers, :mod:`~hack.generate.olm.bundle` writes
the bundle of this version, :mod:`~hack.generate.olm.catalog` adds it to the catalog, :mod:`~hack.generate.olm.install`
writes ``config/olm``, and :mod:`~hack.generate.olm.validate` checks bundle and catalog.
:mod:`~hack.generate.olm.stack_package` writes bundles and catalog of the operators of
InferenceStacks, and :mod:`~hack.generate.olm.stack_install` what installs them.
"""

from __future__ import annotations

from hack.generate.olm import bundle, catalog, install, stack_install, stack_package


def files() -> dict[str, str]:
    """Return the content of every generated file, by its path from the root of the repository."""
    return {
        **bundle.files(),
        **catalog.files(),
        **install.files(),
        **stack_package.files(),
        **stack_install.files(),
    }
