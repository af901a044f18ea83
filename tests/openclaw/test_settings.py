"""Settings: flags take precedence over variables, and these over defaults."""

from __future__ import annotations

import re

import pytest

from openclaw.common.other_words import OTHER_WORDS
from openclaw.errors import ConfigError
from openclaw.settings import load_settings, markdown
from tests import ROOT

RUNTIME = ROOT / "openclaw"


def test_flags_win_over_variables_and_these_over_defaults() -> None:
    variables = {"MODEL_PATH": "/m", "PORT": "1234", "SERVED_MODEL_NAME": "env", "SGLANG_API_KEY": "k"}
    settings = load_settings(
        ["--port", "99", "--engine-url", "http://a", "--engine-url", "http://b"], variables
    )
    assert (settings.port, settings.model_path, settings.model_name) == (99, "/m", "env")
    assert settings.engine_url == ("http://a", "http://b") and settings.api_key == "k"
    assert settings.request_timeout == 600.0
    assert load_settings([], variables).port == 1234


def test_aliases_and_switches_of_the_environment_work() -> None:
    variables = {"BASE_MODEL_PATH": "/base", "OPENCLAW_PORT": "5", "OPENCLAW_API_KEY": "k", "DURABLE": "1"}
    settings = load_settings([], variables)
    assert (settings.model_path, settings.port, settings.api_key, settings.durable) == ("/base", 5, "k", True)


@pytest.mark.parametrize(
    ("flags", "variables", "told"),
    [
        (["--request-timeout", "0"], {}, "--request-timeout"),
        (["--context-length", "many"], {}, "--context-length"),
        ([], {"DURABLE": "maybe"}, "DURABLE"),
        ([], {"DEFAULT_TURN_TYPE": "loud"}, "main, side"),
        (["--temperature", "7"], {}, "--temperature"),
        (["--rl-buffer-dir", "a", "--rl-buffer-url", "b"], {}, "contradict"),
        (["--host", "0.0.0.0"], {}, "ALLOW_NO_KEY"),
        (["--unknown"], {}, "--unknown"),
    ],
)
def test_invalid_values_are_reported_with_a_remedy(
    flags: list[str], variables: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        load_settings(["--model-path", "m", *flags], variables)


def test_table_names_every_variable_once() -> None:
    table = markdown()
    for name in ("SGLANG_API_KEY", "OPENCLAW_ADMIN_KEY", "PORT", "MODEL_PATH", "REQUEST_TIMEOUT"):
        assert table.count(f"`{name}`") == 1
    assert "| `--request-timeout` | `REQUEST_TIMEOUT` | float, seconds, 0.001 or more | `600.0` |" in table


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--model", "m"], "here it is --model-path"),
        (["--max-model-len=4096"], "here it is --context-length"),
        (["--api-key", "k"], "here it is the variable SGLANG_API_KEY"),
        (["--tensor-parallel-size", "2"], "name it with --engine-url"),
        (["--enable-auto-tool-choice"], "not needed"),
        (["-tp", "2"], "name it with --engine-url"),
        (["--prot", "1"], "did you mean --port?"),
        (["--quite-unheard-of"], "see --help"),
        (["--port", "x"], "--port"),
    ],
)
def test_flags_of_other_servers_are_answered_with_our_equivalent(flags: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(["--model-path", "m", *flags], {})
    assert told in str(caught.value)


def test_suggested_flags_exist_and_our_own_flags_get_no_suggestion() -> None:
    ours = set(re.findall(r"`(--[a-z-]+)`", markdown()))
    named = {flag for text in OTHER_WORDS.values() for flag in re.findall(r"(?<!\S)--[a-z-]+", text)}
    assert named <= ours and not ours & OTHER_WORDS.keys()
