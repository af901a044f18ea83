"""Checks of IFEval's and IFBench's instructions: functions of a response and the instruction's arguments.

Names and arguments are those of the data sets (Zhou et al., arXiv 2311.07911; Pyatkin et al., arXiv
2507.02833), checked strictly. Instructions that need a language detector, a tagger, syllables or a list of
names are not supported.
"""

from __future__ import annotations

import itertools
import json
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

Parameters = Mapping[str, Any]
Check = Callable[[str, Parameters], bool]


def words(text: str) -> list[str]:
    return re.findall(r"\w+(?:['’-]\w+)*", text)


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])[\"')\]]*\s+", text.strip()) if part]


def paragraphs(text: str, mark: str = r"\n\s*\n") -> list[str]:
    return [part.strip() for part in re.split(mark, text) if part.strip()]


def related(count: int, relation: str | None, bound: int) -> bool:
    """Compares a count with a bound by a relation of the data sets: `at least` (default) or `less than`."""
    return count < bound if relation == "less than" else count >= bound


def occurrences(text: str, word: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE))


def _letter_frequency(text: str, parameters: Parameters) -> bool:
    count = text.lower().count(str(parameters["letter"]).lower())
    return related(count, parameters.get("let_relation"), int(parameters["let_frequency"]))


def _nth_paragraph(text: str, parameters: Parameters) -> bool:
    parts = paragraphs(text)
    nth = int(parameters["nth_paragraph"])
    if len(parts) != int(parameters["num_paragraphs"]) or not 1 <= nth <= len(parts):
        return False
    first = words(parts[nth - 1])[:1]
    return bool(first) and first[0].lower() == str(parameters["first_word"]).lower()


def _is_json(text: str, parameters: Parameters) -> bool:
    bare = re.sub(r"^```(?:json)?\s*|\s*```$", "", text.strip(), flags=re.IGNORECASE)
    try:
        json.loads(bare)
    except ValueError:
        return False
    return True


def _bullets(text: str, parameters: Parameters) -> bool:
    return len(re.findall(r"^\s*(?:\*(?!\*)|-)\s*\S", text, re.MULTILINE)) == int(parameters["num_bullets"])


def _highlights(text: str, parameters: Parameters) -> bool:
    highlights = re.findall(r"\*\*[^\n*]+\*\*|\*[^\n*]+\*", text)
    return sum(bool(part.strip("*").strip()) for part in highlights) >= int(parameters["num_highlights"])


def _sections(text: str, parameters: Parameters) -> bool:
    mark = re.escape(str(parameters["section_spliter"]).strip())
    return len(re.findall(rf"{mark}\s*\d+", text)) >= int(parameters["num_sections"])


def _postscript(text: str, parameters: Parameters) -> bool:
    letters = [re.escape(letter) for letter in str(parameters["postscript_marker"]) if letter not in ". "]
    return re.search(r"^\s*" + r"[.\s]*".join(letters), text, re.IGNORECASE | re.MULTILINE) is not None


def _two_responses(text: str, parameters: Parameters) -> bool:
    parts = [part.strip() for part in text.split("******") if part.strip()]
    return len(parts) == 2 and parts[0] != parts[1]


def _word_range(text: str, parameters: Parameters) -> bool:
    return int(parameters["min_words"]) <= len(words(text)) <= int(parameters["max_words"])


def _limited_repeats(text: str, parameters: Parameters) -> bool:
    most = Counter(word.lower() for word in words(text)).values()
    return max(most, default=0) <= int(parameters["small_n"])


def _keyword_in_sentence(text: str, parameters: Parameters) -> bool:
    parts, nth = sentences(text), int(parameters["N"])
    return 1 <= nth <= len(parts) and occurrences(parts[nth - 1], str(parameters["word"])) > 0


def _first_letters_differ(text: str, parameters: Parameters) -> bool:
    letters = [word[0].lower() for word in words(text)]
    return all(a != b for a, b in itertools.pairwise(letters))


