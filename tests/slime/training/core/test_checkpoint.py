from __future__ import annotations

import json
import pickle
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemWriter
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from slime.errors import CheckpointError, ConfigError, TrainError
from slime.training.fsdp import CheckpointState
from slime.weights import checkpoints
from slime.weights.checksum import weights_checksum
from tests.fakes.fixtures import MakeArgs, MakeSamples, MakeTrainer
from tests.fakes.forks import Forks

if TYPE_CHECKING:
    from slime.training.trainer import Trainer


RESUME = """
import pickle, sys
from slime.training.fsdp import FSDPTrainer
args, rollouts, wanted, folder = pickle.load(open(sys.argv[1], "rb"))
trainer = FSDPTrainer(args)
trainer.load()
for rollout_id in wanted:
    trainer.train(rollout_id, rollouts[rollout_id])
print(trainer.export_weights(folder, 9))
"""


def full_state(trainer: Trainer) -> dict[str, torch.Tensor]:
    state = {f"w.{name}": tensor.full_tensor() for name, tensor in trainer.model.state_dict().items()}
    for number, moments in trainer.learner.optimizer.state_dict()["state"].items():
        for name, value in moments.items():
            state[f"o.{number}.{name}"] = value.full_tensor() if hasattr(value, "full_tensor") else value
    return state


def test_resuming_in_a_new_process_is_bit_exact(
    make_args: MakeArgs,
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    fsdp_forks: Forks,
    tmp_path: Path,
) -> None:
    rollouts = [make_samples(5, seed=seed) for seed in range(4)]
    changes = {"lr_decay_style": "linear", "lr_decay_iters": 10, "lr_warmup_iters": 2, "weight_decay": 0.1}
    straight = make_trainer(**changes, save=str(tmp_path / "straight"))
    for rollout_id in range(4):
        straight.train(rollout_id, rollouts[rollout_id])
    first = make_trainer(**changes)
    for rollout_id in range(2):
        first.train(rollout_id, rollouts[rollout_id])
    first.save(1, version=2, parent=1)
    order = tmp_path / "order.pickle"
    order.write_bytes(pickle.dumps((make_args(**changes), rollouts, [2, 3], str(tmp_path / "out"))))
    [printed] = fsdp_forks.run(RESUME, tmp_path, [order])
    assert printed.split()[-1] == straight.export_weights(str(tmp_path / "straight_out"), 9)


