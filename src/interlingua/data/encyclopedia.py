"""The bundled encyclopedia: short articles written side by side in eleven languages, one JSON file per topic.

It is enough to train and to measure a small model without any download. Topics of the split "test" are never trained
on with labels; every passage, of train topics too, is in the pool that test questions are asked against.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from interlingua.data.records import Collection, Document, ParallelPair, Passage, Query, QuestionPassage, Sentence
from interlingua.errors import BadInput, Damaged, suggestion
from interlingua.text.languages import language

NAME = "encyclopedia"
SPLITS = ("train", "test")


@dataclass(frozen=True, slots=True)
class Topic:
    """An article. `title`, `passage` (sentences, aligned over the languages) and `question` are by language;
    `more_questions` are English and answered by the passage as well."""

    id: str
    split: str
    title: dict[str, str]
    passage: dict[str, tuple[str, ...]]
    question: dict[str, str]
    more_questions: tuple[str, ...]

    def text(self, lang: str) -> str:
        """The passage in one language as running text."""
        return language(lang).sentence_gap.join(self.passage[lang])


def topic_files() -> list[tuple[str, str]]:
    """(file name, content) of every topic, in the order of the names."""
    folder = files("interlingua.data").joinpath("topics")
    paths = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    return [(file.name, file.read_text("utf-8")) for file in paths]


@cache
def _topics() -> tuple[Topic, ...]:
    return tuple(parse_topic(name, text) for name, text in topic_files())


def parse_topic(name: str, text: str) -> Topic:
    """The topic in the JSON `text` of the file `name`. Raises Damaged where it is none."""
    try:
        row = json.loads(text)
        topic = Topic(
            row["id"],
            row["split"],
            row["title"],
            {lang: tuple(sentences) for lang, sentences in row["passage"].items()},
            row["question"],
            tuple(row["more_questions"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(
            f"topics/{name}: not a topic of the encyclopedia ({error!r}). Install the package again."
        ) from error
    langs = set(topic.title)
    if topic.split not in SPLITS or langs != set(topic.passage) or langs != set(topic.question) or "en" not in langs:
        raise Damaged(f"topics/{name}: the split or the languages of title, passage and question are wrong.")
    if len({len(sentences) for sentences in topic.passage.values()}) != 1:
        raise Damaged(f"topics/{name}: passages with different numbers of sentences.")
    return topic


def topics(split: str | None = None) -> list[Topic]:
    """The topics of a split ("train", "test"; None: all), in the order of their ids."""
    if split is not None and split not in SPLITS:
        raise BadInput(f"the encyclopedia has no split '{split}'.{suggestion(split, SPLITS)}")
    selection = [topic for topic in _topics() if split in (None, topic.split)]
    if not selection:
        raise Damaged("the bundled encyclopedia has no topics. Install the package again.")
    return selection


def languages(langs: Iterable[str] | None = None) -> list[str]:
    """The languages of the encyclopedia, or those asked for. Raises BadInput for one that it lacks."""
    available = sorted(topics()[0].title)
    chosen = available if langs is None else list(langs)
    for lang in chosen:
        if lang not in available:
            raise BadInput(f"the encyclopedia is not written in '{lang}'.{suggestion(lang, available)}")
    return chosen


def questions(split: str | None = "train", lang: str = "en") -> Iterator[QuestionPassage]:
    """The question of every topic with its passage; in English also the further questions."""
    languages([lang])
    for topic in topics(split):
        positive = Passage(topic.id, topic.text(lang), topic.title[lang], lang)
        texts = [topic.question[lang], *(topic.more_questions if lang == "en" else ())]
        for number, question in enumerate(texts):
            yield QuestionPassage(question, (positive,), (), lang, f"{topic.id}#{number}")


def parallel(split: str | None = "train", langs: Iterable[str] | None = None) -> Iterator[ParallelPair]:
    """Every sentence in every language with its English version. Translations of one sentence share a group."""
    chosen = [lang for lang in languages(langs) if lang != "en"]
    for topic in topics(split):
        for number, english in enumerate(topic.passage["en"]):
            for lang in chosen:
                yield ParallelPair(topic.passage[lang][number], english, lang, "en", None, f"{topic.id}#{number}", NAME)


def sentences(split: str | None = None, langs: Iterable[str] | None = None) -> Iterator[Sentence]:
    """Every sentence of every language as raw text."""
    for document in documents(split, langs):
        for sentence in document.sentences:
            yield Sentence(sentence, document.lang)


def documents(split: str | None = None, langs: Iterable[str] | None = None) -> Iterator[Document]:
    """Every article in every language; the versions of one topic share a group."""
    chosen = languages(langs)
    for topic in topics(split):
        for lang in chosen:
            yield Document(topic.passage[lang], lang, f"{topic.id}.{lang}", topic.title[lang], topic.id)


def collection(lang: str, split: str = "test") -> Collection:
    """The questions of the split's topics against the passages of all topics, in one language. Ids are the same in
    every language, so that questions of one can be asked against passages of another."""
    languages([lang])
    passages = [Passage(topic.id, topic.text(lang), topic.title[lang], lang) for topic in topics()]
    split_topics = topics(split)
    queries = [Query(topic.id, topic.question[lang], lang) for topic in split_topics]
    return Collection(f"{NAME}_{lang}", passages, queries, {topic.id: {topic.id: 1} for topic in split_topics})


def is_encyclopedia(path: object) -> bool:
    """Whether a path means this encyclopedia: `encyclopedia` or `encyclopedia:…`, unless such a file exists."""
    return isinstance(path, str) and path.split(":")[0] == NAME and not Path(path).exists()


def split_of(path: object, default: str | None) -> str | None:
    """The split in `encyclopedia:train`; `default` where none is named."""
    return str(path).partition(":")[2] or default
