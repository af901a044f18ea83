"""Checks of instructions of IFEval and IFBench: each is a function of a response and the instruction's arguments.

Names and arguments are those of the data sets (Zhou et al., arXiv 2311.07911; Pyatkin et al., arXiv 2507.02833), checked
strictly. Instructions that need a language detector, a tagger, syllables or a list of names are left out.
"""

from __future__ import annotations

import itertools
import json
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

Given = Mapping[str, Any]
Check = Callable[[str, Given], bool]


def words(text: str) -> list[str]:
    return re.findall(r"\w+(?:['’-]\w+)*", text)


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])[\"')\]]*\s+", text.strip()) if part]


def paragraphs(text: str, mark: str = r"\n\s*\n") -> list[str]:
    return [part.strip() for part in re.split(mark, text) if part.strip()]


def related(count: int, relation: str | None, bound: int) -> bool:
    """Compares a count with a bound by a relation of the data sets: `at least` (the default) or `less than`."""
    return count < bound if relation == "less than" else count >= bound


def occurrences(text: str, word: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE))


def _letter_frequency(text: str, given: Given) -> bool:
    count = text.lower().count(str(given["letter"]).lower())
    return related(count, given.get("let_relation"), int(given["let_frequency"]))


def _nth_paragraph(text: str, given: Given) -> bool:
    parts = paragraphs(text)
    nth = int(given["nth_paragraph"])
    if len(parts) != int(given["num_paragraphs"]) or not 1 <= nth <= len(parts):
        return False
    first = words(parts[nth - 1])[:1]
    return bool(first) and first[0].lower() == str(given["first_word"]).lower()


def _is_json(text: str, given: Given) -> bool:
    bare = re.sub(r"^```(?:json)?\s*|\s*```$", "", text.strip(), flags=re.IGNORECASE)
    try:
        json.loads(bare)
    except ValueError:
        return False
    return True


def _bullets(text: str, given: Given) -> bool:
    return len(re.findall(r"^\s*(?:\*(?!\*)|-)\s*\S", text, re.MULTILINE)) == int(given["num_bullets"])


def _highlights(text: str, given: Given) -> bool:
    found = re.findall(r"\*\*[^\n*]+\*\*|\*[^\n*]+\*", text)
    return sum(bool(part.strip("*").strip()) for part in found) >= int(given["num_highlights"])


def _sections(text: str, given: Given) -> bool:
    mark = re.escape(str(given["section_spliter"]).strip())
    return len(re.findall(rf"{mark}\s*\d+", text)) >= int(given["num_sections"])


def _postscript(text: str, given: Given) -> bool:
    letters = [re.escape(letter) for letter in str(given["postscript_marker"]) if letter not in ". "]
    return re.search(r"^\s*" + r"[.\s]*".join(letters), text, re.IGNORECASE | re.MULTILINE) is not None


def _two_responses(text: str, given: Given) -> bool:
    parts = [part.strip() for part in text.split("******") if part.strip()]
    return len(parts) == 2 and parts[0] != parts[1]


def _word_range(text: str, given: Given) -> bool:
    return int(given["min_words"]) <= len(words(text)) <= int(given["max_words"])


def _limited_repeats(text: str, given: Given) -> bool:
    most = Counter(word.lower() for word in words(text)).values()
    return max(most, default=0) <= int(given["small_n"])


def _keyword_in_sentence(text: str, given: Given) -> bool:
    parts, nth = sentences(text), int(given["N"])
    return 1 <= nth <= len(parts) and occurrences(parts[nth - 1], str(given["word"])) > 0


def _first_letters_differ(text: str, given: Given) -> bool:
    letters = [word[0].lower() for word in words(text)]
    return all(a != b for a, b in itertools.pairwise(letters))


def _alphabet(text: str, given: Given) -> bool:
    letters = [word[0].lower() for word in words(text) if word[0].isalpha()]
    alphabet = string.ascii_lowercase
    start = alphabet.find(letters[0]) if letters else -1
    return start >= 0 and all(letter == alphabet[(start + i) % 26] for i, letter in enumerate(letters))


def _palindromes(text: str, given: Given) -> bool:
    found = {word.lower() for word in words(text) if len(word) >= 5 and word.lower() == word.lower()[::-1]}
    return len(found) >= 10


def _every_mark(text: str, given: Given) -> bool:
    rest = text.replace("?!", "")
    return len(rest) < len(text) and all(mark in rest for mark in ".,!?;:")


def _all_words(text: str, given: Given) -> bool:
    return all(occurrences(text, str(word)) > 0 for word in given["keywords"])


def _capital_words(text: str, given: Given) -> bool:
    count = sum(word.isupper() for word in words(text))
    return related(count, given.get("capital_relation"), int(given["capital_frequency"]))


CHECKS: dict[str, Check] = {
    "punctuation:no_comma": lambda text, given: "," not in text,
    "length_constraints:number_words": lambda text, given: related(
        len(words(text)), given.get("relation"), int(given["num_words"])
    ),
    "length_constraints:number_sentences": lambda text, given: related(
        len(sentences(text)), given.get("relation"), int(given["num_sentences"])
    ),
    "length_constraints:number_paragraphs": lambda text, given: (
        len(paragraphs(text, r"\s?\*\*\*\s?")) == int(given["num_paragraphs"])
    ),
    "length_constraints:nth_paragraph_first_word": _nth_paragraph,
    "keywords:existence": _all_words,
    "keywords:forbidden_words": lambda text, given: (
        not any(occurrences(text, str(word)) for word in given["forbidden_words"])
    ),
    "keywords:frequency": lambda text, given: related(
        occurrences(text, str(given["keyword"])), given.get("relation"), int(given["frequency"])
    ),
    "keywords:letter_frequency": _letter_frequency,
    "detectable_content:number_placeholders": lambda text, given: (
        len(re.findall(r"\[[^\[\]]+\]", text)) >= int(given["num_placeholders"])
    ),
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": _is_json,
    "detectable_format:title": lambda text, given: re.search(r"<<[^\n<>]*\w[^\n<>]*>>", text) is not None,
    "detectable_format:constrained_response": lambda text, given: any(
        f"My answer is {answer}." in text for answer in ("yes", "no", "maybe")
    ),
    "change_case:english_capital": lambda text, given: text.isupper(),
    "change_case:english_lowercase": lambda text, given: text.islower(),
    "change_case:capital_word_frequency": _capital_words,
    "startend:end_checker": lambda text, given: (
        text.strip().strip('"').lower().endswith(str(given["end_phrase"]).strip().lower())
    ),
    "startend:quotation": lambda text, given: (
        len(text.strip()) > 1 and text.strip()[0] == text.strip()[-1] == '"'
    ),
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": lambda text, given: (
        text.strip().lower().startswith(str(given["prompt_to_repeat"]).strip().lower())
    ),
    "count:word_count_range": _word_range,
    "count:unique_word_count": lambda text, given: (
        len({word.lower() for word in words(text)}) >= int(given["N"])
    ),
    "count:numbers": lambda text, given: (
        len(re.findall(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?", text)) == int(given["N"])
    ),
    "count:punctuation": _every_mark,
    "words:alphabet": _alphabet,
    "words:palindrome": _palindromes,
    "words:repeats": _limited_repeats,
    "words:no_consecutive": _first_letters_differ,
    "sentence:keyword": _keyword_in_sentence,
    "format:newline": lambda text, given: all(len(line.split()) == 1 for line in text.strip().splitlines()),
    "format:no_whitespace": lambda text, given: bool(text) and not re.search(r"\s", text),
}