def test_the_complete_state_is_restored(make_trainer: MakeTrainer, make_samples: MakeSamples) -> None:
    trainer = make_trainer()
    trainer.train(3, make_samples(3))
    path = trainer.save(3, version=5, parent=4)
    drawn = torch.rand(3)
    restored = make_trainer(seed=99)
    assert restored.load() == CheckpointState(3, 5, 4, path, global_step=1)
    assert torch.equal(torch.rand(3), drawn)
    assert restored.version == 5
    expected, found = full_state(trainer), full_state(restored)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_checkpoint_before_the_first_step_resumes_exactly_too(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    fresh = make_trainer()
    fresh.save(0, version=1, parent=0)
    resumed = make_trainer()
    resumed.load()
    for trainer in (fresh, resumed):
        trainer.train(1, make_samples(3))
    expected, found = full_state(fresh), full_state(resumed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_held_checkpoint_is_valid_once_put_into_force(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    trainer = make_trainer()
    trainer.save(0, version=1, parent=0)
    trainer.train(1, make_samples(3))
    path = trainer.save(1, version=2, parent=1, hold=True)
    wanted = {name: tensor.clone() for name, tensor in full_state(trainer).items()}
    trainer.train(2, make_samples(3, seed=5))
    assert make_trainer().load().version == 1, "nothing has come of it yet"
    checkpoints.activate_checkpoint(Path(path))
    restored = make_trainer()
    assert restored.load() == CheckpointState(1, 2, 1, path, global_step=1)
    found = full_state(restored)
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


def test_without_a_checkpoint_training_starts_from_the_initial_weights(make_trainer: MakeTrainer) -> None:
    assert make_trainer().load() == CheckpointState(rollout_id=-1, version=0, parent=None, path=None)


def test_save_takes_precedence_over_load_once_it_has_a_checkpoint(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    old = make_trainer(save=elsewhere)
    old.train(7, make_samples(2))
    old.save(7, version=8, parent=7)
    assert make_trainer(load=elsewhere).load().rollout_id == 7
    own = make_trainer(load=elsewhere)
    own.load()
    own.save(8, version=9, parent=8)
    assert make_trainer(load=elsewhere).load().rollout_id == 8


def test_an_older_checkpoint_of_the_runs_folder_is_ignored_with_a_warning(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    trainer = make_trainer()
    paths = [trainer.save(rollout_id, version=rollout_id, parent=0) for rollout_id in (1, 2)]
    save = trainer.args.save
    assert "continues from checkpoint-3" in str(checkpoints.ignored_checkpoint_warning(save, paths[0]))
    assert "ln -sfn checkpoint-2" in str(checkpoints.ignored_checkpoint_warning(save, paths[0]))
    assert checkpoints.ignored_checkpoint_warning(save, paths[1]) is None
    assert (
        checkpoints.ignored_checkpoint_warning(save, None)
        is checkpoints.ignored_checkpoint_warning(str(tmp_path), paths[0])
        is None
    )


def test_load_may_name_a_hugging_face_folder(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    trained = make_trainer()
    trained.train(0, make_samples(2))
    checksum = trained.export_weights(str(tmp_path / "v1"), 1)
    other = make_trainer(load=str(tmp_path / "v1"))
    assert other.load().rollout_id == -1
    assert other.export_weights(str(tmp_path / "v2"), 2) == checksum


def test_an_incomplete_checkpoint_is_ignored(make_trainer: MakeTrainer, make_samples: MakeSamples) -> None:
    trainer = make_trainer()
    trainer.train(0, make_samples(2))
    save = Path(trainer.save(0, version=1, parent=0)).parent
    (save / ".checkpoint-2.tmp" / "half").mkdir(parents=True)
    assert make_trainer().load().rollout_id == 0
    trainer.train(1, make_samples(2))
    trainer.save(1, version=2, parent=1)
    assert make_trainer().load().rollout_id == 1
    assert sorted(path.name for path in save.iterdir()) == [
        "checkpoint-1",
        "checkpoint-2",
        "checkpoint-latest",
    ]


def test_saving_a_rollout_again_replaces_its_checkpoint(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer()
    trainer.save(4, version=1, parent=0)
    path = trainer.save(4, version=2, parent=0)
    assert json.loads((Path(path) / "meta.json").read_text())["version"] == 2


def test_a_link_without_its_checkpoint_is_an_error(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint-latest").symlink_to("checkpoint-12")
    with pytest.raises(CheckpointError, match=r"checkpoint-latest names .*/checkpoint-12"):
        make_trainer().load()


def test_a_checkpoint_of_the_earlier_layout_is_resumed(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    trainer = make_trainer()
    trainer.train(4, make_samples(2))
    path = Path(trainer.save(4, version=5, parent=4))
    save = tmp_path / "earlier"
    shutil.copytree(path / "trainer", save / "iter_0000004")
    shutil.copyfile(path / "meta.json", save / "iter_0000004" / "meta.json")
    (save / "latest_checkpointed_iteration.txt").write_text("4")
    resumed = make_trainer(save=str(save))
    assert resumed.load().rollout_id == 4
    expected, found = full_state(trainer), full_state(resumed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_checkpoint_of_another_shape_is_refused_by_name(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    make_trainer().save(0, version=1, parent=0)
    config = Qwen3Config(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, tie_word_embeddings=True,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(tmp_path / "other")
    with pytest.raises(
        CheckpointError, match=r"is \[32, 64\] in the checkpoint and \[32, 48\] in this model \(6 of"
    ):
        make_trainer(hf_checkpoint=str(tmp_path / "other")).load()


def test_the_optimizer_can_be_reset_with_a_loaded_checkpoint_but_not_the_runs_own(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    first = make_trainer()
    first.train(0, make_samples(2))
    path = first.save(0, version=1, parent=0)
    flags = {"load": path, "reset_optimizer_states": True, "save": str(tmp_path / "new")}
    anew = make_trainer(**flags)
    assert anew.load().global_step == 0 and not anew.learner.optimizer.state_dict()["state"]
    assert torch.equal(*(full_state(t)["w.model.norm.weight"] for t in (first, anew)))
    anew.train(1, make_samples(2))
    anew.save(1, version=2, parent=1)
    again = make_trainer(**flags)
    assert again.load().global_step == 1 and again.learner.optimizer.state_dict()["state"]


def test_a_checkpoint_is_also_a_hugging_face_model(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    trainer = make_trainer()
    trainer.train(0, make_samples(2))
    checksum = trainer.export_weights(str(tmp_path / "v1"), 1)
    trainer.save(0, version=1, parent=0, model_folder=str(tmp_path / "v1"))
    latest = tmp_path / "checkpoints" / "checkpoint-latest"
    model = AutoModelForCausalLM.from_pretrained(latest, dtype=torch.float32)
    assert weights_checksum(model.state_dict()) == checksum
    resumed = make_trainer(load=str(latest), save=str(tmp_path / "new"))
    assert resumed.load().path == str(latest.resolve())


def test_background_writing_saves_the_state_while_training_continues(
    make_trainer: MakeTrainer, make_samples: MakeSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = threading.Event()
    write = FileSystemWriter.write_data
    monkeypatch.setattr(FileSystemWriter, "write_data", lambda *a, **k: may_write.wait(20) and write(*a, **k))
    trainer = make_trainer(async_save=True)
    trainer.train(0, make_samples(3))
    trainer.save(0, version=1, parent=0, wait=False)
    saved = {name: tensor.clone() for name, tensor in full_state(trainer).items()}
    trainer.train(1, make_samples(3))
    assert make_trainer().load().path is None, "it does not count before it is complete"
    may_write.set()
    trainer.finish_save()
    resumed = make_trainer()
    assert resumed.load().rollout_id == 0
    found = full_state(resumed)
    assert all(torch.equal(saved[name], found[name]) for name in saved)
    trainer.save(1, version=2, parent=1, wait=True)
    assert make_trainer().load().rollout_id == 1


def test_a_failing_background_write_is_reported_and_keeps_the_previous_checkpoint(
    make_trainer: MakeTrainer, make_samples: MakeSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(async_save=True)
    trainer.save(0, version=1, parent=0)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(FileSystemWriter, "write_data", full)
    trainer.save(1, version=2, parent=1, wait=False)
    with pytest.raises(TrainError, match="No space left"):
        trainer.finish_save()
    assert make_trainer().load().rollout_id == 0


@pytest.mark.parametrize("where", ["write_text", "commit_folder", "temporary_path"])
def test_a_kill_at_any_step_of_a_checkpoint_keeps_the_previous_one_valid(
    make_trainer: MakeTrainer, make_samples: MakeSamples, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def end(*args: object) -> None:
        raise KeyboardInterrupt

    trainer = make_trainer()
    trainer.save(0, version=1, parent=0)
    expected = {name: tensor.clone() for name, tensor in full_state(trainer).items()}
    trainer.train(1, make_samples(2))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoints, where, end)
        trainer.save(1, version=2, parent=1)
    resumed = make_trainer()
    assert resumed.load().rollout_id == 0
    found = full_state(resumed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    resumed.train(1, make_samples(2))
    resumed.save(1, version=3, parent=1)
    assert make_trainer().load().version == 3


def test_reading_a_checkpoint_runs_no_code_from_it(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "exploded",))

    path = Path(make_trainer().save(0, version=1, parent=0))
    (path / "trainer" / ".metadata").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="is not allowed in a checkpoint"):
        make_trainer().load()
    assert not (tmp_path / "exploded").exists()


def test_exported_weights_are_a_hugging_face_model(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    trainer = make_trainer()
    samples = make_samples(2, loss_mask=None, temperature=1.0)
    trainer.train(0, samples)
    checksum = trainer.export_weights(str(tmp_path / "v000001"), 1)
    assert trainer.version == 1
    stored = load_file(tmp_path / "v000001" / "model.safetensors")
    assert "lm_head.weight" not in stored
    assert weights_checksum(stored) == checksum
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "v000001", dtype=torch.float32)
    assert weights_checksum(model.state_dict()) == checksum
    assert (tmp_path / "v000001" / "tokenizer_config.json").is_file()
    sample = samples[0]
    with torch.no_grad():
        table = torch.log_softmax(model(torch.tensor([sample.tokens])).logits[0], -1)
    last = float(table[-2, sample.tokens[-1]])
    assert trainer.log_probs([sample])[0][-1] == pytest.approx(last, abs=1e-5)


@pytest.mark.parametrize(("gpus", "dtype"), [(0, torch.float32), (1, torch.bfloat16)])
def test_weights_are_exported_in_the_dtype_that_engines_serve(
    make_trainer: MakeTrainer, model_folder: str, tmp_path: Path, gpus: int, dtype: torch.dtype
) -> None:
    half = tmp_path / "half"
    AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.bfloat16).save_pretrained(half)
    make_trainer(hf_checkpoint=str(half), rollout_num_gpus=gpus).export_weights(str(tmp_path / "out"), 1)
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {dtype}


def test_a_folder_without_a_model_is_refused_in_one_line(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be loaded") as caught:
        make_trainer(hf_checkpoint=str(tmp_path))
    assert "\n" not in str(caught.value)
