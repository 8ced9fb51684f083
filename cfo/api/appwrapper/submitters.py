"""What the pod that submits a RayJob may request in a queue: pure functions.

KubeRay creates it when the RayCluster is ready, and without labels of the AppWrapper. So nothing shows whether it uses
its part of the quota, which is therefore limited by what other pods of the RayJob must use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cfo.api.appwrapper.inference import expected_pods, pod_sets_of, submits_in_own_pod
from cfo.api.appwrapper.paths import value_or_none
from cfo.api.appwrapper.podsets import SUBMITTER_PATH, pod_template_at
from cfo.api.pod_requests import counts_in_queues, format_amount, requests_of_spec
from cfo.runtime import FieldError, Object
from cfo.runtime.objects.field import OMIT, Path, invalid
from cfo.runtime.process import printable

_ALWAYS_ALLOWED: Final[Mapping[str, int]] = {"cpu": 1_000, "memory": 1_000 * (1 << 30)}
"""One CPU and 1 Gi, the limits that KubeRay gives the pod by default, in thousandths."""

_MAX_NAME: Final = 64


def submitter_errors(component: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield an error for each resource of which the pod that submits a RayJob requests too much, at ``path``.

    The pod sets of the ``component`` are valid.
    """
    template: Object = component["template"]
    if not submits_in_own_pod(template) or value_or_none(template, SUBMITTER_PATH) is None:
        return
    allowed = dict(_ALWAYS_ALLOWED)
    for where, pods in expected_pods(template, pod_sets_of(component)):
        if not pods:
            continue
        for name, amount in _requests_at(template, where).items():
            allowed[name] = max(allowed.get(name, 0), amount)
    for name, amount in _requests_at(template, SUBMITTER_PATH).items():
        most = allowed.get(name, 0)
        if amount > most and counts_in_queues(name):
            detail = (
                f"requests {format_amount(amount)} {printable(name, _MAX_NAME)}; in a queue at most "
                f"{format_amount(most)}, as the head or a worker that must run"
            )
            yield invalid(path.child(SUBMITTER_PATH), OMIT, detail)


def _requests_at(template: Object, path: str) -> dict[str, int]:
    return requests_of_spec(pod_template_at(template, path)["spec"])
