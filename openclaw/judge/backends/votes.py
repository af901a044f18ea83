"""Parses votes from replies of judge models. An unclear vote has no score: a wrong vote would be trained on.

A vote follows the model's reasoning: in a box, in JSON, or after a word like `Score:`. Boxes that are quoted, define
the scale, or are offered as alternatives do not count.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from openclaw.errors import JudgeError
from openclaw.types import Vote

HINT_START, HINT_END = "[HINT_START]", "[HINT_END]"
LONGEST_ANSWER = 20_000
"""Characters at the end of a reply that are searched for a vote."""

_CUT = frozenset({"length", "max_tokens", "model_length", "content_filter", "safety", "abort", "error"})
_THOUGHT_PARTS = frozenset({"thinking", "reasoning", "reasoning_text", "redacted_thinking", "summary_text"})
_TAGS = "think|thinking|thought|thoughts|reasoning|analysis|seed:think"
_OPENS = re.compile(rf"\s*(?:<(?:{_TAGS})>|\[THINK\]|◁think▷|<\|begin_of_thought\|>)", re.IGNORECASE)
_CLOSES = re.compile(rf"</(?:{_TAGS})>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>", re.IGNORECASE)
_CHANNEL, _FINAL = "<|channel|>", "<|channel|>final<|message|>"

_BOX = re.compile(r"\\*\bf?boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_MARKUP = re.compile(r"\\(?:text|mathbf|mathrm|textbf|mathit|mathsf|bf|rm)\b|[\\{}$*`]")
_MINUS = str.maketrans({"−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "－": "-"})
_WORDS = (
    "score|rating|vote|verdict|reward|judge?ment|label|评分|得分|分数|打分|评价|bewertung|punktzahl|urteil|puntuaci[oó]n|"
    "pontua[cç][aã]o|nota|оценка|评级|スコア|評価|점수|स्कोर|अंक|التقييم|الدرجة"
)
_VALUE = r"[+-]?\s*\d+(?:\.\d+)?"
_IN_A_BOX = re.compile(rf"(?:(?:final\s+)?(?:{_WORDS})\s*[:=]?\s*)?({_VALUE})(?![.\w])(\D*)", re.IGNORECASE)
_SCORED = re.compile(
    rf"(?:{_WORDS})[*_\"\s)]*(?:[:=]|is\b|ist\b|es\b|est\b|é\b|为|是)[*_\"\s]*({_VALUE})(?![.\w])[*_]*"
    rf"(?!\s*(?:[/=,→]|(?:or|and|to|if|when|for|means?)\b|-\s*\d))",
    re.IGNORECASE,
)
_KEYS = frozenset(
    {"score", "vote", "rating", "verdict", "reward", "label", "judgement", "judgment", "final_score"}
)
_QUOTED = re.compile(
    r"“[^“”\n]*”|„[^„“”\n]*[“”]|«[^«»\n]*»|「[^「」\n]*」|『[^『』\n]*』|```.*?```|`[^`\n]*`|^\s*>.*$",
    re.M | re.S,
)
_OFFERED = re.compile(r"\W*(?:or|and|oder|und|ou|et|o|y|e|或|或者|和|и|или)?\W*", re.IGNORECASE)
_DEFINES = re.compile(
    r"[\s*`$)\]\"]*(?:[=:→]|for\b|means?\b|if\b|when\b|stands\b|für\b|para\b|表示|代表|意味)\s*\w"
)
_OWN_LINE = re.compile(
    rf"\W*(?:(?:the|my|final|overall)\s+){{0,3}}(?:(?:{_WORDS}|answer|答案)\W*(?:is|:|=)?)?[\s\"“”*`$:：]*\Z",
    re.IGNORECASE,
)
_LANGUAGE = re.compile(r"^```\w*\s*|\s*```$")


@dataclass(frozen=True)
class Reply:
    """The reply of a judge model: `text` is all of it, `answer` the part after its reasoning; `whole` is False if it
    was truncated."""

    text: str
    answer: str
    whole: bool = True

    @classmethod
    def of_text(cls, text: str, finish_reason: object = None) -> Reply:
        """Returns a reply whose reasoning, if any, is part of its text."""
        return cls(text, after_reasoning(text), finish_reason not in _CUT)

    @classmethod
    def of_chat(cls, answer: Mapping[str, Any]) -> Reply:
        """Returns the first choice of an OpenAI-compatible response. Raises JudgeError for a response without
        text."""
        try:
            choice = answer["choices"][0]
            message = choice["message"]
            content, reason = message.get("content"), choice.get("finish_reason")
            thought = message.get("reasoning_content") or message.get("reasoning")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise JudgeError("the judge's answer has no choices[0].message") from error
        text, thoughts = _parts(content)
        if isinstance(thought, str):
            thoughts = f"{thought}\n{thoughts}"
        if not text and not thoughts.strip():
            raise JudgeError("the judge's answer has no text")
        return cls(text or thoughts, after_reasoning(text), reason not in _CUT)


def read_eval_vote(reply: Reply | str) -> Vote:
    """Returns a judge's score, 1, -1 or 0; an invalid vote if the reply was truncated or is unclear."""
    reply = reply if isinstance(reply, Reply) else Reply.of_text(reply)
    return Vote(score=_score(reply.answer) if reply.whole else None, text=reply.text)


