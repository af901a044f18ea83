"""What a text says about the form of an answer: its layout, its length, its tone; in the languages of the rules judge.

A wish that only repeats what its own request had asked for ("I asked for a list") is about that request. It is told by
themes, not by words: "bullet points" and "numbered list" are one. A theme too many costs little, see where it is read.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

Theme = Literal["layout", "length", "tone"]

_READ = 4000
"""Characters of a text that are read, from its end: what is asked for stands behind what it is about."""

_STEMS: dict[Theme, str] = {
    "layout": """
        list lists listed bullet bulleted bullets numbered numbering enumerat itemi checklist outline paragraph
        prose sentence markdown format unformat bold heading asterisk table structured layout liste aufzähl
        stichpunkt spiegelstrich nummerier fettdruck fettschrift überschrift tabelle absatz absätze fließtext
        sätze gliederung lista listado viñeta numerad negrita tabla párrafo frases formato puce numérot tableau
        paragraphe phrases elenco punti grassetto tabella paragrafo frasi tópicos marcadores negrito tabela
        parágrafo lijst opsomming vetgedrukt tabel alinea zinnen wypunkt punktach pogrubi akapit zdania списк
        список пункт жирн таблиц абзац предложени maddeler kalın tablo paragraf cümle
    """,
    "length": """
        short shorter brief briefly long longer concise lengthy detail thorough elaborate in-depth steps kurz
        kurze kürzer knapp ausführlich detail schritte breve corto conciso detall pasos court courte bref détail
        étapes dettagli passaggi curto detalh passos kort uitgebreid stappen krótk szczegół kroki коротк кратк
        подробн шаги kısa ayrıntı adım
    """,
    "tone": """
        friendly friendlier warm warmer warmly warmth kindly kindness cheer cheerful encourag tone polite gentle
        formal informal neutral emoji praise freundlich herzlich höflich förmlich tonfall amable cálid tono
        alegre chaleureu aimable poli gentile cordiale caloros gentil vriendelijk hartelijk toon przyja uprzej
        ton дружелюб вежлив тон тёпл samimi nazik üslup
    """,
}
"""Words of up to `_WHOLE` letters, and what longer ones begin with."""
_WHOLE = 5
_SIGNS: dict[Theme, str] = {
    "layout": "列表|清单|要点|分点|编号|加粗|表格|段落|散文|箇条書き|リスト|番号付き|太字|表で|段落|文章で",
    "length": "简短|简洁|详细|步骤|短く|簡潔|詳しく|手順",
    "tone": "友好|亲切|热情|语气|礼貌|正式|親しみ|優しく|丁寧|口調",
}
"""Of scripts that put no space between words."""
_ALONE = re.compile(
    r"\b(?:only|just|nothing but|no more than)\W+(?:\w+\W+){0,3}(?:number|result|answer|figure|digit)s?\b"
    r"|\b(?:number|result|answer|figure)\W+(?:only|alone|and nothing)\b|\bone (?:word|line|sentence)\b"
    r"|\b(?:nur|bloß)\W+(?:\w+\W+){0,2}(?:zahl|ergebnis|antwort)|\bs[oó]lo\W+(?:\w+\W+){0,2}(?:número|resultado|respuesta)"
    r"|\b(?:seulement|juste|que)\W+(?:\w+\W+){0,2}(?:nombre|résultat|réponse)|只要|只给|仅仅|だけ"
)
"""Nothing but the result: a wish about length and layout at once."""


@functools.cache
def _patterns() -> dict[Theme, re.Pattern[str]]:
    found: dict[Theme, re.Pattern[str]] = {}
    for theme, stems in _STEMS.items():
        words = "|".join(
            re.escape(stem) + (r"\b" if len(stem) <= _WHOLE else "") for stem in dict.fromkeys(stems.split())
        )
        found[theme] = re.compile(rf"\b(?:{words})|{_SIGNS[theme]}")
    return found


def themes_of(text: str) -> frozenset[Theme]:
    """Which sides of an answer's form a text speaks of."""
    read = text[-_READ:].lower()
    found = {theme for theme, pattern in _patterns().items() if pattern.search(read)}
    return frozenset(found | ({"layout", "length"} if _ALONE.search(read) else set()))


def share_a_theme(request: str, wish: str) -> bool:
    """Whether both speak of the same side of an answer's form."""
    return bool(themes_of(request) & themes_of(wish))
