"""The student's sessions of the evaluation.

python openclaw-test/student_chat.py --dataset GSM8K.json --num-problems 36
"""

from __future__ import annotations

import sys

from openclaw_test.people.chat import main
from openclaw_test.people.phases import STUDENT

if __name__ == "__main__":
    sys.exit(main(STUDENT))
