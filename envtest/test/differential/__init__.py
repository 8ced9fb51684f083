"""Random requests to two API servers, whose answers must be equal: ``python -m test.differential``, in ``envtest``."""
