"""`Keys` tells pairs apart as a set does, in much less memory."""

from __future__ import annotations

import random
import tracemalloc

from interlingua.data.keys import Keys


def test_it_is_a_set_of_pairs():
    draw, keys, known = random.Random(0), Keys(), set()
    for _ in range(20_000):
        pair = draw.choice(["a", "b/c.md", ""]), str(draw.randrange(9_000))
        assert (pair in keys) == (pair in known)
        assert keys.add(pair) == (pair not in known)
        known.add(pair)
        assert len(keys) == len(known)
    assert all(pair in keys for pair in known)


def test_the_border_between_the_two_texts_counts():
    keys = Keys()
    assert keys.add(("ab", "c"))
    assert keys.add(("a", "bc"))
    assert keys.add(("2 a", "1"))
    assert keys.add(("\ud800", ""))
    assert not keys.add(("a", "bc"))


def test_a_pair_takes_few_bytes():
    tracemalloc.start()
    keys = Keys()
    for number in range(60_000):
        keys.add(("a/name/of/a/file.jsonl", f"an id of some length {number}"))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(keys) == 60_000
    assert size < 60_000 * 54
