"""Turns of tiny-claw, instead of those of the store's tests."""

from tests.fakes import tiny_turns

chat_format, make_turn, prompts = tiny_turns.chat_format, tiny_turns.make_turn, tiny_turns.prompts
