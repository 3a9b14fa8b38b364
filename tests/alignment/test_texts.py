from __future__ import annotations

import gzip
import json

import pytest

from interlingua.alignment.texts import sample_texts, translations
from interlingua.errors import InterlinguaError


@pytest.fixture
def files(tmp_path):
    """One file of each kind; the paths as strings."""
    with gzip.open(tmp_path / "plain.txt.gz", "wt", encoding="utf-8") as stream:
        stream.write("un\ndeux\n\ntrois\ndeux\n")
    (tmp_path / "news.fr").write_text("quatre\n", encoding="utf-8")
    (tmp_path / "mixed.jsonl").write_text(
        "".join(
            json.dumps(row) + "\n"
            for row in ({"text": "cinq", "lang": "fr"}, {"sentences": ["one", "two"], "lang": "en", "group": "g"})
        ),
        encoding="utf-8",
    )
    (tmp_path / "fr-en.tsv").write_text("six\tsix things\nsept\tseven\n", encoding="utf-8")
    (tmp_path / "de-fr.tsv").write_text("acht\thuit\n", encoding="utf-8")
    (tmp_path / "pairs.jsonl").write_text(
        json.dumps({"source": "neuf", "target": "nine", "source_lang": "fr", "target_lang": "en"}), encoding="utf-8"
    )
    return {path.name: str(path) for path in tmp_path.iterdir()}


def test_every_kind_of_file_gives_its_texts(files):
    found = sample_texts(
        [
            f"fra={files['plain.txt.gz']}",
            files["news.fr"],
            files["mixed.jsonl"],
            files["fr-en.tsv"],
            files["pairs.jsonl"],
        ],
        100,
    )
    assert {lang: sorted(texts) for lang, texts in found.items()} == {
        "en": ["nine", "one", "seven", "six things", "two"],
        "fr": ["cinq", "deux", "neuf", "quatre", "sept", "six", "trois", "un"],
    }


def test_a_passage_has_its_own_language_where_it_is_not_that_of_the_question(tmp_path):
    row = {"query_id": "1", "query": "Mto ni nini?", "lang": "sw", "negative_passages": []}
    row["positive_passages"] = [{"docid": "p", "title": "", "text": "A river is water.", "lang": "en"}]
    (tmp_path / "asked.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    found = sample_texts([str(tmp_path / "asked.jsonl")], 9)
    assert found == {"en": ["A river is water."], "sw": ["Mto ni nini?"]}


def test_a_named_language_takes_its_texts_and_says_what_it_leaves(files, capsys):
    assert sample_texts([f"fr={files['fr-en.tsv']}"], 9).keys() == {"fr"}
    assert "2 texts in other languages than 'fr' left out" in capsys.readouterr().err
    assert sample_texts([f"fr={files['mixed.jsonl']}"], 9) == {"fr": ["cinq"]}
    with pytest.raises(InterlinguaError, match="holds no text in 'fi'"):
        sample_texts([f"fi={files['fr-en.tsv']}"], 9)
    with pytest.raises(InterlinguaError, match="'xx' is not a language code"):
        sample_texts([f"xx={files['plain.txt.gz']}"], 9)
    with pytest.raises(InterlinguaError, match="tells no language"):
        sample_texts([files["plain.txt.gz"]], 9)
    with pytest.raises(InterlinguaError, match="at least 1"):
        sample_texts([files["news.fr"]], 0)


def test_the_bundled_encyclopedia_is_read():
    found = sample_texts(["fi=encyclopedia:train", "encyclopedia:test"], 5)
    assert {len(texts) for texts in found.values()} == {5}
    assert {"fi", "en", "sw"} <= found.keys()


def test_the_sample_is_seeded_nested_and_without_repetition(tmp_path):
    texts = [f"text {i % 60}" for i in range(100)]
    (tmp_path / "a.en").write_text("\n".join(texts), encoding="utf-8")
    (tmp_path / "b.en").write_text("\n".join(reversed(texts)), encoding="utf-8")
    whole, part, again, other = (
        sample_texts([str(tmp_path / name)], limit, seed)["en"]
        for name, limit, seed in (("a.en", 99, 0), ("a.en", 20, 0), ("b.en", 20, 0), ("a.en", 20, 1))
    )
    assert sorted(whole) == sorted(set(texts))
    assert part == again == whole[:20]
    assert part != other
    assert len(set(part)) == 20


def test_translations_are_brought_into_the_order_of_the_pivot(files, capsys):
    found = translations([files["fr-en.tsv"], files["pairs.jsonl"], files["de-fr.tsv"]], "en", 10)
    assert found == {"fr": (["six", "sept", "neuf"], ["six things", "seven", "nine"])}
    assert "1 pairs left out" in capsys.readouterr().err
    assert translations([files["fr-en.tsv"], files["de-fr.tsv"]], "fr", 1) == {
        "en": (["six things"], ["six"]),
        "de": (["acht"], ["huit"]),
    }


def test_questions_with_passages_give_both(tmp_path):
    rows = (
        {"question": "Where?", "passage": "Here.", "title": "A"},
        {"question": "Où ?", "passage": "Ici.", "lang": "fr"},
    )
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = sample_texts([str(tmp_path / "qa.jsonl")], 9)
    assert {lang: sorted(texts) for lang, texts in found.items()} == {"en": ["Here.", "Where?"], "fr": ["Ici.", "Où ?"]}
    assert sample_texts([f"fr={tmp_path}/qa.jsonl"], 9).keys() == {"fr"}


def test_a_po_file_gives_its_texts_and_not_its_lines(tmp_path):
    (tmp_path / "fi.po").write_text('msgid "Open the file"\nmsgstr "Avaa tiedosto"\n', encoding="utf-8")
    expected = {"en": ["Open the file"], "fi": ["Avaa tiedosto"]}
    assert sample_texts([str(tmp_path / "fi.po")], 9) == expected
    assert sample_texts([f"fi={tmp_path}/fi.po"], 9) == {"fi": expected["fi"]}
