"""Writes the files that are generated from code; ``make lint`` fails when one of them is stale.

    python -m hack.generate            # write
    python -m hack.generate --check    # write nothing; print the stale files and exit with 1

* ``config/``, the Helm chart, the OLM bundle and catalog: from :mod:`cfo.manifests`, which reads the RBAC rules of the
  controllers, the webhooks and the models; bundle and catalog also from ``config/releases.yaml``.
* The matrix in ``README.md`` and ``cfo version --stack``: from ``config/stack.yaml``.
* ``docs/configuration.md``: from the models of the configuration.
* The drawings of ``docs/architecture.md``: from the import contracts and :data:`cfo.features.FEATURES`.
* ``cfo/api/builtin_types.json``: from the schemas of the built-in kinds in ``envtest``.
* ``envtest/docs/what-passes.md``: from the records in ``envtest/test/conformance``.
* ``cfo/api/inferencestack/types.json``: from the models in ``cfo/api/inferencestack``.

Each generator is a module with a function ``files()`` from paths to contents. :mod:`hack.generate.compact_crd` is a
separate command for CRDs of other projects.
"""
