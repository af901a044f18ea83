from __future__ import annotations

import argparse

import pytest

from openclaw.errors import ConfigError
from openclaw.judge.settings import JudgeSettings, add_flags, as_flags, load_settings, markdown


def parse(*words: str, short: bool = True) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flags(parser, short=short)
    return parser.parse_args(words)


def test_flags_override_variables_and_variables_override_defaults() -> None:
    environ = {"MAJORITY_VOTE_N": "5", "PRM_TEMPERATURE": "0.9", "MAJORITY_VOTE_THRESHOLD": ""}
    settings = load_settings(parse("--majority-vote-n", "7"), environ)
    assert (settings.prm_m, settings.prm_temperature, settings.majority_vote_threshold) == (7, 0.9, 0.0)
    assert load_settings(parse(), environ).prm_m == 5
    assert load_settings(parse(), environ | {"PRM_M": "3"}).prm_m == 3


def test_the_key_is_read_only_from_the_environment() -> None:
    settings = load_settings(parse(), {"JUDGE_API_KEY": "k"})
    assert settings.judge_api_key == "k"
    assert "k" not in as_flags(argparse.Namespace(**vars(settings)))


def test_a_drivers_flags_are_passed_on_unchanged() -> None:
    words = [
        "--judge-backend",
        "engine",
        "--prm-m",
        "3",
        "--judge-engine-url",
        "http://a",
        "--judge-engine-url",
        "http://b",
    ]
    args = parse(*words, "--prm-model-path", "m", short=False)
    passed = as_flags(args)
    assert load_settings(parse(*passed), {}) == load_settings(args, {})
    assert load_settings(args, {}).judge_engine_url == ("http://a", "http://b")


def test_judge_flags_on_a_drivers_command_line_cannot_collide_with_others() -> None:
    with pytest.raises(SystemExit):
        parse("--timeout", "3", short=False)


def test_a_list_in_a_variable_is_split_at_commas() -> None:
    assert load_settings(parse(), {"JUDGE_ENGINE_URL": "http://a, http://b"}).judge_engine_url == (
        "http://a",
        "http://b",
    )


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"PRM_M": "many"}, "PRM_M=many is not a valid int"),
        ({"PRM_TEMPERATURE": "nan"}, "--prm-temperature must be from 0 to 2, got nan"),
        ({"JUDGE_BACKEND": "oracle"}, "JUDGE_BACKEND=oracle is not one of rules, engine, openai"),
        ({"JUDGE_BACKEND": "openai"}, "needs --judge-url and --judge-model"),
        (
            {"JUDGE_BACKEND": "openai", "JUDGE_URL": "judge", "JUDGE_MODEL": "m"},
            "is not an address of a judge",
        ),
        ({"JUDGE_BACKEND": "engine"}, "the engine judge needs --judge-engine-url and --prm-model-path"),
        ({"PRM_M": "0"}, "--prm-m must be 1 or more, got 0"),
        ({"MAJORITY_VOTE_THRESHOLD": "2"}, "--majority-vote-threshold must be from 0 to 1, got 2.0"),
        ({"JUDGE_TIMEOUT": "-1"}, "--judge-timeout must be a number of seconds, 0.001 or more, got -1.0"),
    ],
)
def test_an_invalid_value_is_rejected(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(parse(), environ)


def test_the_table_lists_all_settings() -> None:
    table = markdown()
    for name in ("PRM_M", "MAJORITY_VOTE_N", "JUDGE_API_KEY", "--prm-max-new-tokens", "JUDGE_MODEL_PATH"):
        assert f"`{name}`" in table
    assert JudgeSettings().judge_backend == "rules"


@pytest.mark.parametrize("key", ["sk-secret\n", "sk secret", "sk-sécret"])
def test_an_invalid_key_is_rejected_without_printing_it(key: str) -> None:
    with pytest.raises(ConfigError, match="JUDGE_API_KEY") as refused:
        load_settings(parse(), {"JUDGE_API_KEY": key})
    assert "cret" not in str(refused.value)
