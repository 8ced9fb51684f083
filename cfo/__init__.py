"""cfo: the CodeFlare operator, and the library (:mod:`cfo.runtime`) that it is built on."""
