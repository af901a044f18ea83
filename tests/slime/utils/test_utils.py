from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import torch

from claw_base.files import commit_folder, fresh_folder, private_folder, recover_folder, write_text
from slime.errors import ConfigError
from slime.training.core.learner import learning_rate
from slime.utils.certificates import certificates
from slime.utils.logging import event
from slime.weights.checksum import weights_checksum


def test_the_checksum_covers_names_dtypes_shapes_and_bytes() -> None:
    base = {"a": torch.arange(4.0), "b": torch.ones(2)}
    changed: list[dict[str, Any]] = [
        {"a": torch.arange(4.0), "c": torch.ones(2)},
        {"a": torch.arange(4.0).reshape(2, 2), "b": torch.ones(2)},
        {"a": torch.arange(4.0), "b": torch.ones(2, dtype=torch.bfloat16)},
        {"a": torch.arange(4.0), "b": torch.tensor([1.0, 1.0000001])},
        {"a": torch.arange(4.0), "b": torch.tensor([1.0, -0.0])},
    ]
    checksums = [weights_checksum(weights) for weights in [base, *changed]]
    assert len(set(checksums)) == len(checksums)
    assert weights_checksum(dict(reversed(base.items()))) == checksums[0]
    assert weights_checksum({"a": torch.arange(8.0)[::2] / 2, "b": torch.ones(2)}) == checksums[0]


def test_a_tied_head_is_omitted_from_the_checksum_and_a_separate_one_included() -> None:
    embedding = torch.ones(3, 2)
    bare = {"model.embed_tokens.weight": embedding}
    tied = {**bare, "lm_head.weight": embedding}
    untied = {**bare, "lm_head.weight": embedding * 2}
    assert weights_checksum(tied) == weights_checksum(bare)
    assert weights_checksum(untied) != weights_checksum(bare)


def test_files_and_folders_are_written_atomically(tmp_path: Path) -> None:
    write_text(tmp_path / "f", "one")
    write_text(tmp_path / "f", "two")
    assert (tmp_path / "f").read_text() == "two"
    for content in ("old", "new"):
        building = fresh_folder(tmp_path / "d")
        (building / "x").write_text(content)
        commit_folder(building, tmp_path / "d")
    assert (tmp_path / "d" / "x").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "f"]


def test_a_replacement_interrupted_between_its_renames_is_undone(tmp_path: Path) -> None:
    (tmp_path / ".d.old").mkdir()
    recover_folder(tmp_path / "d")
    recover_folder(tmp_path / "d")
    recover_folder(tmp_path / "e")
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_an_event_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        event(logging.getLogger("test"), "step done", loss=0.123456, step=3)
    assert caplog.messages == ["step done loss=0.1235 step=3"]
    assert caplog.records[0].levelno == logging.INFO


def schedule(style: str, step: int) -> float:
    args = SimpleNamespace(lr=1.0, min_lr=0.1, lr_warmup_iters=4, lr_decay_iters=14, lr_decay_style=style)
    return learning_rate(args, step)


def test_learning_rate_schedules_have_their_expected_values() -> None:
    assert [schedule("constant", step) for step in (0, 3, 4, 99)] == [0.25, 1.0, 1.0, 1.0]
    assert [schedule("linear", step) for step in (4, 9, 14, 99)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert [schedule("cosine", step) for step in (4, 9, 14, 99)] == pytest.approx([1.0, 0.55, 0.1, 0.1])


def test_clients_share_one_set_of_certificates() -> None:
    first = httpx.Client(verify=certificates(), trust_env=False)
    assert first._transport._pool._ssl_context is certificates()  # type: ignore[attr-defined]
    first.close()


def test_a_folder_in_a_shared_place_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert private_folder(folder).stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert private_folder(folder).stat().st_mode & 0o777 == 0o700


def test_another_users_file_in_place_of_a_folder_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="not a folder"):
        private_folder(tmp_path / "link")
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(ConfigError, match="another user"):
        private_folder(tmp_path / "elsewhere")
