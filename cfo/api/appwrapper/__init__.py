"""AppWrapper (``workload.codeflare.dev/v1beta2``): any resources, wrapped as one unit that a queue admits.

:mod:`.paths` and :mod:`.podsets` determine the pods of a component, for admission and the controller alike. The types
from which the CRD is generated are in :mod:`.models`, which is not imported here because that takes time.
"""

from cfo.api.appwrapper.names import APPWRAPPER, QUEUE_NAME_LABEL, USER_ID_LABEL, USER_LABEL, Phase
from cfo.api.appwrapper.paths import PathError, object_at, value_at
from cfo.api.appwrapper.podsets import (
    MAX_POD_SETS,
    PodSetError,
    expected_pods,
    infer_pod_sets,
    pod_set_mismatches,
    pod_sets_of,
    pod_template_at,
    replicas_of,
)

__all__ = [
    "APPWRAPPER",
    "MAX_POD_SETS",
    "QUEUE_NAME_LABEL",
    "USER_ID_LABEL",
    "USER_LABEL",
    "PathError",
    "Phase",
    "PodSetError",
    "expected_pods",
    "infer_pod_sets",
    "object_at",
    "pod_set_mismatches",
    "pod_sets_of",
    "pod_template_at",
    "replicas_of",
    "value_at",
]
