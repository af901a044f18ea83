"""Settings of other clients than OpenClaw: the written values, that no setting is lost, and that removal restores the
file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from openclaw.clients.client import Model
from openclaw.connect import own_file
from openclaw.connect.forms import NotEditable, edit
from openclaw.connect.settings import WRITTEN, ConnectSettings
from openclaw.errors import ConfigError

URL = "http://127.0.0.1:31999/v1"
OLD = {
    "codex": '# mine\nmodel = "other" # the best\n\n[projects."/a b"]\ntrust_level = "trusted"\n\n[tui]\nnews = true\n',
    "claude": '{"env": {"A": "1"},\n  "permissions": {"allow": ["Bash(ls)"]}}',
    "opencode": '{ "model": "else/where", "provider": {"else": {"options": {"apiKey": "theirs"}}}, "theme": "x" }\n',
    "hermes": "# mine\nmodel:\n    default: a/b   # the best\n    provider: openrouter\n\n# tools\ntoolsets:\n- web\n",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of all clients' settings."""
    for variable in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "OPENCODE_CONFIG_DIR", "HERMES_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    return tmp_path


def _connect(name: str, url: str = URL, **more: Any) -> None:
    own_file.connect(ConnectSettings(client=name, url=url, **more), Model("tiny-claw", 65_536, 8192))


def _read(file: Path) -> Any:
    text = file.read_text(encoding="utf-8")
    read = {".toml": tomllib.loads, ".json": json.loads, ".yaml": yaml.safe_load}
    return read[file.suffix](text)


def _file(home: Path, name: str) -> Path:
    return home / WRITTEN[name].names[0]


@pytest.mark.parametrize("name", OLD)
def test_existing_settings_are_kept_and_undoing_restores_the_file_byte_for_byte(
    home: Path, name: str
) -> None:
    file = _file(home, name)
    file.write_text(OLD[name])
    file.chmod(0o640)
    old = _read(file)
    _connect(name)
    new = _read(file)
    assert old.keys() <= new.keys() and URL.removesuffix("/v1") in file.read_text()
    assert {key: new[key] for key in old if key not in ("model", "env", "provider")} == {
        key: old[key] for key in old if key not in ("model", "env", "provider")
    }
    assert [path.read_text() for path in home.glob("*.before-openclaw-rl-*")] == [OLD[name]]
    own_file.remove(name)
    assert file.read_text() == OLD[name] and file.stat().st_mode & 0o777 == 0o640
    with pytest.raises(ConfigError, match="nothing to undo"):
        own_file.remove(name)


@pytest.mark.parametrize("name", OLD)
def test_undoing_removes_a_created_settings_file(home: Path, name: str) -> None:
    _connect(name)
    assert _file(home, name).stat().st_mode & 0o077 == 0  # it contains a key
    _connect(name, "http://127.0.0.1:32000/v1")  # the server now uses another port
    assert "32000" in _file(home, name).read_text() and "31999" not in _file(home, name).read_text()
    own_file.remove(name)
    assert not _file(home, name).exists() and not (home / own_file.NOTES).exists()


