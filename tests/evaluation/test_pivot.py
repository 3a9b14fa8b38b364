from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError
from interlingua.evaluation import pairs_between, pivot_pairs


def of(lang, *rows):
    return [ParallelPair(text, english, lang, "en") for text, english in rows]


def joined(found):
    return [(pair.source, pair.target, pair.source_lang, pair.target_lang) for pair in found.pairs]


def test_sentences_with_the_identical_english_are_joined():
    german = of("de", ("Hund", "dog"), ("Katze", "cat"), ("Haus", "house"), ("Ja", "Yes"))
    french = [ParallelPair("house", "maison", "en", "fr"), *of("fr", ("chien", "dog"), ("oui", "yes"))]
    found = pivot_pairs(german, french)
    assert joined(found) == [("Hund", "chien", "de", "fr"), ("Haus", "maison", "de", "fr")]
    assert (found.repeated, found.over) == (0, 0)


def test_every_sentence_is_used_once_and_the_rest_is_counted():
    german = of("de", ("Hund", "dog"), ("Köter", "dog"), ("Bank", "bank"), ("Bank", "bench"), ("Tier", "animal"))
    french = of("fr", ("chien", "dog"), ("banque", "bank"), ("banc", "bench"), ("bête", "animal"), ("animal", "animal"))
    found = pivot_pairs(german, french)
    assert [row[:2] for row in joined(found)] == [("Hund", "chien"), ("Bank", "banque"), ("Tier", "bête")]
    # Köter-chien: dog is used; Bank-banc: Bank is used; Tier-animal: Tier is used
    assert found.repeated == 3
    less = pivot_pairs(german, french, limit=2)
    assert (joined(less), less.repeated, less.over) == (joined(found)[:2], 3, 1)


def test_against_a_join_by_brute_force():
    rng = np.random.default_rng(3)
    german, french = (
        of(lang, *((f"{lang}{a}", f"en{b}") for a, b in rng.integers(0, 30, (60, 2)))) for lang in ("de", "fr")
    )
    used, expected, repeated = set(), [], 0
    for left, right in product(german, french):
        if left.target == right.target:
            if used & {left.target, left.source, right.source}:
                repeated += 1
            else:
                used |= {left.target, left.source, right.source}
                expected.append((left.source, right.source, "de", "fr"))
    found = pivot_pairs(german, french)
    assert (joined(found), found.repeated) == (expected, repeated)
    assert 5 < len(expected) < 30
    for side in (0, 1):
        assert len({row[side] for row in expected}) == len(expected)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (of("de", ("a", "b")), of("de", ("c", "b")), "given: de and de"),
        ([], of("de", ("c", "b")), "given: nothing and de"),
        (of("de", ("a", "b")), [ParallelPair("a", "b", "fr", "it")], "fr and it cannot be joined"),
    ],
)
def test_what_cannot_be_joined_is_refused(first, second, said):
    with pytest.raises(InterlinguaError, match=said):
        pivot_pairs(first, second)


SETS = {
    "deu-eng": of("de", ("Hund", "dog"), ("Katze", "cat"), ("Köter", "dog")),
    "fra-eng": of("fr", ("chien", "dog"), ("maison", "house")),
    "ita-fra": [ParallelPair("cane", "chien", "it", "fr"), ParallelPair("gatto", "chat", "it", "fr")],
    "fin-eng": of("fi", ("talo", "hut")),
}


def test_a_pair_of_languages_comes_from_one_file_or_from_two_through_english(capsys):
    name, pairs = pairs_between("fra-ita", SETS)
    assert (name, [(p.source, p.target, p.lang) for p in pairs]) == (
        "ita-fra",
        [("chien", "cane", "fr-it"), ("chat", "gatto", "fr-it")],
    )
    assert not capsys.readouterr().err
    name, pairs = pairs_between("fr-de", SETS)
    assert (name, [(p.source, p.target, p.lang) for p in pairs]) == ("fra-eng + deu-eng", [("chien", "Hund", "fr-de")])
    said = capsys.readouterr().err
    assert said.startswith("fr-de: 1 pair through English, 1 left out as repeated; an accuracy over fewer than 100")


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ("de", "written as two languages"),
        ("de-de", "needs two languages"),
        ("de-xx", "not a language code"),
        ("de-fir", "not a language code"),
        ("de-it", "no file has 'it' and English, and none has de and it"),
        ("de-fi", "no English sentence in common. Give a file of de and fi"),
    ],
)
def test_pairs_that_the_files_do_not_hold(codes, said):
    with pytest.raises(InterlinguaError, match=said):
        pairs_between(codes, SETS)


def test_two_files_of_one_pair_are_refused():
    with pytest.raises(InterlinguaError, match="deu-eng and more: both hold de and English"):
        pairs_between("de-fr", {**SETS, "more": SETS["deu-eng"]})
