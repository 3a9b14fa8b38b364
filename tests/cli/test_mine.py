from __future__ import annotations

import gzip
import json
import statistics

import pytest

from interlingua.alignment.mining import CorpusSide, mine_bitext
from interlingua.cli import main
from interlingua.models.dual import DualEncoder

SAME = ["The lighthouse keeper wrote every storm", "Two rivers meet below the old town", "a small blue book"]


@pytest.fixture(scope="module")
def street(tmp_path_factory, tiny_static, sentences):
    """A model, and two files of 9 and 7 lines: lines 1, 3, 4 of the first are nearly lines 5, 1, 3 of the second."""
    root = tmp_path_factory.mktemp("mine")
    DualEncoder(tiny_static()).save(root / "model")
    others = [line for line in sentences if not line.isascii()]
    a = [SAME[0], "", SAME[1], SAME[2], *others[:3], others[0], " "]
    b = [SAME[1] + " and", others[4], SAME[2] + "s", "", SAME[0] + " s", others[5], others[6]]
    (root / "a.txt").write_text("\n".join(a) + "\n", encoding="utf-8")
    (root / "b.txt.gz").write_bytes(gzip.compress(("\n".join(b) + "\n").encode()))
    rows = (json.dumps({"id": f"b{i}", "text": text}) + "\n" for i, text in enumerate(b, 1))
    (root / "b.jsonl").write_text("".join(rows), encoding="utf-8")
    (root / "gold").write_text("1\t5\n3\t1\n4\t3\n")
    return root


def mine(root, *options, a="a.txt", b="b.txt.gz"):
    code = main(
        [
            "mine",
            str(root / a),
            str(root / b),
            "--model",
            str(root / "model"),
            "--out",
            str(root / "out.tsv"),
            *map(str, options),
        ]
    )
    lines = (root / "out.tsv").read_text(encoding="utf-8").splitlines() if code == 0 else []
    return code, [tuple(line.split("\t")) for line in lines]


def test_pairs_are_written_best_first_and_everything_is_counted(street, capsys):
    code, rows = mine(street)
    said = capsys.readouterr().err
    assert code == 0
    assert {row[1:] for row in rows[:3]} == {
        (SAME[0], SAME[0] + " s"),
        (SAME[1], SAME[1] + " and"),
        (SAME[2], SAME[2] + "s"),
    }
    scores = [float(score) for score, *_ in rows]
    assert scores == sorted(scores, reverse=True)
    assert "a.txt: 9 lines, 6 distinct sentences, 1 came again, 2 blank" in said
    assert "b.txt.gz: 7 lines, 6 distinct sentences, 1 blank" in said
    quartiles = ", ".join(f"{quartile:.3f}" for quartile in statistics.quantiles(scores, method="inclusive"))
    spread = f"scores {scores[-1]:.3f} to {scores[0]:.3f}, quartiles {quartiles}"
    assert f"out.tsv: {len(rows)} pairs; {spread}" in said
    assert "No threshold" in said
    # the same as from Python
    x, y = (CorpusSide.read(street / name) for name in ("a.txt", "b.txt.gz"))
    model = DualEncoder.load(street / "model")
    found = mine_bitext(model.encode_document(x.texts), model.encode_document(y.texts))
    assert rows == [(f"{score:.6f}", x.texts[i], y.texts[j]) for i, j, score in found]


def test_sentences_are_read_in_the_role_that_is_given(street, tiny_static):
    DualEncoder(tiny_static(), tiny_static(seed=3)).save(street / "two")
    model = DualEncoder.load(street / "two")
    x, y = (CorpusSide.read(street / name) for name in ("a.txt", "b.txt.gz"))
    for role, encode in (("query", model.encode_query), ("passage", model.encode_document)):
        rows = mine(street, "--model", street / "two", "--role", role)[1]
        assert rows == [
            (f"{score:.6f}", x.texts[i], y.texts[j]) for i, j, score in mine_bitext(encode(x.texts), encode(y.texts))
        ]


def test_the_threshold_is_given_or_learnt_from_gold(street, capsys):
    everything = mine(street, "-k", 2, "--margin", "distance")[1]
    half = (float(everything[1][0]) + float(everything[2][0])) / 2
    assert mine(street, "-k", 2, "--margin", "distance", "--threshold", half) == (0, everything[:2])
    assert "of --margin distance, say `options: {threshold: X}`" in capsys.readouterr().err
    capsys.readouterr()
    learnt = mine(street, "--gold", street / "gold")[1]
    said = capsys.readouterr().err
    assert "learnt: F1 100.0, precision 100.0, recall 100.0 (3 of 3 gold pairs)" in said
    least = float(said.split("threshold ")[1].split(",")[0])
    assert learnt == [row for row in mine(street)[1] if float(row[0]) >= least]
    (street / "gold.jsonl").write_text("1\tb5\n3\tb1\n4\tb3\n")
    assert mine(street, "--gold", street / "gold.jsonl", b="b.jsonl")[1] == learnt


def test_gold_of_other_files_is_refused_and_nothing_is_written(street, capsys):
    (street / "out.tsv").write_text("before")
    (street / "wrong").write_text("fr-1\ten-1\n")
    assert mine(street, "--gold", street / "wrong")[0] == 2
    assert "none of its 1 pairs was mined" in capsys.readouterr().err
    assert (street / "out.tsv").read_text() == "before"


def test_retrieval_half_precision_and_white_space(street):
    everything, forward = mine(street)[1], mine(street, "--retrieval", "forward")[1]
    assert len(forward) == 6  # each sentence of A has a pair
    assert {row[1:] for row in mine(street, "--retrieval", "intersection")[1]} <= {row[1:] for row in forward}
    halves = mine(street, "--half")[1]
    assert [row[1:] for row in halves[:3]] == [row[1:] for row in everything[:3]]
    (street / "tab.jsonl").write_text(json.dumps({"text": "a small\tblue\nbook"}) + "\n")
    assert mine(street, b="tab.jsonl")[1][0][1:] == (SAME[2], "a small blue book")


def test_mistakes_are_one_line(street, capsys):
    (street / "empty.txt").write_text("")
    for options, kinds, message in (
        ((), {"b": "empty.txt"}, "empty.txt: is empty"),
        (("-k", 0), {}, "k=0: must be at least 1"),
        (("--gold", street / "none"), {}, "none: no such file"),
    ):
        assert mine(street, *options, **kinds)[0] == 2
        assert message in capsys.readouterr().err
    for options in (("--gold", street / "gold", "--threshold", 1), ("--threshold", "nan")):
        with pytest.raises(SystemExit):
            mine(street, *options)
    assert "argument --threshold: invalid number value: 'nan'" in capsys.readouterr().err
