"""The operator's configuration: what can be set, its defaults, and what is wrong with what was set.

The document is that of the Go operator, so that an existing ConfigMap goes on working; keys are matched as Go's
JSON decoder matches them, that is without regard to case where the exact name is absent. Beyond that:

* ``null`` means the default, for a section as for a value;
* a duration is a Go duration (``90s``, ``5m``) or an integer of nanoseconds;
* a zero duration or an empty name of the leader election section means "unset" (the Go operator writes such ones);
* an AppWrapper setting may stand under ``appwrapper`` or, as the Go operator reads it, under ``appwrapper.Config``;
* an unknown key is a warning that names its path and the nearest known key, never an error;
* a wrong type or an impossible value is a :class:`ConfigurationError`: one line with the path of every such field.

:func:`parse` is pure: text in, configuration and warnings out. Reading the ConfigMap is the business of
:mod:`cfo.operator`.
"""

from cfo.config.document import ConfigurationError, Parsed, default_document, document_of, parse, single_document
from cfo.config.model import (
    AppWrapperConfiguration,
    AutopilotConfiguration,
    CAConfiguration,
    ClientConnection,
    FaultToleranceConfiguration,
    HealthConfiguration,
    IngressConfiguration,
    KubeRayConfiguration,
    LeaderElection,
    MetricsConfiguration,
    OperatorConfiguration,
    ResourceTaint,
    WebhookConfiguration,
)

__all__ = [
    "AppWrapperConfiguration",
    "AutopilotConfiguration",
    "CAConfiguration",
    "ClientConnection",
    "ConfigurationError",
    "FaultToleranceConfiguration",
    "HealthConfiguration",
    "IngressConfiguration",
    "KubeRayConfiguration",
    "LeaderElection",
    "MetricsConfiguration",
    "OperatorConfiguration",
    "Parsed",
    "ResourceTaint",
    "WebhookConfiguration",
    "default_document",
    "document_of",
    "parse",
    "single_document",
]
