"""Keys of configuration files."""

from __future__ import annotations

import pytest

from cfo.api.inferencestack.snake_case import is_config_key, snake_case


@pytest.mark.parametrize(
    ("key", "converted"),
    [
        ("modelName", "model_name"),
        ("readerMessageTimeoutMs", "reader_message_timeout_ms"),
        ("internalGatewayIp", "internal_gateway_ip"),
        ("HTTPServer", "http_server"),
        ("NoHTTPS", "no_https"),
        ("_camelCase", "_camel_case"),
        ("Wi_thF", "wi_th_f"),
        ("ALL", "all"),
        ("HELLO____WORLD", "hello____world"),
        ("GO-PATH", "go_path"),
        ("http2xx", "http_2xx"),
        ("HTTP20xOK", "http_20x_ok"),
        ("HTTP-20xStatus", "http_20x_status"),
        ("Bld4Floor3rd", "bld4_floor_3rd"),
        ("abc12", "abc12"),
        ("2xxA", "2xx_a"),
        ("a", "a"),
        ("", ""),
    ],
)
def test_key_is_converted_as_by_helm(key: str, converted: str) -> None:
    assert snake_case(key) == converted


def test_converted_key_stays_the_same() -> None:
    assert snake_case("reader_log_as_json") == "reader_log_as_json"


@pytest.mark.parametrize("key", ["", "a b", "a:b", "a\nb", "1a", "ä", "a" * 64])
def test_key_that_would_break_the_file_is_rejected(key: str) -> None:
    assert not is_config_key(key)