@pytest.mark.parametrize("name", OLD)
def test_user_changes_survive_undoing(home: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = _file(home, name)
    file.write_text(OLD[name])
    _connect(name)
    written = file.read_text()
    mine = {"codex": "[mine]\nx = 1\n", "hermes": "mine:\n  x: 1\n"}.get(name)
    file.write_text(written + mine if mine else json.dumps({**json.loads(written), "mine": {"x": 1}}))
    _connect(name)  # repeated, over the changed file
    own_file.remove(name)
    left = _read(file)
    assert left.pop("mine") == {"x": 1}
    (home / "old").write_text(OLD[name])
    assert left == _read((home / "old").rename(home / f"old{file.suffix}"))
    assert "# the best" in file.read_text() or name not in ("codex", "hermes")
    assert "warning: other" not in capsys.readouterr().err


def test_a_value_changed_by_the_user_is_kept_and_reported(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _connect("codex")
    file = _file(home, "codex")
    file.write_text(file.read_text().replace('model = "tiny-claw"', 'model = "mine"'))
    own_file.remove("codex")
    assert _read(file) == {"model": "mine"}
    assert "warning: model was changed after connecting" in capsys.readouterr().err


def test_a_json_file_with_comments_is_not_changed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _file(home, "opencode").write_text('{\n  // mine\n  "theme": "x"\n}')
    with pytest.raises(ConfigError, match="it was not changed"):
        _connect("opencode", api_key="secret")
    out = capsys.readouterr().out
    assert '"baseURL"' in out and "secret" not in out
    assert "// mine" in _file(home, "opencode").read_text() and not (home / own_file.NOTES).exists()


@pytest.mark.parametrize(
    "text",
    [
        'text = """\n[model_providers.openclaw-rl]\n"""\n',
        "model_providers = { other = {} }\n",
        'model = """\na"""\n',
    ],
)
def test_toml_that_cannot_be_edited_by_line_is_not_changed(home: Path, text: str) -> None:
    file = _file(home, "codex")
    file.write_text(text)
    with pytest.raises(ConfigError, match="not changed"):
        _connect("codex")
    assert file.read_text() == text


def test_a_string_setting_becomes_an_object_and_undoing_restores_the_string(home: Path) -> None:
    file = _file(home, "hermes")
    file.write_text("model: a/b\nterminal:\n  backend: local\n")
    _connect("hermes")
    assert _read(file)["model"]["default"] == "tiny-claw"
    file.write_text(file.read_text() + "mine: 1\n")
    own_file.remove("hermes")
    assert _read(file) == {"model": "a/b", "terminal": {"backend": "local"}, "mine": 1}


def test_a_provider_of_this_name_at_another_address_is_not_overwritten(home: Path) -> None:
    file = _file(home, "codex")
    file.write_text('[model_providers.openclaw-rl]\nbase_url = "http://elsewhere/v1"\n')
    with pytest.raises(
        ConfigError, match="is already http://elsewhere/v1: choose another name with --provider"
    ):
        _connect("codex")
    _connect("codex", provider="second", keep_model=True)
    new = _read(file)
    assert new["model_providers"]["second"]["base_url"] == URL and "model" not in new


@pytest.mark.parametrize("name", ["claude", "hermes"])
def test_keeping_the_model_is_rejected_for_clients_with_one_model(home: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="supports only one model"):
        _connect(name, keep_model=True)


@pytest.mark.parametrize("name", OLD)
def test_printing_shows_no_key_and_writes_nothing(
    home: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _connect(name, print_only=True, api_key="secret")
    out = capsys.readouterr().out
    assert "THE SERVER'S KEY" in out and "secret" not in out and list(home.iterdir()) == []


def test_an_invalid_settings_file_is_rejected() -> None:
    with pytest.raises(NotEditable, match="top-level value is not a mapping"):
        edit("- a\n", "yaml", {"a": 1})
    with pytest.raises(NotEditable, match="is not valid TOML"):
        edit("= 1\n", "toml", {"a": 1})


def test_the_settings_file_of_a_client_follows_its_variables(tmp_path: Path) -> None:
    opencode = WRITTEN["opencode"]
    xdg = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert own_file.settings_file(opencode, xdg) == tmp_path / "opencode" / "opencode.json"
    both = {**xdg, "OPENCODE_CONFIG_DIR": str(tmp_path / "own")}
    assert own_file.settings_file(opencode, both) == tmp_path / "own" / "opencode.json"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "opencode.jsonc").touch()
    assert own_file.settings_file(opencode, both).name == "opencode.jsonc"
    assert own_file.settings_file(WRITTEN["codex"], {}) == Path("~/.codex/config.toml").expanduser()
