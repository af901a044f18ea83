"""Tests that a tokenizer of another model is rejected before serving."""

from __future__ import annotations

import copy

import pytest

from slime.errors import ConfigError
from slime.rented.engine.launch import check_tokenizer
from slime.rented.engine.model_folder import ModelFolder
from slime.rented.service import ServiceSettings
from tests import MODEL
from tests.fakes.local_service import LocalService, move_in


class Reordered:
    """A tokenizer with the same tokens under other ids."""

    def __init__(self, tokenizer: object) -> None:
        self.tokenizer = tokenizer

    def encode(self, text: str) -> object:
        found = self.tokenizer.encode(text)  # type: ignore[attr-defined]
        return type("Encoding", (), {"ids": [(7 * one + 911) % 2048 for one in found.ids]})


def test_the_models_tokenizer_is_accepted_and_another_one_rejected() -> None:
    move_in()
    folder = ModelFolder.read(str(MODEL))
    sampler = LocalService(ServiceSettings(str(MODEL))).sampler(None)
    assert check_tokenizer(sampler, folder) > 40
    other = copy.copy(folder)
    object.__setattr__(other, "tokenizer", Reordered(folder.tokenizer))
    with pytest.raises(ConfigError, match="does not belong to the model at the service") as refusal:
        check_tokenizer(sampler, other)
    assert "\n" not in str(refusal.value)


def test_without_a_tokenizer_the_service_is_not_queried() -> None:
    house = move_in()
    folder = copy.copy(ModelFolder.read(str(MODEL)))
    object.__setattr__(folder, "tokenizer", None)
    assert check_tokenizer(LocalService(ServiceSettings(str(MODEL))).sampler(None), folder) == 0
    assert "log_probs" not in house.asked
