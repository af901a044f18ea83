"""python -m openclaw.connect: what it writes into openclaw.json, and that nothing is lost."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from openclaw.connect.__main__ import EXTENSION, main
from openclaw.connect.entries import Model, connected, disconnected, provider_entry
from openclaw.errors import ConfigError

KEY = "secret-key"
OWN = {
    "gateway": {"mode": "local"},
    "agents": {"defaults": {"model": {"primary": "anthropic/some-model"}, "skipBootstrap": True}},
    "models": {"providers": {"other": {"baseUrl": "http://elsewhere/v1"}}},
    "plugins": {"allow": ["mine"], "entries": {"mine": {"enabled": True}}},
}


@pytest.fixture
def openclaw(tmp_path, monkeypatch):
    """A home with settings, and an `openclaw` program that accepts them unless REFUSE is there."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "openclaw.json").write_text(json.dumps(OWN))
    program = tmp_path / "bin" / "openclaw"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && {{ cat "{tmp_path}/version"; exit 0; }}\n'
        f'[ -e "{tmp_path}/refuse" ] && {{ echo "unknown key: models"; exit 1; }}\n'
        "exit 0\n"
    )
    program.chmod(0o755)
    (tmp_path / "version").write_text("OpenClaw 2026.9.6 (abc)\n")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(state))
    monkeypatch.delenv("OPENCLAW_CONFIG_PATH", raising=False)
    return tmp_path


def _config(home):
    return json.loads((home / "state" / "openclaw.json").read_text())


def _connect(gateway, *flags):
    return main(["--url", f"{gateway.url}/v1", "--api-key", KEY, *flags])


@pytest.fixture
def gateway(start_gateway, model, tmp_path):
    """One whose model has room for OpenClaw."""
    roomy = tmp_path / "roomy-qwen3"
    shutil.copytree(model, roomy)
    config = json.loads((roomy / "config.json").read_text())
    (roomy / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 32768}))
    made = start_gateway(model_path=str(roomy))
    made.says("hello there")
    return made


def test_the_provider_the_default_model_and_the_plugin_are_added_and_nothing_is_lost(
    gateway, openclaw, capsys
):
    assert _connect(gateway) == 0
    config = _config(openclaw)
    entry = config["models"]["providers"]["openclaw-rl"]
    assert entry["baseUrl"] == f"{gateway.url}/v1" and entry["apiKey"] == KEY
    assert entry["models"][0]["contextWindow"] == 32768
    assert config["agents"]["defaults"] == {
        "model": {"primary": f"openclaw-rl/{entry['models'][0]['id']}"}, "skipBootstrap": True,
    }  # fmt: skip
    assert config["plugins"]["load"]["paths"] == [str(EXTENSION)]
    assert config["plugins"]["entries"]["rl-training-headers"]["hooks"] == {"allowConversationAccess": True}
    assert config["plugins"]["allow"] == ["mine", "rl-training-headers"]
    assert config["gateway"] == OWN["gateway"] and config["models"]["providers"]["other"]
    told = capsys.readouterr()
    assert "side turn 0 of session openclaw-connect-test" in told.err and KEY not in told.out + told.err


def test_the_old_settings_are_kept_beside_and_remove_brings_them_back(gateway, openclaw):
    assert _connect(gateway) == 0
    (backup,) = (openclaw / "state").glob("openclaw.json.before-openclaw-rl-*")
    assert json.loads(backup.read_text()) == OWN
    assert _connect(gateway) == 0  # again: nothing changes
    assert main(["--remove"]) == 0
    assert _config(openclaw) == OWN
    assert main(["--remove"]) == 1


def test_settings_that_openclaw_refuses_are_taken_back(gateway, openclaw, capsys):
    (openclaw / "refuse").touch()
    assert _connect(gateway) == 1
    assert _config(openclaw) == OWN
    assert "unknown key: models" in capsys.readouterr().err


