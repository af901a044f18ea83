"""The teaching assistant's sessions of the evaluation.

python openclaw-test/TA_chat.py --dataset GSM8K.json --num-problems 36
"""

from __future__ import annotations

import sys

from openclaw_test.people.chat import main
from openclaw_test.people.phases import ASSISTANT

if __name__ == "__main__":
    sys.exit(main(ASSISTANT))