def _alphabet(text: str, parameters: Parameters) -> bool:
    letters = [word[0].lower() for word in words(text) if word[0].isalpha()]
    alphabet = string.ascii_lowercase
    start = alphabet.find(letters[0]) if letters else -1
    return start >= 0 and all(letter == alphabet[(start + i) % 26] for i, letter in enumerate(letters))


def _palindromes(text: str, parameters: Parameters) -> bool:
    palindromes = {
        word.lower() for word in words(text) if len(word) >= 5 and word.lower() == word.lower()[::-1]
    }
    return len(palindromes) >= 10


def _every_mark(text: str, parameters: Parameters) -> bool:
    rest = text.replace("?!", "")
    return len(rest) < len(text) and all(mark in rest for mark in ".,!?;:")


def _all_words(text: str, parameters: Parameters) -> bool:
    return all(occurrences(text, str(word)) > 0 for word in parameters["keywords"])


def _capital_words(text: str, parameters: Parameters) -> bool:
    count = sum(word.isupper() for word in words(text))
    return related(count, parameters.get("capital_relation"), int(parameters["capital_frequency"]))


CHECKS: dict[str, Check] = {
    "punctuation:no_comma": lambda text, parameters: "," not in text,
    "length_constraints:number_words": lambda text, parameters: related(
        len(words(text)), parameters.get("relation"), int(parameters["num_words"])
    ),
    "length_constraints:number_sentences": lambda text, parameters: related(
        len(sentences(text)), parameters.get("relation"), int(parameters["num_sentences"])
    ),
    "length_constraints:number_paragraphs": lambda text, parameters: (
        len(paragraphs(text, r"\s?\*\*\*\s?")) == int(parameters["num_paragraphs"])
    ),
    "length_constraints:nth_paragraph_first_word": _nth_paragraph,
    "keywords:existence": _all_words,
    "keywords:forbidden_words": lambda text, parameters: (
        not any(occurrences(text, str(word)) for word in parameters["forbidden_words"])
    ),
    "keywords:frequency": lambda text, parameters: related(
        occurrences(text, str(parameters["keyword"])),
        parameters.get("relation"),
        int(parameters["frequency"]),
    ),
    "keywords:letter_frequency": _letter_frequency,
    "detectable_content:number_placeholders": lambda text, parameters: (
        len(re.findall(r"\[[^\[\]]+\]", text)) >= int(parameters["num_placeholders"])
    ),
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": _is_json,
    "detectable_format:title": lambda text, parameters: (
        re.search(r"<<[^\n<>]*\w[^\n<>]*>>", text) is not None
    ),
    "detectable_format:constrained_response": lambda text, parameters: any(
        f"My answer is {answer}." in text for answer in ("yes", "no", "maybe")
    ),
    "change_case:english_capital": lambda text, parameters: text.isupper(),
    "change_case:english_lowercase": lambda text, parameters: text.islower(),
    "change_case:capital_word_frequency": _capital_words,
    "startend:end_checker": lambda text, parameters: (
        text.strip().strip('"').lower().endswith(str(parameters["end_phrase"]).strip().lower())
    ),
    "startend:quotation": lambda text, parameters: (
        len(text.strip()) > 1 and text.strip()[0] == text.strip()[-1] == '"'
    ),
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": lambda text, parameters: (
        text.strip().lower().startswith(str(parameters["prompt_to_repeat"]).strip().lower())
    ),
    "count:word_count_range": _word_range,
    "count:unique_word_count": lambda text, parameters: (
        len({word.lower() for word in words(text)}) >= int(parameters["N"])
    ),
    "count:numbers": lambda text, parameters: (
        len(re.findall(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?", text)) == int(parameters["N"])
    ),
    "count:punctuation": _every_mark,
    "words:alphabet": _alphabet,
    "words:palindrome": _palindromes,
    "words:repeats": _limited_repeats,
    "words:no_consecutive": _first_letters_differ,
    "sentence:keyword": _keyword_in_sentence,
    "format:newline": lambda text, parameters: all(
        len(line.split()) == 1 for line in text.strip().splitlines()
    ),
    "format:no_whitespace": lambda text, parameters: bool(text) and not re.search(r"\s", text),
}
