from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from interlingua.data import MemoryStore, RecordStore, Sentence, Stream
from interlingua.errors import InterlinguaError

SIZES = {"ar": 300, "fi": 60, "th": 9}
RECORDS = [Sentence(f"{lang} {i}", lang) for i in range(300) for lang, size in SIZES.items() if i < size]
STORE = MemoryStore(RECORDS)


def stream(**options: object) -> Stream[Sentence]:
    return Stream(STORE, **{"batch_size": 8, "seed": 3, **options})  # type: ignore[arg-type]


def texts(batches: object) -> list[list[str]]:
    return [[record.text for record in batch] for batch in batches]  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [{}, {"one_language_per_batch": True}, {"limit_per_lang": 20, "alpha": 0.0}])
def test_resumed_at_any_step_equals_unbroken(options: dict[str, object]) -> None:
    whole = texts(islice(stream(**options), 40))
    for stop in range(40):
        first = stream(**options)
        head = texts(islice(first, stop))
        resumed = stream(**options)
        resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert head + texts(islice(resumed, 40 - stop)) == whole


def test_the_state_stays_small() -> None:
    running = stream()
    for _ in range(500):
        next(running)
    assert len(json.dumps(running.state_dict())) < 300


def test_seeds_and_steps_differ() -> None:
    assert texts(islice(stream(seed=1), 3)) != texts(islice(stream(seed=2), 3))
    assert texts(islice(stream(), 3)) == texts(islice(stream(), 3))
    langs = [[record.lang for record in batch] for batch in islice(stream(batch_size=32, alpha=0.0), 20)]
    assert len({tuple(batch) for batch in langs}) == 20


@pytest.mark.parametrize(
    ("alpha", "weights"),
    [(1.0, SIZES), (0.0, dict.fromkeys(SIZES, 1)), (0.5, {lang: size**0.5 for lang, size in SIZES.items()})],
)
def test_languages_come_with_n_to_the_alpha(alpha: float, weights: dict[str, float]) -> None:
    drawn = Counter(record.lang for batch in islice(stream(batch_size=50, alpha=alpha), 200) for record in batch)
    for lang, weight in weights.items():
        assert drawn[lang] / 10_000 == pytest.approx(weight / sum(weights.values()), abs=0.015)


def test_each_epoch_holds_every_record_once_in_a_new_order() -> None:
    drawn = [record.text for batch in islice(stream(batch_size=5, langs=["fi"]), 36) for record in batch]
    epochs = [drawn[i : i + 60] for i in range(0, 180, 60)]
    for epoch in epochs:
        assert sorted(epoch) == sorted(record.text for record in RECORDS if record.lang == "fi")
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_limits_are_nested_and_seeded() -> None:
    def subset(limit: int, seed: int = 3) -> set[str]:
        limited = stream(batch_size=50, limit_per_lang=limit, alpha=0.0, seed=seed)
        return {record.text for batch in islice(limited, 60) for record in batch}

    small, large = subset(10), subset(30)
    assert small < large
    limited = stream(limit_per_lang=30, seed=3)
    assert {RECORDS[row].text for row in limited.rows()} == large
    assert sorted(stream(langs=["fi", "th"]).rows()) == [n for n, one in enumerate(RECORDS) if one.lang != "ar"]
    assert Counter(text.split()[0] for text in large) == {"ar": 30, "fi": 30, "th": 9}
    assert small != subset(10, seed=4)
    assert stream(limit_per_lang=30, alpha=1.0).probabilities == {"ar": 30 / 69, "fi": 30 / 69, "th": 9 / 69}


def test_one_language_per_batch() -> None:
    batches = list(islice(stream(one_language_per_batch=True, alpha=0.0), 30))
    assert all(len({record.lang for record in batch}) == 1 and len(batch) == 8 for batch in batches)
    assert {batch[0].lang for batch in batches} == set(SIZES)


def test_a_store_on_disk_gives_the_same_batches(tmp_path: Path) -> None:
    on_disk = Stream(RecordStore.build(tmp_path / "s", RECORDS), 8, seed=3)
    assert texts(islice(on_disk, 10)) == texts(islice(stream(), 10))


def test_a_state_of_another_stream_is_refused() -> None:
    state = stream().state_dict()
    for other, what in (
        (stream(seed=4), "seed"),
        (stream(batch_size=9), "batch_size"),
        (stream(limit_per_lang=5), "number of records"),
        (stream(alpha=0.3), "alpha"),
        (stream(one_language_per_batch=True), "one_language_per_batch"),
    ):
        with pytest.raises(InterlinguaError, match=f"another {what}"):
            other.load_state_dict(state)
    del state["alpha"], state["one_language_per_batch"]  # as earlier versions wrote it
    stream().load_state_dict(state)


def test_settings_are_checked() -> None:
    for options in ({"batch_size": 0}, {"limit_per_lang": 0}, {"seed": -1}):
        with pytest.raises(InterlinguaError, match="a stream needs"):
            stream(**options)
    with pytest.raises(InterlinguaError, match="a stream of 'ko', of which there are no records"):
        stream(langs=["ko"])
