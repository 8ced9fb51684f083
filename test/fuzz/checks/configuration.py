"""Each configuration document is parsed, or rejected with one line."""

from __future__ import annotations

import json
from typing import Any

import yaml

from cfo.config.document import default_document, extract_document, parse
from cfo.config.section import ConfigurationError
from test.fuzz.bounds import limited_time
from test.fuzz.seeds import Corpus

DEFAULTS: Any = yaml.safe_load(default_document())
FULL: Any = {
    **DEFAULTS,
    "clientConnection": {"qps": 20, "burst": 40},
    "appwrapper": {
        **DEFAULTS["appwrapper"],
        "Config": {"autopilot": DEFAULTS["appwrapper"]["autopilot"]},
    },
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
        again = parse(json.dumps(parsed.configuration.to_document()))
        assert again.configuration == parsed.configuration
    assert "\n" not in message
