"""python -m openclaw.connect: its entries in openclaw.json, and that no setting is lost."""

from __future__ import annotations

import json
import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from claw_base.settings import command_line
from openclaw.clients.client import Model
from openclaw.connect.__main__ import EXTENSION, main
from openclaw.connect.entries import connected, disconnected, provider_entry
from openclaw.connect.settings import ConnectSettings
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
    """A home folder with settings, and an `openclaw` program that accepts them, unless a file `refuse` exists, or
    `refuse-provider` and they contain our provider."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "openclaw.json").write_text(json.dumps(OWN))
    program = tmp_path / "bin" / "openclaw"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && {{ cat "{tmp_path}/version"; exit 0; }}\n'
        f'[ -e "{tmp_path}/refuse" ] && {{ echo "unknown key: models"; exit 1; }}\n'
        f'[ -e "{tmp_path}/refuse-provider" ] && grep -q openclaw-rl "$OPENCLAW_CONFIG_PATH" && '
        '{ echo "unknown key: models"; exit 1; }\n'
        "exit 0\n"
    )
    program.chmod(0o755)
    (tmp_path / "version").write_text("OpenClaw 2026.9.6 (abc)\n")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(state))
    monkeypatch.delenv("OPENCLAW_CONFIG_PATH", raising=False)
    return tmp_path


@pytest.fixture
def httpserver_of():
    """f(answer): starts a server that answers every GET with `answer`; returns its address."""
    made = []

    def serve(answer):
        class Answers(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_):
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/v1"

    yield serve
    for server in made:
        server.shutdown()
        server.server_close()


def _config(home):
    return json.loads((home / "state" / "openclaw.json").read_text())


def _connect(gateway, *flags):
    return main(["--url", f"{gateway.url}/v1", "--api-key", KEY, *flags])


@pytest.fixture
def gateway(start_gateway, model, tmp_path):
    """A gateway whose model has enough context for OpenClaw."""
    roomy = tmp_path / "roomy-qwen3"
    shutil.copytree(model, roomy)
    config = json.loads((roomy / "config.json").read_text())
    (roomy / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 32768}))
    made = start_gateway(model_path=str(roomy))
    made.says("hello there")
    return made


def test_provider_default_model_and_plugin_are_added_without_losing_settings(gateway, openclaw, capsys):
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
    output = capsys.readouterr()
    assert "side turn 0 of session openclaw-connect-test" in output.err and KEY not in output.out + output.err


def test_the_old_settings_are_backed_up_and_remove_restores_them(gateway, openclaw):
    assert _connect(gateway) == 0
    (backup,) = (openclaw / "state").glob("openclaw.json.before-openclaw-rl-*")
    assert json.loads(backup.read_text()) == OWN
    assert _connect(gateway) == 0  # repeating it changes nothing
    assert main(["--remove"]) == 0
    assert _config(openclaw) == OWN
    assert main(["--remove"]) == 1


def test_settings_that_openclaw_rejects_are_reverted(gateway, openclaw, capsys):
    (openclaw / "refuse-provider").touch()
    assert _connect(gateway) == 1
    assert _config(openclaw) == OWN
    assert "the old ones were restored: unknown key: models" in capsys.readouterr().err
    assert not (openclaw / "state" / "openclaw-rl-connect.json").exists()


def test_a_file_with_comments_is_unchanged_and_the_entry_is_printed(gateway, openclaw, capsys):
    file = openclaw / "state" / "openclaw.json"
    file.write_text('{\n  // mine\n  "gateway": {}\n}')
    assert _connect(gateway) == 1
    output = capsys.readouterr()
    assert "line 2" in output.err and '"baseUrl"' in output.out and KEY not in output.out
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


def test_an_openclaw_without_settings_check_is_not_called(gateway, openclaw):
    (openclaw / "version").write_text("OpenClaw 2026.2.19\n")
    (openclaw / "refuse").touch()  # OpenClaw's answer to an unknown command
    assert _connect(gateway) == 0


def test_without_openclaw_the_settings_are_written_with_a_warning(gateway, openclaw, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert _connect(gateway) == 0
    assert (
        "npm install" in capsys.readouterr().err and "openclaw-rl" in _config(openclaw)["models"]["providers"]
    )


def test_a_wrong_key_and_a_short_context_are_refused_before_anything_is_written(
    start_gateway, openclaw, capsys
):
    small = start_gateway(api_key=KEY)
    assert main(["--url", small.url, "--api-key", "wrong"]) == 1
    small.says("hello")
    assert main(["--url", small.url, "--api-key", KEY]) == 1
    assert "OpenClaw needs 16000 tokens" in capsys.readouterr().err
    assert _config(openclaw) == OWN


@pytest.mark.parametrize("client", ["openai", "litellm", "continue", "open-webui"])
def test_settings_of_other_clients_are_printed_without_the_key(gateway, openclaw, client, capsys):
    assert _connect(gateway, "--client", client) == 0
    out = capsys.readouterr().out
    assert f"{gateway.url}/v1" in out and KEY not in out
    assert _config(openclaw) == OWN


def test_the_first_argument_is_the_client_and_a_short_context_is_rejected(
    gateway, openclaw, monkeypatch, capsys
):
    monkeypatch.setenv("CODEX_HOME", str(openclaw / "codex"))
    monkeypatch.setenv("HERMES_HOME", str(openclaw / "hermes"))
    assert _connect(gateway, "codex") == 0
    output = capsys.readouterr()
    assert "side turn 0" in output.err and f"written: {openclaw / 'codex' / 'config.toml'}" in output.out
    assert main(["codex", "--remove"]) == 0
    assert list((openclaw / "codex").iterdir()) == [] and _config(openclaw) == OWN
    assert _connect(gateway, "hermes") == 1
    assert "hermes needs 64000 tokens of context, but the server allows 32768" in capsys.readouterr().err


def test_print_only_writes_nothing(gateway, openclaw, capsys):
    assert _connect(gateway, "--print-only") == 0
    assert (
        json.loads(capsys.readouterr().out)["models"]["providers"]["openclaw-rl"]["apiKey"]
        == "THE SERVER'S KEY"
    )
    assert _config(openclaw) == OWN


def test_connecting_again_replaces_the_first_entry(gateway, openclaw, start_gateway):
    """Another port and name, without the plug-in: one --remove undoes all of it."""
    assert main(["--url", gateway.url, "--api-key", KEY]) == 0
    config = _config(openclaw)
    config["models"]["providers"]["openclaw-rl"]["baseUrl"] = "http://127.0.0.1:1/v1"
    notes = openclaw / "state" / "openclaw-rl-connect.json"
    notes.write_text(notes.read_text().replace(f"{gateway.url}/v1", "http://127.0.0.1:1/v1"))
    config["models"]["providers"]["openclaw-rl"]["timeoutSeconds"] = 5  # the user's own value
    (openclaw / "state" / "openclaw.json").write_text(json.dumps(config))
    assert _connect(gateway) == 0  # the server now uses another port
    entry = _config(openclaw)["models"]["providers"]["openclaw-rl"]
    assert entry["baseUrl"] == f"{gateway.url}/v1"
    assert _connect(gateway, "--provider", "mine", "--no-extension", "--keep-model") == 0
    config = _config(openclaw)
    assert sorted(config["models"]["providers"]) == ["mine", "other"] and config["plugins"] == OWN["plugins"]
    assert config["agents"] == OWN["agents"]
    assert main(["--remove"]) == 0
    assert _config(openclaw) == OWN


def test_user_settings_in_the_entry_are_kept(gateway, openclaw):
    assert _connect(gateway) == 0
    config = _config(openclaw)
    entry = config["models"]["providers"]["openclaw-rl"]
    entry["timeoutSeconds"] = 5
    entry["models"][0]["compat"] = {"supportsStore": False}
    entry["models"].append({"id": "second", "name": "another model of that server"})
    (openclaw / "state" / "openclaw.json").write_text(json.dumps(config))
    assert _connect(gateway) == 0
    assert _config(openclaw)["models"]["providers"]["openclaw-rl"] == entry


def test_remove_keeps_a_provider_with_another_url(gateway, openclaw, capsys):
    assert _connect(gateway) == 0
    config = _config(openclaw)
    config["models"]["providers"]["openclaw-rl"]["baseUrl"] = "http://elsewhere/v1"
    (openclaw / "state" / "openclaw.json").write_text(json.dumps(config))
    assert _connect(gateway) == 1  # and does not overwrite it
    assert "already exists with the address http://elsewhere/v1" in capsys.readouterr().err
    assert main(["--remove"]) == 0
    assert "so it was kept" in capsys.readouterr().err
    left = _config(openclaw)
    assert left["models"]["providers"]["openclaw-rl"]["baseUrl"] == "http://elsewhere/v1"
    assert left["plugins"] == OWN["plugins"]


def test_a_link_is_kept_and_the_backup_is_in_the_same_folder(gateway, openclaw):
    link = openclaw / "state" / "openclaw.json"
    real = openclaw / "dotfiles" / "mine.json"
    real.parent.mkdir()
    link.rename(real)
    link.symlink_to(real)
    assert _connect(gateway) == 0
    assert link.is_symlink() and "openclaw-rl" in json.loads(real.read_text())["models"]["providers"]
    assert [path.name for path in real.parent.iterdir()] == ["mine.json"]
    assert len(list(link.parent.glob("*.before-openclaw-rl-*"))) == 1
    assert main(["--remove"]) == 0
    assert link.is_symlink() and _config(openclaw) == OWN


def test_a_read_only_file_is_not_changed(gateway, openclaw, capsys):
    file = openclaw / "state" / "openclaw.json"
    file.chmod(0o444)
    assert _connect(gateway) == 1
    assert "is read-only" in capsys.readouterr().err
    assert _config(openclaw) == OWN
    assert sorted(path.name for path in file.parent.iterdir()) == ["openclaw.json"]


def test_a_key_readable_by_others_and_blocking_settings_are_reported(gateway, openclaw, capsys):
    file = openclaw / "state" / "openclaw.json"
    file.write_text(json.dumps({"plugins": {"deny": ["rl-training-headers"]},
                                "agents": {"list": [{"id": "poet", "model": "third/model"}]}}))  # fmt: skip
    file.chmod(0o644)
    assert _connect(gateway) == 0
    output = capsys.readouterr().err
    assert (
        "plugins.deny names rl-training-headers" in output
        and "which they keep: poet" in output
        and "chmod 600" in output
    )


def test_an_invalid_settings_file_is_not_taken_for_one_with_comments(gateway, openclaw, capsys):
    file = openclaw / "state" / "openclaw.json"
    file.write_text('{"gateway": {"mode" "local"}}')
    (openclaw / "refuse").touch()
    assert _connect(gateway) == 1
    output = capsys.readouterr()
    assert "OpenClaw also rejects this file" in output.err and output.out == ""


def test_earlier_errors_in_the_settings_are_not_attributed_to_connecting(gateway, openclaw, capsys):
    (openclaw / "refuse").touch()
    assert _connect(gateway) == 1
    assert "even without the change" in capsys.readouterr().err
    assert _config(openclaw) == OWN and main(["--remove"]) == 1


@pytest.mark.parametrize(
    ("variables", "file"),
    [
        ({}, "~/.openclaw/openclaw.json"),
        ({"OPENCLAW_HOME": "/srv/claw"}, "/srv/claw/.openclaw/openclaw.json"),
        ({"OPENCLAW_PROFILE": "work"}, "~/.openclaw-work/openclaw.json"),
        ({"OPENCLAW_PROFILE": "work", "OPENCLAW_STATE_DIR": "/srv/state"}, "/srv/state/openclaw.json"),
        ({"OPENCLAW_CONFIG_PATH": "/etc/claw.json", "OPENCLAW_STATE_DIR": "/srv/state"}, "/etc/claw.json"),
    ],
)
def test_the_settings_are_searched_in_openclaws_places(variables, file):
    assert command_line.load(ConnectSettings, {}, variables).config_file == Path(file).expanduser()


def test_an_openclaw_without_node_is_reported_and_the_settings_are_written(
    gateway, openclaw, monkeypatch, capsys
):
    program = openclaw / "bin" / "openclaw"
    program.write_text("#!/usr/bin/env no-such-node\n")
    assert _connect(gateway) == 0
    output = capsys.readouterr().err
    assert "no-such-node" in output and "requires a current Node" in output
    assert "openclaw-rl" in _config(openclaw)["models"]["providers"]


@pytest.mark.parametrize(
    ("answer", "output"),
    [({"data": [{"id": "llama"}]}, "not an OpenClaw-RL server"), ({"data": []}, "lists no models")],
)
def test_another_server_at_the_address_is_reported(answer, output, openclaw, httpserver_of, capsys):
    assert main(["--url", httpserver_of(answer)]) == 1
    assert output in capsys.readouterr().err and _config(openclaw) == OWN


def test_an_invalid_address_is_reported(openclaw, capsys):
    assert main(["--url", "http://[::1"]) == 1
    assert "is not a valid URL" in capsys.readouterr().err


def test_changes_by_others_survive_the_removal():
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
    assert disconnected(new, notes) == {"agents": {"defaults": {"model": "a/b"}}}


def test_settings_of_an_unexpected_type_are_rejected_by_name():
    entry = provider_entry("http://h/v1", None, Model("m", 32768, 8192))
    with pytest.raises(ConfigError, match=r"models\.providers is not an object"):
        connected({"models": {"providers": []}}, "openclaw-rl", entry, True, None, False)
