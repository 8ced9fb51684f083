"""Each configuration document is parsed, or rejected with one line."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import strategies as st

from cfo.config.document import default_document
from test.fuzz.checks.configuration import CORPUS, check
from test.fuzz.mutations import mutated
from test.fuzz.profiles import fuzz
from test.support.properties import CHARACTERS


@fuzz(0.03, mutated(CORPUS), st.booleans())
def test_each_document_is_parsed_or_rejected(document: Any, as_json: bool) -> None:
    check(json.dumps(document) if as_json else yaml.dump(document))


@fuzz(0.01, st.text(CHARACTERS, max_size=60), st.integers(0, 2000), st.integers(0, 80))
def test_each_string_is_parsed_or_rejected(inserted: str, at: int, removed: int) -> None:
    text = default_document()
    check(text[:at] + inserted + text[at + removed :])
