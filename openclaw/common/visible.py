"""Makes untrusted text safe to display on a page or in a terminal: its characters cannot hide, reverse or end the
surrounding text, or control the terminal."""

from __future__ import annotations

_CONTROLS = {*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0)}
_HIDDEN = {  # or changing the text direction
    0x061C, 0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF,
    *range(0xE0000, 0xE0080), *range(0xE0100, 0xE01F0),  # invisible tags and selectors
}  # fmt: skip
_SHOWN_CONTROLS = {code: f"⟨{code:04X}⟩" for code in _CONTROLS} | {0x0D: None}
_SHOWN = _SHOWN_CONTROLS | {code: f"⟨{code:04X}⟩" for code in _HIDDEN}


def visible(text: str) -> str:
    """Returns the text with a code in place of every invisible character."""
    return text.translate(_SHOWN)


def without_controls(text: str) -> str:
    """Returns the text with a code in place of every control character, for a terminal: emoji and marks of the text
    direction stay."""
    return text.translate(_SHOWN_CONTROLS)


def visible_line(text: str) -> str:
    """Returns the text as one line, with codes in place of invisible characters."""
    return visible(" ".join(text.splitlines()))
