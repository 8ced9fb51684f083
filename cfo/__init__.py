"""The CodeFlare operator, and :mod:`cfo.runtime`, the library for Kubernetes operators that it is built on."""
