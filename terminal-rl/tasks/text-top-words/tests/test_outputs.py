import re
from collections import Counter
from pathlib import Path

FIRST = "The river ran past the mill"


def test_the_three_words_and_their_counts():
    book = Path("/app/book.txt").read_text()
    assert book.startswith(FIRST) and len(book) == 284
    counts = Counter(re.findall("[a-z]+", book.lower()))
    top = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]
    assert Path("/app/top.txt").read_text() == "".join(f"{word} {count}\n" for word, count in top)
