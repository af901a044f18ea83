from __future__ import annotations

import tracemalloc

from openclaw.formats.tokenizer import TextCache


def test_the_text_cache_is_bounded_and_keeps_the_last_used_texts() -> None:
    limit = 200_000
    tracemalloc.start()
    cache = TextCache(limit)
    for number in range(20_000):
        cache.put(f"a short text, number {number}", list(range(1000, 1012)))
        assert cache.get("a short text, number 0") is not None
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 1.3 * limit
    assert cache.get("a short text, number 19999") == list(range(1000, 1012))
    assert cache.get("a short text, number 1") is None
