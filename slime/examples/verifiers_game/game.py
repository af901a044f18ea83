"""Hangman from verifiers, for --custom-generate-function-path: its taskset `textarena`, its game, its reward.

VERIFIERS_PYTHON names the Python in which `verifiers[ta]` is installed; NLTK_DATA the folder of the game's words.
"""

from __future__ import annotations

import os
import sys

from slime.agents import EpisodeLimits, agent
from slime.agents.foreign import VerifiersEnvironments

TURNS = 28  # a game of letters ends earlier; a truncated one has no reward

environments = VerifiersEnvironments(
    {"taskset": {"id": "textarena", "game": "Hangman-v0"}},
    python=os.environ.get("VERIFIERS_PYTHON", sys.executable),
)
generate = agent(
    environments, EpisodeLimits(turns=TURNS), parallel=int(os.environ.get("PARALLEL_ENVS", "32"))
)
