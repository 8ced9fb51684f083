"""The decisions about AppWrappers: whatever an API server stores, also without admission, has a next step."""

from __future__ import annotations

import copy
from datetime import timedelta

from hypothesis import strategies as st

from cfo.api.appwrapper.names import ANNOTATION_PREFIX
from cfo.config.appwrapper import AppWrapperConfiguration
from cfo.config.appwrapper_settings import Settings
from cfo.controllers.appwrapper.components import (
    ComponentObject,
)
from cfo.controllers.appwrapper.pods import Termination, WrapperPod
from cfo.runtime.objects.unstructured import Object
from test.fuzz.bounds import assert_readable, limited_time
from test.fuzz.mutations import HOSTILE, mutate, mutated
from test.fuzz.seeds import Corpus

CORPUS = Corpus(kind="AppWrapper")


@st.composite
def mutated_templates(draw: st.DrawFn) -> Object:
    """Mutate only a wrapped object, whose types the CRD of AppWrappers does not restrict: its spec, or all of it."""
    wrapper = copy.deepcopy(draw(st.sampled_from(CORPUS.objects)))
    for component in wrapper["spec"].get("components") or ():
        template = component["template"]
        template.setdefault("metadata", {}).setdefault("ownerReferences", [{}])
        for _ in range(draw(st.integers(0, 4))):
            mutate(draw, template.setdefault("spec", {}), CORPUS)
        if draw(st.booleans()):
            mutate(draw, template, CORPUS)
    return wrapper


WRAPPERS = mutated(CORPUS, 6) | mutated_templates()
CONFIG = AppWrapperConfiguration.from_document({"enabled": True, "schedulerName": "fair"})
PODS = st.lists(
    st.builds(
        WrapperPod,
        st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""]),
        deleting=st.booleans(),
        terminated=st.tuples(
            st.builds(Termination, st.text(max_size=8), st.integers(0, 255), st.text(max_size=100))
        ),
    ),
    max_size=4,
)
OBJECTS = st.sampled_from(
    [
        None,
        ComponentObject("u"),
        ComponentObject("u", owned=False),
        ComponentObject("u", failed=True),
    ]
)
MAX_SECONDS = 1.0
MAX_STATUS = 2 << 20


ANNOTATIONS = [
    f"{ANNOTATION_PREFIX}{name}"
    for name in (
        "warmupGracePeriodDuration",
        "successTTLDuration",
        "retryLimit",
        "terminalExitCodes",
    )
]
VALUES = st.sampled_from([*HOSTILE, "90s", "-1h", "1e400h", "3,137,x", "", "0", "9" * 18, "9" * 19])


def check_settings(annotations: dict[str, str]) -> None:
    config = CONFIG.fault_tolerance
    with limited_time():
        settings = Settings.of({"metadata": {"annotations": annotations}}, config)
    assert_readable(settings.problems, 10_000)
    assert len(settings.problems) <= 10
    assert len(settings.terminal_exit_codes) <= 100
    assert timedelta(0) <= settings.warmup_grace <= config.grace_period_ceiling