def read_hint_vote(reply: Reply | str, mark: str = "") -> Vote:
    """Returns a vote on whether there is a hint, 1 or -1, else an invalid vote; for 1 with the last text between hint
    markers.

    `mark`: the random word in this request's markers. The vote's text has plain markers.
    """
    reply = reply if isinstance(reply, Reply) else Reply.of_text(reply)
    start, end = marked(HINT_START, mark), marked(HINT_END, mark)
    text = reply.text.replace(start, HINT_START).replace(end, HINT_END)
    blocks = re.compile(rf"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    score = _score(blocks.sub(" ", reply.answer)) if reply.whole else None
    if score not in (1, -1):
        return Vote(score=None, text=text)
    return Vote(score=score, text=text, hint=_last_block(reply.answer, start, end) if score == 1 else None)


def marked(marker: str, mark: str) -> str:
    """Returns a hint marker with the random word of one request, which the material cannot contain."""
    return f"{marker[:-1]}_{mark}]" if mark else marker


def after_reasoning(text: str) -> str:
    """Returns the part of a reply after its reasoning; "" if the reasoning does not end."""
    if _CHANNEL in text:
        text = text.rpartition(_FINAL)[2] if _FINAL in text else ""
    closes = list(_CLOSES.finditer(text))
    text = text[closes[-1].end() :] if closes else text
    return "" if _OPENS.match(text) else text[-LONGEST_ANSWER:]


def _parts(content: object) -> tuple[str, str]:
    """Returns a message's text and the reasoning among its parts."""
    if isinstance(content, str):
        return content, ""
    texts: list[str] = []
    thoughts: list[str] = []
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            continue
        thinks = part.get("type") in _THOUGHT_PARTS
        text = part.get("text") or part.get("thinking") or part.get("reasoning")
        text = _parts(text)[0] if isinstance(text, list) else text
        if isinstance(text, str):
            (thoughts if thinks or "text" not in part else texts).append(text)
    return "".join(texts), "\n".join(thoughts)


def _score(answer: str) -> int | None:
    bare = _LANGUAGE.sub("", answer.strip())
    objects = list(_objects(answer))
    if objects and bare.startswith("{") and bare.endswith("}"):
        return _score_of(objects)
    boxes = list(_BOX.finditer(answer))
    if boxes:
        return _boxed(answer, boxes)
    if objects:
        return _score_of(objects)
    plain = "".join(_outside(answer)).translate(_MINUS)
    scored = [match[1] for match in _SCORED.finditer(unicodedata.normalize("NFKC", plain))]
    if scored:
        return _number(scored[-1])
    signed = _MARKUP.sub("", bare.translate(_MINUS)).strip()
    return int(signed) if signed in ("+1", "-1") else None


def _boxed(answer: str, boxes: list[re.Match[str]]) -> int | None:
    """Returns the last box that is a vote: not quoted, not a definition of the scale, and not one of several
    alternatives."""
    quoted = _quoted_spans(answer)
    own = [box for box in boxes if not any(begin <= box.start() < end for begin, end in quoted)]
    if not own:
        last = boxes[-1]
        line = answer[answer.rfind("\n", 0, last.start()) + 1 : last.start()]
        ends = not re.sub(r"[\s\"“”*`$.。]", "", answer[last.end() :])
        return _content(last[1]) if ends and _OWN_LINE.fullmatch(line) else None
    defining = [box for box in own if _DEFINES.match(answer, box.end())]
    if len({_content(box[1]) for box in defining}) > 1:
        own = [box for box in own if box not in defining]
    offered: set[int] = set()
    for index, (one, other) in enumerate(itertools.pairwise(own)):
        between = answer[one.end() : other.start()]
        joined = "\n\n" not in between and _OFFERED.fullmatch(between)
        if joined and _content(one[1]) != _content(other[1]):
            offered |= {index, index + 1}
    votes = [box for index, box in enumerate(own) if index not in offered]
    return _content(votes[-1][1]) if votes else None


def _content(inside: str) -> int | None:
    """Returns 1, -1 or 0 from a box or a JSON value; None for anything else."""
    boxed = _BOX.search(inside)
    plain = unicodedata.normalize("NFKC", _MARKUP.sub("", boxed[1] if boxed else inside)).translate(_MINUS)
    match = _IN_A_BOX.fullmatch(plain.strip())
    return _number(match[1]) if match else None


def _number(text: str) -> int | None:
    value = float(re.sub(r"\s", "", text))
    return int(value) if value in (1, -1, 0) else None


def _score_of(objects: list[dict[str, Any]]) -> int | None:
    for candidate in reversed(objects):
        for key, value in candidate.items():
            if key.lower().replace(" ", "_") in _KEYS and not isinstance(value, bool):
                return _content(str(value)) if isinstance(value, int | float | str) else None
    return None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects in a text; tries at most twenty positions."""
    decoder, place = json.JSONDecoder(), text.find("{")
    for _ in range(20):
        if place < 0:
            return
        try:
            value, after = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place = text.find("{", place + 1)
            continue
        if isinstance(value, dict):
            yield value
        place = text.find("{", after)


def _quoted_spans(text: str) -> list[tuple[int, int]]:
    spans = [match.span() for match in _QUOTED.finditer(text)]
    start = 0
    for line in text.split("\n"):
        marks = [start + place for place, sign in enumerate(line) if sign == '"']
        if len(marks) % 2 == 0:
            spans += [(begin, end + 1) for begin, end in zip(marks[::2], marks[1::2], strict=True)]
        start += len(line) + 1
    return spans


def _outside(text: str) -> Iterator[str]:
    """Yields the parts of a text that are not quoted."""
    place = 0
    for begin, end in sorted(_quoted_spans(text)):
        if begin >= place:
            yield text[place:begin]
        place = max(place, end)
    yield text[place:]


def _last_block(reply: str, start: str, end: str) -> str | None:
    closes = reply.rfind(end)
    opens = reply.rfind(start, 0, closes) if closes >= 0 else -1
    return reply[opens + len(start) : closes].strip() or None if opens >= 0 else None
