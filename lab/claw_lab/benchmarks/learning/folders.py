"""Compares two model folders on all held-out prompts of `./claw progress`, without a run.

`bash lab/run.sh benchmarks.learning.folders BASE VERSION --wish brief` serves both folders in turn with the embedded
engine and prints the rows of the report, before and after, as one JSON line. VERSION is a version of a run
(RUN_DIR/weights/N, or a copy). With `--before SENTENCE` the second model reads a sentence before each everyday
question: BASE with the preference's plain sentence is the teacher. Replies are stored in --replies, so that each
folder answers once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from claw_lab.benchmarks.embedded_engine import engine_of
from openclaw.dreaming.asking import Answer, Asked, Engines, run
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.progress.asking import Answers
from openclaw.progress.prompts import GROUPS, Item, all_items, chosen
from openclaw.progress.replies import Reply
from openclaw.progress.report import Measured, Wish, as_json, rows_of, summary_of
from openclaw.types import Message

WISHES = {
    "brief": "Please answer in one or two short sentences.",
    "long": "Please answer at length, with every detail.",
    "list": "Please answer with a list of bullet points.",
    "prose": "Please answer in plain prose, without lists.",
    "greeting": "Please greet me before you answer.",
}
LONGEST = 160
"""Maximum tokens of a reply, as in `./claw progress`."""
LIMIT_SECONDS = 7200.0
"""Maximum seconds for all replies of one folder."""
IN_FLIGHT = 64
"""Prompts answered at a time; this engine has no other clients."""
ENGINE = ("--standby", "off", "--use-idle-processors", "--max-running-requests", str(2 * IN_FLIGHT))
"""Flags of the engine, which keeps half of its places for people's requests."""


def replies(folder: Path, items: Sequence[Item], before: str | None, dtype: str) -> Answers:
    """Returns greedy replies by prompt id."""
    prompts = HintedPrompts.of(folder)
    asked = [
        Asked(prompts.asked(_with_sentence(item, before), True, LONGEST), LONGEST, greedy=True)
        for item in items
    ]

    answered = answers_of(folder, prompts, asked, dtype)
    missing = sum(not (one and one.ids) for one in answered)
    if missing:
        sys.exit(f"{missing} of {len(items)} prompts have no reply after {LIMIT_SECONDS:g} s")
    return {
        item.id: Reply(prompts.text(one.ids).strip(), ended=one.ids[-1] in prompts.stop_ids)
        for item, one in zip(items, answered, strict=True)
        if one and one.ids
    }


def answers_of(
    folder: Path, prompts: HintedPrompts, asked: Sequence[Asked], dtype: str
) -> Sequence[Answer | None]:
    """Returns the answers of a model folder, in order, from the embedded engine; None for one that failed."""

    async def answers(url: str) -> Sequence[Answer | None]:
        async with Engines([url], prompts.stop_ids, limit=LIMIT_SECONDS, in_flight=IN_FLIGHT) as engines:
            return await engines.answers(asked)

    with engine_of(folder, "--dtype", dtype, *ENGINE) as url:
        return run(answers(url))


def _with_sentence(item: Item, before: str | None) -> list[Message]:
    """Returns the prompt with the sentence as the dreams' teacher reads it, only for questions without a request
    about form."""
    if before is None or item.group != "in_scope":
        return item.messages
    *earlier, last = item.messages
    return [*earlier, {**last, "content": f"{before}\n\n{last['content']}"}]


def kept_replies(kept: Path, folder: Path, items: Sequence[Item], before: str | None, dtype: str) -> Answers:
    """Returns replies from the file of earlier calls for the same weights and sentence; only missing prompts are
    asked."""
    weights = folder / "model.safetensors"
    about = [str(folder.resolve()), weights.stat().st_mtime_ns, before, dtype, LONGEST]
    file = kept / f"{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}.json"
    known = json.loads(file.read_text("utf-8")) if file.exists() else {}
    missing = [item for item in items if item.id not in known]
    if missing:
        asked = replies(folder, missing, before, dtype)
        known |= {name: one.as_dict() for name, one in asked.items()}
        kept.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(known), "utf-8")
    return {item.id: Reply.read(known[item.id]) for item in items}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", type=Path, help="model folder before learning")
    parser.add_argument("version", type=Path, help="model folder after learning")
    parser.add_argument("--wish", choices=sorted(WISHES), required=True, help="the learned preference")
    parser.add_argument("--before", help="sentence that the second model reads before everyday questions")
    parser.add_argument(
        "--groups", nargs="+", choices=GROUPS, default=GROUPS, help="classes of prompts to ask"
    )
    parser.add_argument("--most", type=int, default=0, help="most prompts of each class; 0: all")
    parser.add_argument("--dtype", default="bfloat16", help="type of the weights in the engine")
    parser.add_argument(
        "--replies", type=Path, default=Path("build/replies"), help="folder of earlier replies"
    )
    args = parser.parse_args()
    items = [item for item in chosen(all_items(), args.most) if item.group in args.groups]
    before = kept_replies(args.replies, args.base, items, None, args.dtype)
    now = kept_replies(args.replies, args.version, items, args.before, args.dtype)
    measured, wishes = Measured(items, before, now, None), [Wish(WISHES[args.wish])]
    print(json.dumps({"rows": as_json(rows_of(measured, wishes)), **summary_of(measured, wishes)}))


if __name__ == "__main__":
    main()
