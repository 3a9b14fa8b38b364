from __future__ import annotations

import gzip
import sys

import pytest

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.retrieval.pipeline.run import (
    command,
    language_of,
    read_translations,
    translate_queries,
    translated_queries,
)

QUERIES = [Query("1", "where is\nthe sea?", "en"), Query("2", "who wrote it?", "en")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", "1\two ist das Meer?\n\n2\twer schrieb es?\tnl\n"),
        ("t.jsonl", '{"id": 1, "text": "wo ist das Meer?"}\n{"id": "2", "text": "wer schrieb es?", "lang": "nld"}\n'),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_translations_by_id_in_the_language_of_the_passages(tmp_path, name, content, packed):
    file = tmp_path / f"{name}{'.gz' * packed}"
    file.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    found = translated_queries(QUERIES[::-1], read_translations(file), "de")
    assert found == [Query("2", "wer schrieb es?", "nl"), Query("1", "wo ist das Meer?", "de")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("1\tein\n1\tzwei\n", r"t\.tsv, line 2: the query id '1' occurs twice"),
        ("1\tein\n2\n", r"t\.tsv, line 2: 1 column\(s\), 2 or 3 are needed"),
        ("1\tein\n2\t \n", r"t\.tsv, line 2: 'text' is empty"),
        ('{"id": 1, "text": "ein"}\n{"id": 2}\n', r"t\.tsv, line 2: no 'text'"),
        ("1\tein\tklingon\n", r"t\.tsv, line 1: .*'klingon'"),
        ("", r"t\.tsv: is empty"),
    ],
)
def test_bad_rows_are_named(tmp_path, content, said):
    (tmp_path / "t.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(InterlinguaError, match=said):
        read_translations(tmp_path / "t.tsv")


def test_missing_ids_are_counted_and_a_language_is_needed():
    with pytest.raises(InterlinguaError, match=r"t\.tsv: no translation of 1 of 2 queries, the first is '2'"):
        translated_queries(QUERIES, {"1": Query("1", "ein")}, "de", "t.tsv")
    with pytest.raises(InterlinguaError, match="the language of '1' is unknown, as the passages are of several"):
        translated_queries(QUERIES[:1], {"1": Query("1", "ein")}, "")


def test_a_callable_gets_one_line_for_each_query():
    seen = []

    def translate(lines):
        seen.extend(lines)
        return [line.upper() + "\r" for line in lines]

    assert translate_queries(QUERIES, translate, "de") == [
        Query("1", "WHERE IS THE SEA?", "de"),
        Query("2", "WHO WROTE IT?", "de"),
    ]
    assert seen == ["where is the sea?", "who wrote it?"]
    with pytest.raises(InterlinguaError, match="the translation has 1 lines for 2 queries"):
        translate_queries(QUERIES, lambda lines: lines[:1], "de")
    with pytest.raises(InterlinguaError, match="the translation of 1 queries is empty, the first is '2'"):
        translate_queries(QUERIES, lambda lines: [lines[0], " "], "de")


def test_a_command_is_run_without_a_shell(tmp_path):
    upper = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line.decode().upper().encode())"
    queries = [Query("1", "ça va; touch pwned"), Query("2", "$(touch pwned) كيف\u2028هو")]
    found = translate_queries(queries, command([sys.executable, "-c", upper]), "de")
    assert [query.text for query in found] == ["ÇA VA; TOUCH PWNED", "$(TOUCH PWNED) كيف هو"]
    assert command([sys.executable, "-c", "print(1/0)"])([]) == []
    argument = "x; touch pwned"
    echo = "import sys; sys.stdin.read(); print(sys.argv[1])"
    assert command([sys.executable, "-c", echo, argument])(["a"]) == [argument]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.stdin.readline()", "1 lines for 2 queries|has 1 lines|is empty"),
        ("print('a\\nb\\nc')", "the translation has 3 lines for 2 queries"),
        ("import sys; sys.exit('no such language')", r"failed with exit code 1 \(no such language\)"),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\n\\xff\\n')", "its output is not UTF-8"),
    ],
)
def test_a_command_that_fails(program, said):
    with pytest.raises(InterlinguaError, match=said):
        translate_queries(QUERIES, command([sys.executable, "-c", program]), "de")


def test_a_command_that_is_not_there():
    with pytest.raises(InterlinguaError, match=r"nowhere/translate: cannot be run \(No such file"):
        translate_queries(QUERIES, command(["nowhere/translate"]), "de")
    with pytest.raises(InterlinguaError, match="the command that translates is empty"):
        command([])


def test_the_language_of_passages():
    assert language_of([Passage("1", "a", lang="de"), Passage("2", "b", lang="de")]) == "de"
    assert language_of([Passage("1", "a", lang="de"), Passage("2", "b", lang="fr")]) == ""
    assert language_of([]) == ""
