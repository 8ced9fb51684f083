"""AppWrapper (``workload.codeflare.dev/v1beta2``): any resources, wrapped as one unit that a queue admits.

:mod:`.inference`, :mod:`.podsets` and :mod:`.quota` determine the pods of a component, for admission and the controller
alike. The types from which the CRD is generated are in :mod:`.models`, which is not imported here because that takes
time.
"""

from cfo.api.appwrapper.inference import MPI_JOBS, RAY_SPECS, infer_pod_sets, pod_sets_of
from cfo.api.appwrapper.names import APPWRAPPER, QUEUE_NAME_LABEL, USER_ID_LABEL, USER_LABEL, Phase
from cfo.api.appwrapper.paths import PathError, object_at, value_at
from cfo.api.appwrapper.podsets import (
    MAX_POD_SETS,
    RAY_JOB,
    SUBMITTER_PATH,
    PodSetError,
    expected_pods,
    is_submitter,
    pod_set_mismatches,
    pod_template_at,
    replicas_of,
)
from cfo.api.appwrapper.quota import (
    PodGroup,
    check_added_pods,
    pods_with_quota,
    submitter_template,
    uncounted_additions,
)

__all__ = [
    "APPWRAPPER",
    "MAX_POD_SETS",
    "MPI_JOBS",
    "QUEUE_NAME_LABEL",
    "RAY_JOB",
    "RAY_SPECS",
    "SUBMITTER_PATH",
    "USER_ID_LABEL",
    "USER_LABEL",
    "PathError",
    "Phase",
    "PodGroup",
    "PodSetError",
    "check_added_pods",
    "expected_pods",
    "infer_pod_sets",
    "is_submitter",
    "object_at",
    "pod_set_mismatches",
    "pod_sets_of",
    "pod_template_at",
    "pods_with_quota",
    "replicas_of",
    "submitter_template",
    "uncounted_additions",
    "value_at",
]
