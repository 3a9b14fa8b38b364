from __future__ import annotations

import json
from pathlib import Path

import pytest

from interlingua.data import (
    encyclopedia,
    load_collection,
    read_documents,
    read_parallel,
    read_questions,
    read_sentences,
)
from interlingua.errors import InterlinguaError
from interlingua.text.languages import language

LANGS = ["ar", "bn", "en", "fi", "id", "ja", "ko", "ru", "sw", "te", "th"]


def test_every_bundled_topic_is_whole() -> None:
    for topic in encyclopedia.topics():
        assert sorted(topic.title) == sorted(topic.passage) == sorted(topic.question) == LANGS, topic.id
        assert {len(sentences) for sentences in topic.passage.values()} <= {2, 3, 4}, topic.id
        assert len({len(sentences) for sentences in topic.passage.values()}) == 1, topic.id
        assert len(topic.more_questions) == (3 if topic.split == "train" else 0), topic.id
        texts = [
            *topic.title.values(),
            *topic.question.values(),
            *topic.more_questions,
            *(sentence for sentences in topic.passage.values() for sentence in sentences),
        ]
        assert all(text.strip() for text in texts), topic.id
        assert len({topic.question["en"], *topic.more_questions}) == 1 + len(topic.more_questions), topic.id


def test_splits_do_not_share_topics() -> None:
    ids = [topic.id for topic in encyclopedia.topics()]
    assert len(ids) == len(set(ids))
    train = {topic.id for topic in encyclopedia.topics("train")}
    test = {topic.id for topic in encyclopedia.topics("test")}
    assert train
    assert test
    assert not train & test
    asked = {record.positives[0].id for record in read_questions("encyclopedia")}
    paired = {pair.group.split("#")[0] for pair in read_parallel("encyclopedia")}
    assert asked == paired == train
    assert {record.positives[0].id for record in read_questions("encyclopedia:test")} == test


def test_views_agree_with_the_topics() -> None:
    train = encyclopedia.topics("train")
    assert len(list(read_questions("encyclopedia:train"))) == 4 * len(train)
    assert len(list(read_questions("encyclopedia:train", lang="sw"))) == len(train)
    sentences = sum(len(topic.passage["en"]) for topic in train)
    pairs = list(read_parallel("encyclopedia:train"))
    assert len(pairs) == 10 * sentences
    assert {pair.source for pair in pairs if pair.group == f"{train[0].id}#1"} == {
        train[0].passage[lang][1] for lang in LANGS if lang != "en"
    }
    assert {pair.target_lang for pair in pairs} == {"en"}
    assert len(list(read_documents("encyclopedia"))) == 11 * len(encyclopedia.topics())
    assert {sentence.lang for sentence in read_sentences("encyclopedia", lang="th")} == {"th"}
    assert {pair.lang for pair in read_parallel("encyclopedia", source_lang="fin", target_lang="en")} == {"fi"}
    with pytest.raises(InterlinguaError, match="takes no option 'limit'"):
        read_parallel("encyclopedia", limit=5)


def test_collection_has_all_passages_and_the_questions_of_the_split() -> None:
    loaded = load_collection("encyclopedia:ja")
    assert {p.id for p in loaded.passages} == {topic.id for topic in encyclopedia.topics()}
    assert {q.id for q in loaded.queries} == {topic.id for topic in encyclopedia.topics("test")}
    assert "。" in loaded.passages[0].text
    assert "。 " not in loaded.passages[0].text
    assert language("ja").sentence_gap == ""
    pool = load_collection("encyclopedia")
    assert len(pool.passages) == 11 * len(loaded.passages)
    assert {len(grades) for grades in pool.qrels.values()} == {11}


def test_unknown_names() -> None:
    with pytest.raises(InterlinguaError, match=r"no split 'tset'\. Did you mean 'test'"):
        list(read_questions("encyclopedia:tset"))
    with pytest.raises(InterlinguaError, match="not written in 'fr'"):
        load_collection("encyclopedia:fr")


def _topic(**changes: object) -> str:
    row = {
        "id": "t",
        "split": "train",
        "title": {"en": "T", "fi": "T"},
        "passage": {"en": ["a"], "fi": ["a"]},
        "question": {"en": "?", "fi": "?"},
        "more_questions": [],
    }
    return json.dumps({**row, **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a topic"),
        (_topic(passage={"en": ["a"], "fi": ["a", "b"]}), "different numbers of sentences"),
        (_topic(split="dev"), "the split or the languages"),
        (_topic(title={"en": "T"}), "the split or the languages"),
    ],
)
def test_broken_topics(text: str, message: str) -> None:
    with pytest.raises(InterlinguaError, match=message):
        encyclopedia.parse_topic("t.json", text)


def test_a_file_of_that_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("encyclopedia").write_text('{"question": "A?", "passage": "B."}\n')
    assert [record.question for record in read_questions("encyclopedia")] == ["A?"]
