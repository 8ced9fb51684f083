"""Each configuration document is parsed, or rejected with one line."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import strategies as st

from cfo.config.document import ConfigurationError, default_document, extract_document, parse
from test.fuzz.bounds import limited_time
from test.fuzz.mutations import mutated
from test.fuzz.profiles import fuzz
from test.fuzz.seeds import Corpus

DEFAULTS: Any = yaml.safe_load(default_document())
FULL: Any = {
    **DEFAULTS,
    "clientConnection": {"qps": 20, "burst": 40},
    "appwrapper": {**DEFAULTS["appwrapper"], "Config": {"autopilot": DEFAULTS["appwrapper"]["autopilot"]}},
}
CORPUS = Corpus([DEFAULTS, FULL])


def check(text: str) -> None:
    try:
        with limited_time(4.0):  # each unknown key is compared with all known ones
            parsed = parse(extract_document(text))
    except ConfigurationError as error:
        message = str(error)
    else:
        message = ""
        again = parse(parsed.configuration.model_dump_json(by_alias=True, exclude_none=True))
        assert again.configuration == parsed.configuration
    assert "\n" not in message


@fuzz(0.03, mutated(CORPUS), st.booleans())
def test_each_document_is_parsed_or_rejected(document: Any, as_json: bool) -> None:
    check(json.dumps(document) if as_json else yaml.dump(document))


@fuzz(0.01, st.text(max_size=60), st.integers(0, 2000), st.integers(0, 80))
def test_each_string_is_parsed_or_rejected(inserted: str, at: int, removed: int) -> None:
    text = default_document()
    check(text[:at] + inserted + text[at + removed :])
