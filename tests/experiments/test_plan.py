"""What a table needs: `--plan` reads the data folder to the end and names exactly what is missing or malformed."""

import gzip
import json
import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from interlingua.cli import main
from interlingua.errors import BadInput
from interlingua.experiments.catalogue import Catalogue, Check, Found, examine, measured
from interlingua.experiments.cost import evaluated, in_all
from interlingua.experiments.plan import elsewhere, needs, plan, together
from interlingua.experiments.run import Reproduction
from interlingua.experiments.spec import TableSpec, read_table
from interlingua.training.recipe import read_yaml, recipe_folder, resolve
from interlingua.training.weighted import training_digest

PAIRS = "WikiMatrix.en-sw.tsv.gz"
RECIPE = """
model: {backbone: {static: {vocab_size: 200, dim: 8}}, encoders: tied}
data:
  questions: {path: "{data}/train/qa/*.jsonl.gz", batch: 2}
  parallel: {path: "{data}/wikimatrix/WikiMatrix.en-sw.tsv.gz", format: wikimatrix, batch: 2}
objectives:
  retrieval: {temperature: 0.05, hard_negatives: 0}
  semantic: {temperature: 0.05}
training: {steps: 1}
"""
TABLE = """
title: "A small table"
measures: [RR@10]
scales: {tiny: {recipe: recipe.yaml, suites: suites.yaml, columns: [en]}}
rows:
  retrieval: {set: ["objectives.semantic=null"]}
  again: {set: ["objectives.semantic=null", "data.parallel.langs=[sw]", "description=the same"]}
  + semantic: {set: []}
"""
SUITES = """
mono: {collections: {en: "{data}/dev/xquad_en", fi: "{data}/dev/not_asked_for"}}
"""


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in lines)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A table, and a folder that has all of its data. The real data sets are larger: few rows are enough here."""
    for name, text in (("table", TABLE), ("recipe", RECIPE), ("suites", SUITES)):
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    catalogue = Catalogue.read()
    for data in catalogue.data:
        for check in data.files.values():
            check.least = check.least and 3
            check.passages, check.queries = check.passages and 2, check.queries and 2
    monkeypatch.setattr(Catalogue, "read", lambda: catalogue)
    data = tmp_path / "data"
    write(
        data / "train/qa/a.jsonl.gz", [json.dumps({"question": f"what {i}?", "passage": f"It is {i}."}) for i in "abc"]
    )
    write(data / "wikimatrix" / PAIRS, [f"1.0{i}\tOne sentence {i}.\tSentensi moja {i}." for i in range(4)])
    collection = data / "dev/xquad_en"
    write(collection / "passages.jsonl.gz", [json.dumps({"id": f"p{i}", "text": f"Text {i}."}) for i in range(2)])
    write(collection / "queries.tsv.gz", [f"q{i}\tWhat is {i}?" for i in range(2)])
    (collection / "qrels.txt").write_text("q0 0 p0 1\nq1 0 p1 1\n", encoding="utf-8")
    return tmp_path


def planned(folder, capsys):
    code = main(["reproduce", str(folder / "table.yaml"), "--scale", "tiny", "--plan", "--data", str(folder / "data")])
    return code, *capsys.readouterr()


def test_a_whole_folder_is_complete_and_counted(folder, capsys):
    code, printed, _ = planned(folder, capsys)
    assert code == 0
    assert "The data folder is complete." in printed
    for data, counted in (
        ("English questions with passages", "train/qa/*.jsonl.gz (3 rows)"),
        ("WikiMatrix v1", f"wikimatrix/{PAIRS} (4 rows)"),
        ("XQuAD", "dev/xquad_en (2 passages, 2 queries)"),
    ):
        assert f"- complete: {data}\n    1 read to the end: {counted}\n" in printed
    assert "not_asked_for" not in printed  # of a column that this scale does not have


@pytest.mark.parametrize(
    ("path", "name", "others"),
    [
        ("train/qa", "English questions with passages", ["WikiMatrix v1", "XQuAD"]),
        ("wikimatrix", "WikiMatrix v1", ["English questions with passages", "XQuAD"]),
        ("dev/xquad_en", "XQuAD", ["English questions with passages", "WikiMatrix v1"]),
    ],
)
def test_a_missing_data_set_is_named_and_no_other(folder, capsys, path, name, others):
    (folder / "data" / path).rename(folder / "elsewhere")
    code, printed, said = planned(folder, capsys)
    assert code == 2
    assert said.strip().endswith(f"data is missing or malformed: {name}.")
    assert f"Not ready: {name}." in printed
    assert f"- MISSING: {name}\n    missing: {path}" in printed
    assert "    licence: " in printed
    assert "    address: " in printed
    assert all(f"- complete: {other}" in printed for other in others)


def test_a_column_that_the_table_does_not_have_is_no_complete_plan(folder, capsys):
    given = ["reproduce", str(folder / "table.yaml"), "--scale", "tiny", "--data", str(folder / "data")]
    assert main([*given, "--plan", "--columns", "xx"]) == 2
    assert "column 'xx' is not in this table" in capsys.readouterr().err


def test_what_is_cut_or_too_small_is_malformed(folder, capsys):
    file = folder / "data/wikimatrix" / PAIRS
    whole = file.read_bytes()
    file.write_bytes(whole[:-12])
    code, printed, _ = planned(folder, capsys)
    assert code == 2
    assert f"- MALFORMED: WikiMatrix v1\n    malformed: wikimatrix/{PAIRS}: " in printed
    write(file, ["1.05\tOne.\tMoja."])
    assert "has 1 rows, 3 at least are needed" in planned(folder, capsys)[1]
    file.write_bytes(whole)
    (folder / "data/dev/xquad_en/qrels.txt").write_text("q0 0 nowhere 1\n", encoding="utf-8")
    assert "- MALFORMED: XQuAD\n" in planned(folder, capsys)[1]


def test_an_empty_folder_is_nothing_that_was_checked(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    table = read_table(str(folder / "table.yaml"))
    text, lacking = plan(Reproduction(table, "table", "tiny", str(tmp_path / "empty"), tmp_path / "out"))
    assert lacking == ["English questions with passages", "WikiMatrix v1", "XQuAD"]
    assert "complete" not in text


def test_a_file_of_ones_own_is_there_and_not_said_to_be_complete(folder, capsys):
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.replace("{data}/train/qa/*.jsonl.gz", "{data}/mine/questions.jsonl.gz"), encoding="utf-8")
    code, printed, said = planned(folder, capsys)
    assert code == 2
    assert said.strip().endswith("malformed: mine/questions.jsonl.gz.")
    write(folder / "data/mine/questions.jsonl.gz", ['{"question": "what?", "passage": "It."}'])
    code, printed, _ = planned(folder, capsys)
    assert code == 0
    assert "- there, not read: mine/questions.jsonl.gz" in printed
    assert "The data folder is complete" not in printed


def test_rows_count_and_files_of_a_folder(tmp_path):
    write(tmp_path / "a.jsonl.gz", ['{"lang": "en", "sentences": ["A.", "B."]}'] * 2)
    for check, said in (
        (Check(kind="documents", rows=2), ""),
        (Check(kind="documents", rows=3), "has 2 rows, 3 are needed"),
        (Check(lines=2), ""),
        (Check(least_lines=3), "has 2 lines, 3 at least are needed"),
        (Check(holds=["*.training.en", "*.jsonl"]), "has no *.training.en"),
    ):
        entry = Found(Catalogue.read().data[0])
        examine(tmp_path if check.holds else tmp_path / "a.jsonl.gz", "a", check, entry)
        assert entry.malformed == ([f"a: {said}"] if said else [])
        assert entry.ready is not bool(said)


def test_a_truncated_file_of_a_language_pair_is_named(tmp_path):
    check = Check(pairs={"tatoeba.swh-eng.*": 3, "tatoeba.fra-eng.*": 2})
    for lang, lines in (("swh", 3), ("fra", 2)):
        for side in (lang, "eng"):
            (tmp_path / f"tatoeba.{lang}-eng.{side}").write_text("One.\n" * lines, encoding="utf-8")
    assert measured(tmp_path, check) == "4 files, 10 lines"
    (tmp_path / "tatoeba.swh-eng.swh").write_text("One.\n" * 2, encoding="utf-8")
    with pytest.raises(BadInput, match=r"^tatoeba\.swh-eng\.swh has 2 lines, 3 are needed$"):
        measured(tmp_path, check)
    (tmp_path / "tatoeba.swh-eng.swh").unlink()
    with pytest.raises(BadInput, match=r"^has 1 files tatoeba\.swh-eng\.\*, two are needed$"):
        measured(tmp_path, check)


def test_a_file_of_two_patterns_is_counted_once(tmp_path):
    for name in ("a.en", "a.fi"):
        (tmp_path / name).write_text("One.\n", encoding="utf-8")
    assert measured(tmp_path, Check(holds=["a.", "a.en"])) == "2 files"


def test_collections_without_splits_are_measured_apart():
    catalogue = Catalogue.read()
    both = evaluated(catalogue, [], ["mr-tydi/ko", "mr-tydi/ja", "mr-tydi/ko"])
    assert both == [one for name in ("mr-tydi/ko", "mr-tydi/ja") for one in evaluated(catalogue, [], [name])]
    assert len({one.questions for one in both}) == 2


def test_documents_that_lack_a_language_are_malformed(tmp_path):
    write(
        tmp_path / "a.json.gz",
        [json.dumps({"raw_content": "One. Two.", "language": lang}) for lang in ("en", "no", "sw")],
    )
    there = Check(kind="documents", format="ccnet", langs=["en", "no"])
    assert measured(tmp_path / "a.json.gz", there) == "3 rows"
    with pytest.raises(BadInput, match=r"^has no documents in de, fr$"):
        measured(tmp_path / "a.json.gz", there.model_copy(update={"langs": ["en", "de", "fr"]}))


def test_rows_with_one_recipe_are_one_training(folder, tmp_path):
    table = read_table(str(folder / "table.yaml"))
    work = Reproduction(table, "table", "tiny", str(folder / "data"), tmp_path / "out", seeds=3)
    text, _ = plan(work)
    # the vocabulary of a new model is learned from all data: the data that no objective reads counts
    assert "Trainings: 3 rows × 3 seed(s) = 9; 0 shared between rows; 0 done before" in text
    recipes = [table.recipe(row, "tiny", "/data", 1, tmp_path / "model") for row in table.rows]
    digests = [training_digest(recipe) for recipe in recipes]
    assert digests[0] == digests[1] != digests[2]
    assert training_digest(recipes[0]) != training_digest(recipes[0].model_copy(update={"seed": 2}))
    named = [
        recipe.model_copy(
            update={
                "model": recipe.model.model_copy(update={"backbone": {"name": str(tmp_path / "model"), "layers": 2}})
            }
        )
        for recipe in recipes[:2]
    ]
    assert training_digest(named[0]) == training_digest(named[1]) != digests[0]
    loud = resolve(recipes[2].model_dump(mode="json"), ["objectives.semantic.weight=2"])
    assert training_digest(loud) != digests[2]


TABLES = [
    f"{path.parent.name}/{path.stem}"
    for paper in ("c3", "ccp", "hu2023")
    for path in sorted((recipe_folder() / paper).glob("*.yaml"))
    if "title" in read_yaml(path) and "rows" in read_yaml(path)
]


@pytest.mark.parametrize("name", TABLES)
def test_every_file_of_the_papers_tables_belongs_to_a_public_data_set(name, tmp_path):
    table, catalogue = read_table(name), Catalogue.read()
    assert isinstance(table, TableSpec)
    for scale in table.scales:
        work = Reproduction(table, name, scale, "DATA", tmp_path)
        paths, fetched, models = needs(work)
        assert paths or fetched
        for path in paths:
            data, check = catalogue.of(path)
            assert data is not None, path
            assert check.model_dump(exclude_defaults=True), path
        assert all(any(fnmatchcase(one, pattern) for pattern in catalogue.fetched) for one in fetched)
        if scale.startswith("paper"):
            assert set(models) <= set(catalogue.models)


@pytest.mark.slow
def test_the_plan_of_the_paper_shows_its_arithmetic_and_what_tables_share(tmp_path):
    text, lacking = plan(Reproduction(read_table("hu2023/table2"), "hu2023/table2", "paper", str(tmp_path), tmp_path))
    assert lacking == ["Natural Questions, DPR's training files", "WikiMatrix v1"]
    assert "24,540 steps × (48 × 380 = 18,240 tokens) × 6 × 303M" in text
    assert "16 bytes × 1,120M parameters" in text
    assert "58,043,326 × 1024 × 2 bytes = 111 GiB" in text
    assert "Trainings: 4 rows × 1 seed(s) = 4" in text
    assert "tables and figures of hu2023 at this scale: " in text


@pytest.mark.slow
def test_pre_training_is_priced_by_its_windows_and_masked_sentences(tmp_path):
    text, _ = plan(Reproduction(read_table("ccp/table1"), "ccp/table1", "paper", str(tmp_path), tmp_path))
    assert "200,000 steps × 64 batches × (0.5 × 2 × 32 × 40 + 0.5 × 32 × 40 = 1,920 tokens) × 6 × 303M" in text
    assert " 0.0 GPU hours" not in text


def test_a_folder_of_empty_files_is_malformed(tmp_path):
    place = tmp_path / "tatoeba-dump"
    place.mkdir()
    for name in ("sentences.csv", "links.csv"):
        (place / name).touch()
    _, check = Catalogue.read().of("tatoeba-dump")
    with pytest.raises(BadInput, match=r"^has empty files: sentences\.csv, links\.csv$"):
        measured(place, check)


@pytest.mark.slow
def test_tables_of_a_paper_share_what_is_trained_before_a_row(tmp_path):
    """A merged scale of one table has its parts in the count of another; a row comes after the same model in both."""
    table = Reproduction(read_table("c3/table2"), "c3/table2", "paper", "DATA", tmp_path)
    (said,) = together(table)
    tables, every, left = map(int, re.findall(r"\d+", said.replace("c3", "")))
    assert tables == 3
    assert left < every
    assert together(replace(table, table=read_table("c3/table1"), name="c3/table1")) == [said]


@pytest.mark.slow
def test_a_model_that_reranks_is_priced_by_what_it_reads(tmp_path):
    text, _ = plan(Reproduction(read_table("c3/table1"), "c3/table1", "paper-zh", str(tmp_path), tmp_path))
    assert "evaluation: 120 questions × 1,000 passages at most = 120,000 passages × 180 tokens" in text
    assert "646,305 passages" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ccp/table4", "21,015,324 passages × 128 tokens × 2 × 303M"),
        ("ccp/table1", "203,630 sentences × 40 tokens × 2 × 303M"),
        ("hu2023/table6", "2,657,641 sentences × 40 tokens × 2 × 303M"),
    ],
)
def test_what_is_measured_on_is_priced(name, said, tmp_path):
    text, _ = plan(Reproduction(read_table(name), name, "paper", str(tmp_path), tmp_path, 1))
    assert f"evaluation: {said}" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ccp/table3", "ccp/table4", "c3/table1"])
def test_no_row_of_the_paper_is_without_its_cost(name, tmp_path):
    table = read_table(name)
    printed, _ = plan(Reproduction(table, name, "paper", str(tmp_path), tmp_path, 1))
    assert "GPU hours" in printed
    assert "not estimated" not in printed


def test_every_vector_file_of_criss_is_named_as_missing(tmp_path):
    (tmp_path / "vectors/criss").mkdir(parents=True)
    for lang in ("fr", "en"):
        (tmp_path / f"vectors/criss/fr-en.{lang}.npy").touch()
    text, lacking = plan(Reproduction(read_table("ccp/table1"), "ccp/table1", "paper", str(tmp_path), tmp_path))
    assert "vectors of CRISS" in lacking
    assert "es-en.es.npy" in text


def test_collections_of_ir_datasets_are_looked_for_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path))
    catalogue, asked = Catalogue.read(), ["mr-tydi/sw/test", "mr-tydi/th/test", "mr-tydi/sw/dev", "hc4/fa/test"]
    linked = "clirmatrix/zh/bi139-full/en/train"

    def said():
        text = "\n".join(elsewhere(catalogue, [*asked, linked], ["xlm-roberta-base"]))
        return {part.split("\n")[0]: part for part in text.split("\n- ")[1:]}

    before = said()
    assert list(before)[:3] == [
        f"not in ir_datasets' folder {tmp_path}: Mr.TyDi v1.0 (test, dev): {', '.join(asked[:3])}",
        f"not in ir_datasets' folder {tmp_path}: HC4 (test): hc4/fa/test",
        f"not in ir_datasets' folder {tmp_path}: CLIRMatrix: {linked}",
    ]
    assert list(before)[3].startswith("fetched from the hub at first use, not checked here: xlm-roberta-base 278,")
    for part in list(before.values())[:3]:
        for key in ("missing", "address", "size", "licence", "fetch", "check"):
            assert f"\n    {key}: " in part
    for file in (
        *(f"mr-tydi/sw.data/mrtydi-v1.0-swahili/{name}" for name in ("topic.test.tsv", "qrels.test.txt")),
        "mr-tydi/sw.data/mrtydi-v1.0-swahili/collection/docs.jsonl.gz",
        "hc4/fas/hc4_docs.jsonl",
        "hc4/test.topics.v1-0.jsonl",
        "clirmatrix/clirmatrix_downloads.json.gz",
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("x", encoding="utf-8")
    (tmp_path / "hc4/fas/test.qrels.v1-0.txt").touch()  # cut
    after = said()
    assert list(after)[:4] == [
        f"there, not read, in ir_datasets' folder {tmp_path}: Mr.TyDi v1.0 (test, dev): mr-tydi/sw/test",
        f"not in ir_datasets' folder {tmp_path}: Mr.TyDi v1.0 (test, dev): mr-tydi/th/test, mr-tydi/sw/dev",
        f"not in ir_datasets' folder {tmp_path}: HC4 (test): hc4/fa/test",
        f"partly in ir_datasets' folder {tmp_path}: CLIRMatrix: {linked}",
    ]
    whole, some, hc4, listed = list(after.values())[:4]
    assert "missing" not in whole + listed
    assert "\n    not looked for: the documents and queries that this list of files names" in listed
    assert "\n    missing: hc4/fas/test.qrels.v1-0.txt\n" in hc4
    missing = some.split("missing: ")[1].split("\n")[0].split(", ")
    assert missing[:2] == ["mr-tydi/th.data/*/topic.test.tsv", "mr-tydi/th.data/*/qrels.test.txt"]
    assert "mr-tydi/sw.data/*/topic.dev.tsv" in missing
    assert "mr-tydi/sw.data/*/collection/docs.jsonl.gz" not in missing  # test and dev have the same passages


@pytest.mark.parametrize("table", ["hu2023/table3", "c3/table1"])
def test_the_plan_says_size_and_licence_of_what_ir_datasets_keeps(table, tmp_path, monkeypatch):
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    work = Reproduction(read_table(table), table, "paper", str(tmp_path), tmp_path)
    text, _ = plan(work)
    for part in work.parts():
        for name in needs(part)[1]:
            about = next(one for pattern, one in Catalogue.read().fetched.items() if fnmatchcase(name, pattern))
            for fact in (about.name, about.address, about.size, about.licence, about.fetch, name):
                assert fact in text


def test_the_page_names_every_data_set_of_the_papers_and_how_it_lies():
    page = " ".join((Path(__file__).parents[2] / "docs/reproduce.md").read_text(encoding="utf-8").split())
    for data in Catalogue.read().data:
        if not any(path.startswith(("train/", "dev/")) for path in data.files):
            for fact in (data.name, data.size, data.licence, data.layout, data.convert):
                assert " ".join(fact.split()) in page, f"{data.name}: {fact}"
    for about in Catalogue.read().fetched.values():
        for fact in (about.name, about.address, about.size, about.licence, about.fetch, about.unchecked):
            assert fact in page, f"{about.name}: {fact}"


COST = re.compile(
    r"In all: (\d+) trainings?, ([\d.,]+ GPU \w+), (\d+ GiB) of GPU memory for the largest, ([\d,]+ GiB) of disk, "
    r"(\d+) evaluations?, ([\d.,]+ GPU \w+), (\d+ GiB) of vectors on the disk meanwhile"
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TABLES if name != "ccp/calibration"])
def test_the_page_says_what_every_table_of_the_papers_costs(name, tmp_path):
    work = Reproduction(read_table(name), name, "paper", "DATA", tmp_path)
    found = COST.match(in_all([(part, *needs(part)[:2]) for part in work.parts()], Catalogue.read()))
    assert found is not None
    page = (Path(__file__).parents[2] / "docs/reproduce.md").read_text(encoding="utf-8")
    assert f"| `{name}` | {' | '.join(found.groups())} |" in page
