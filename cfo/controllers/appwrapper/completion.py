"""Whether all components of an AppWrapper have ended successfully: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cfo.api.appwrapper.kinds import SERVICES, known_kind
from cfo.api.appwrapper.podsets import replicas_of
from cfo.controllers.appwrapper.components import Component
from cfo.controllers.appwrapper.decision import WrapperObservation
from cfo.controllers.appwrapper.pod_knowledge import PodKnowledge
from cfo.controllers.appwrapper.pods import count_pods


def success_message(
    observation: WrapperObservation,
    completed: Mapping[str, Component],
    unfinished: Sequence[Component],
) -> str:
    """Return that all components have ended successfully; empty if not.

    ``completed`` has the components that report that, by uid. Pods need quota until they have ended, whatever is
    reported, and no pods may be created again.
    """
    if observation.knowledge is PodKnowledge.OWNERS_UNKNOWN:
        return ""
    # Anyone can create a pod with the label, so only pods with an owner of this AppWrapper prove that it has ended.
    own = [pod for pod in observation.pods if pod.ancestor]
    if any(pod.holds_resources for pod in own):
        return ""
    settings = observation.settings
    rest = count_pods((pod for pod in own if pod.ancestor not in completed), settings, {})
    have_reported = completed and not any(component.expected_pods for component in unfinished)
    if not have_reported:
        if rest.failed or rest.succeeded < _required_successes(unfinished):
            return ""
        if any(
            known_kind(component.gvk) in SERVICES and component.expected_pods
            for component in unfinished
        ):
            return ""
    counts = count_pods(own, settings, {})
    if have_reported and (counts.failed or not counts.succeeded):
        return "All components with pods report that they have completed"
    return f"{counts.succeeded} pods succeeded and no running, pending, or failed pods"


def _required_successes(unfinished: Sequence[Component]) -> int:
    """Return the number of pods that must succeed: at least 1, and none only if all pod sets have no pods.

    These are the pods that run at a time or, for a Job, its completions, if those are more.
    """
    pod_sets = [pod_set for component in unfinished for pod_set in component.pod_sets]
    if pod_sets and not any(map(replicas_of, pod_sets)):
        return 0
    return max(
        sum(max(component.expected_pods, component.completions) for component in unfinished), 1
    )
