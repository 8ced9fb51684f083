"""The operator's configuration: settings, defaults and validation.

The document has the format of the Go operator's, so that existing ConfigMaps keep working. Keys are matched as in Go's
JSON decoder: case-insensitively if there is no exact match, with a warning. In addition:

* ``null`` means the default, for sections and for values.
* A duration is a Go duration (``90s``, ``5m``) or an integer number of nanoseconds.
* In the leader election section, a zero duration or an empty name means "unset"; the Go operator writes such values.
* AppWrapper settings can be in ``appwrapper`` or in ``appwrapper.Config``, from which the Go operator reads them.
* An unknown key is never an error, but a warning with its path and the nearest known key. Several spellings of one key
  are an error, and so is a manifest in the place of the document.
* A wrong type or an invalid value is a :class:`ConfigurationError`: one line with the path of each such field.

:func:`.document.parse` is a pure function from a string to the configuration and warnings. :mod:`cfo.operator` reads
the ConfigMap.
"""
