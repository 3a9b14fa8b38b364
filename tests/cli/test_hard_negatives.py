"""`mine --negatives`: from questions to training questions with hard negatives, everything counted."""

import gzip
import json

import pytest

from interlingua.cli import main
from interlingua.data.readers import read_questions
from interlingua.data.records import Passage, QuestionPassage
from interlingua.models.dual import DualEncoder
from interlingua.objectives import Retrieval

TOPICS = ["lighthouse storm", "river bridge", "blue book", "old town", "southern sky"]
PASSAGES = [
    {"id": f"p{i}", "title": f"T{i}", "text": f"The {topic} of number {i} and another {topic}", "lang": "en"}
    for i, topic in enumerate(TOPICS * 4)
]


@pytest.fixture(scope="module")
def street(tmp_path_factory, tiny_static):
    root = tmp_path_factory.mktemp("negatives")
    DualEncoder.tied(tiny_static()).save(root / "model")
    rows = [
        {
            "id": f"q{i}",
            "question": f"What is the {topic}?",
            "title": f"T{i}",
            "lang": "en",
            "passage_id": f"p{i}",
            "passage": PASSAGES[i]["text"],
        }
        for i, topic in enumerate(TOPICS)
    ]
    rows.append({"question": "Where does the stranger live?", "passage": "The stranger lives in the sky", "lang": "en"})
    (root / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "passages.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(p) + "\n" for p in PASSAGES).encode()))
    return root


def mine(root, *options, questions="q.jsonl", passages=("passages.jsonl.gz",)):
    (root / "out.jsonl").unlink(missing_ok=True)
    where = ["--passages", *(str(root / name) for name in passages)] if passages else []
    code = main(
        ["mine", str(root / questions), "--negatives", "--out", str(root / "out.jsonl"), *map(str, options), *where]
    )
    return list(read_questions(root / "out.jsonl")) if code == 0 else code


@pytest.mark.parametrize("retriever", ["bm25", "bm25(analyzer=char4)", "model"])
def test_training_reads_what_is_mined(street, retriever, capsys):
    given = list(read_questions(street / "q.jsonl"))
    name = street / "model" if retriever == "model" else retriever
    mined = mine(street, "--retriever", name, "--negatives-per-question", 2, "--positive-margin", "none")
    said = capsys.readouterr().err
    assert [one.question for one in mined] == [one.question for one in given]
    assert [one.positives for one in mined] == [one.positives for one in given]
    assert [one.id for one in mined] == [one.id for one in given]
    known = {Passage(**row) for row in PASSAGES} | set(given[-1].positives)
    for record in mined[:5]:
        assert len(record.negatives) == 2
        assert known.issuperset(record.negatives)
        assert record.positives[0] not in record.negatives
    assert "q.jsonl: 6 questions; 20 passages, and 1 of the questions' own that are not among them, are" in said
    assert "out.jsonl: 6 questions with " in said
    assert "known positives" in said
    texts = Retrieval().requests({"questions": mined})["passages"].texts
    assert len(texts) == 6 + sum(bool(one.negatives) for one in mined)


def test_bm25_finds_passages_with_the_words_of_the_question(street):
    for record in mine(street, "--retriever", "bm25", "--sampling", "top", "--negatives-per-question", 3)[:5]:
        assert {int(one.id[1:]) % 5 for one in record.negatives} == {int(record.id[1:])}


def test_the_limit_holds_for_a_model_and_not_for_bm25(street, capsys):
    model = street / "model"
    assert mine(street, "--retriever", model) == mine(street, "--retriever", model, "--positive-margin", 0.95)
    assert mine(street, "--retriever", "bm25") == mine(street, "--retriever", "bm25", "--positive-margin", "none")
    capsys.readouterr()
    mine(street, "--retriever", model, "--positive-margin", 0.2)
    said = capsys.readouterr().err
    assert "above the limit of the positive's score" in said
    assert "questions got fewer than 8" in said


def test_scores_and_the_passages_of_the_questions_alone(street, capsys):
    mined = mine(street, "--retriever", street / "model", "--scores", "--depth", 4, "--positive-margin", 1, passages=())
    assert "6 questions; 6 passages of their own are searched" in capsys.readouterr().err
    model = DualEncoder.load(street / "model")
    for record in mined:
        assert len(record.scores) == 1 + len(record.negatives)
        query = model.encode_query([record.question])
        texts = [(one.title, one.text) if one.title else one.text for one in (record.positives[0], *record.negatives)]
        expected = (query @ model.encode_document(texts).T)[0] / (
            (query**2).sum() ** 0.5 * (model.encode_document(texts) ** 2).sum(1) ** 0.5
        )
        assert record.scores == pytest.approx(expected.tolist(), abs=1e-5)
    (street / "scored.jsonl").write_text((street / "out.jsonl").read_text())
    again = mine(street, "--retriever", "bm25", questions="scored.jsonl")
    assert all(one.scores == () for one in again)
    assert "6 questions had a teacher's scores, which do not fit" in capsys.readouterr().err


def test_passages_called_by_another_key_are_known_by_their_id(street, capsys):
    rows = [{"_id": p["id"], "text": f"A translation: {p['text']}", "lang": "en"} for p in PASSAGES]
    (street / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mined = mine(street, "--retriever", "bm25", passages=["corpus.jsonl"])
    for record in mined[:5]:
        assert record.negatives
        assert record.positives[0].id not in {one.id for one in record.negatives}
    assert "20 passages, and 1 of the questions' own that are not among them, are" in capsys.readouterr().err


def test_a_title_is_a_passage_and_bad_rows_of_passages_are_skipped_too(street, capsys):
    rows = [*PASSAGES, {"_id": "t", "title": "The blue book", "text": ""}, {"_id": "none", "title": "", "text": ""}]
    (street / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--retriever", "bm25", "--lang", "en", "--sampling", "top")
    assert mine(street, *options, passages=["corpus.jsonl"]) == 2
    said = capsys.readouterr().err
    assert "corpus.jsonl, line 22: neither a text nor a title. Mend the row or take it out. " in said
    assert "test collection" not in said
    mined = mine(street, *options, "--on-bad-row", "skip", passages=["corpus.jsonl"])
    assert Passage("t", "", "The blue book", "en") in mined[2].negatives
    assert "1 bad row left out:" in capsys.readouterr().err


def test_the_same_seed_the_same_file(street):
    options = ("--retriever", "bm25", "--negatives-per-question", 2)
    mine(street, *options)
    first = (street / "out.jsonl").read_bytes()
    mine(street, *options)
    assert (street / "out.jsonl").read_bytes() == first
    mine(street, *options, "--seed", 5)
    assert (street / "out.jsonl").read_bytes() != first


def test_a_question_without_a_known_word_gets_none_and_is_counted(street, capsys):
    row = {"question": "zzzz", "passage": PASSAGES[0]["text"], "passage_id": "p0"}
    (street / "odd.jsonl").write_text(json.dumps(row) + "\n")
    (record,) = mine(street, "--retriever", "bm25", questions="odd.jsonl")
    assert isinstance(record, QuestionPassage)
    assert record.negatives == ()
    assert "0 questions got fewer than 8, 1 none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--negatives: say with --retriever"),
        (("--retriever", "bm25", "--model", "x"), "--negatives takes one file of questions"),
        (("--retriever", "bm25 + rrf(bm25, bm25)"), "one retriever is needed"),
        (("--retriever", "bm25(queries=x.tsv)"), "one retriever is needed"),
        (("--retriever", "bm25", "--positive-margin", "much"), "--positive-margin much: a number such as 0.95"),
        (("--retriever", "bm25", "--positive-margin", "2"), "margin 2.0 must be above 0"),
        (("--retriever", "bm25", "--depth", "0"), "depth 0 must be at least 1"),
        (("--retriever", "nowhere/model"), "nowhere/model"),
        (("--retriever", "bm25", "--passages", "nowhere.jsonl"), "nowhere.jsonl: no such file"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(street, options, message, capsys):
    assert mine(street, *options, passages=()) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len([line for line in said.splitlines() if line.startswith("interlingua:")]) == 1
    assert not (street / "out.jsonl").exists()


def test_options_of_the_other_kind_of_mining(street, capsys):
    both = ["mine", str(street / "q.jsonl"), "--out", str(street / "x")]
    assert main(both) == 2
    assert "mine needs two files and --model; or" in capsys.readouterr().err
    assert main([*both, str(street / "q.jsonl"), "--model", "m", "--skip-top", "3"]) == 2
    assert "--skip-top goes with --negatives only" in capsys.readouterr().err
    for option in (["-k", 3], ["--margin", "ratio"], ["--half"], ["--lang-a", "en"]):
        assert mine(street, "--retriever", "bm25", *option) == 2
        assert f"{option[0]} does not go with --negatives" in capsys.readouterr().err
    assert main([*both, str(street / "q.jsonl"), "--negatives", "--retriever", "bm25"]) == 2
    assert "takes one file of questions" in capsys.readouterr().err
