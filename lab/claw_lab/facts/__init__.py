"""An example of --facts-path: the sums in an answer are facts about it.

--trust facts --facts-path claw_lab.facts:sums_hold
"""

from __future__ import annotations

from claw_lab.facts.arithmetic import arithmetic_holds
from openclaw.common.messages import LINE_BREAK, text_of
from openclaw.types import Turn


def sums_hold(turn: Turn) -> bool | None:
    """Returns True if all sums of the answer are right, False if one is wrong, None if there is none."""
    return arithmetic_holds(text_of(turn.response_message, LINE_BREAK))