def test_a_file_with_comments_is_left_alone_and_the_entry_printed(gateway, openclaw, capsys):
    file = openclaw / "state" / "openclaw.json"
    file.write_text('{\n  // mine\n  "gateway": {}\n}')
    assert _connect(gateway) == 1
    told = capsys.readouterr()
    assert "line 2" in told.err and '"baseUrl"' in told.out and KEY not in told.out
    assert "// mine" in file.read_text()


def test_a_provider_of_this_name_at_another_address_is_not_overwritten(gateway, openclaw, capsys):
    assert _connect(gateway, "--provider", "other") == 1
    assert "--replace" in capsys.readouterr().err
    assert _config(openclaw) == OWN
    assert _connect(gateway, "--provider", "other", "--replace") == 0
    assert _config(openclaw)["plugins"]["entries"]["rl-training-headers"]["config"] == {"providerId": "other"}
    assert main(["--remove"]) == 0
    assert _config(openclaw) == OWN


def test_an_older_openclaw_is_connected_without_the_plugin(gateway, openclaw, capsys):
    (openclaw / "version").write_text("OpenClaw 2026.3.13\n")
    assert _connect(gateway) == 0
    assert "load" not in _config(openclaw)["plugins"]
    assert "2026.3.13 cannot load the plug-in" in capsys.readouterr().err


def test_without_openclaw_the_settings_are_written_with_a_warning(gateway, openclaw, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert _connect(gateway) == 0
    assert (
        "npm install" in capsys.readouterr().err and "openclaw-rl" in _config(openclaw)["models"]["providers"]
    )


def test_a_wrong_key_and_a_short_context_are_refused_before_anything_is_written(
    start_gateway, openclaw, capsys
):
    small = start_gateway()
    assert main(["--url", small.url, "--api-key", "wrong"]) == 1
    small.says("hello")
    assert main(["--url", small.url, "--api-key", KEY]) == 1
    assert "OpenClaw needs 16000 tokens" in capsys.readouterr().err
    assert _config(openclaw) == OWN


@pytest.mark.parametrize("client", ["openai", "litellm", "continue", "open-webui"])
def test_other_clients_get_their_settings_printed_without_the_key(gateway, openclaw, client, capsys):
    assert _connect(gateway, "--client", client) == 0
    out = capsys.readouterr().out
    assert f"{gateway.url}/v1" in out and KEY not in out
    assert _config(openclaw) == OWN


def test_print_only_writes_nothing(gateway, openclaw, capsys):
    assert _connect(gateway, "--print-only") == 0
    assert (
        json.loads(capsys.readouterr().out)["models"]["providers"]["openclaw-rl"]["apiKey"]
        == "THE SERVER'S KEY"
    )
    assert _config(openclaw) == OWN


def test_what_others_changed_meanwhile_survives_the_removal():
    entry = provider_entry("http://h/v1", None, Model("m", 32768, 8192))
    new, notes = connected(OWN, "openclaw-rl", entry, True, "/plugin", False)
    new["agents"]["defaults"]["model"]["primary"] = "third/model"
    new["plugins"]["load"]["paths"].append("/another")
    left = disconnected(new, notes)
    assert left["agents"]["defaults"]["model"]["primary"] == "third/model"
    assert left["plugins"]["load"]["paths"] == ["/another"]
    assert list(left["models"]["providers"]) == ["other"]


def test_a_model_named_by_a_plain_string_is_understood():
    entry = provider_entry("http://h/v1", None, Model("m", 32768, 8192))
    new, notes = connected(
        {"agents": {"defaults": {"model": "a/b"}}}, "openclaw-rl", entry, True, None, False
    )
    assert new["agents"]["defaults"]["model"]["primary"] == "openclaw-rl/m"
    assert disconnected(new, notes)["agents"]["defaults"]["model"] == {"primary": "a/b"}


def test_settings_of_another_shape_are_refused_by_name():
    entry = provider_entry("http://h/v1", None, Model("m", 32768, 8192))
    with pytest.raises(ConfigError, match=r"models\.providers is no object"):
        connected({"models": {"providers": []}}, "openclaw-rl", entry, True, None, False)
