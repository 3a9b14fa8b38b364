"""The bundled tables hold together, and a table's file means what it says."""

from pathlib import Path

import pytest

from interlingua.errors import InterlinguaError
from interlingua.experiments.spec import TableSpec, read_table
from interlingua.retrieval.pipeline.grammar import Lexical, leaves, parse_pipeline
from interlingua.training.backbones import Backbone
from interlingua.training.recipe import recipe_folder
from interlingua.training.weighted import check

FOUND = sorted(
    f"{paper}/{path.stem}"
    for paper in ("c3", "ccp", "hu2023")
    for kind in ("table", "figure")
    for path in (recipe_folder() / paper).glob(f"{kind}*.yaml")
)
TABLES = [name for name in FOUND if name != "hu2023/table1"]
RECIPE = """
model: {backbone: {static: {dim: 8}}}
data: {questions: {path: encyclopedia, batch: 4}}
objectives: {retrieval: {temperature: 0.5}}
training: {steps: 2}
"""
TABLE = """
title: a small one
measures: [RR@10]
scales: {tiny: {recipe: recipe.yaml, suites: suites.yaml}, big: {recipe: recipe.yaml, suites: suites.yaml}}
set: {tiny: ["objectives.semantic={weight: 0.5}", "training.steps=3"]}
rows:
  plain: {set: ["objectives.semantic=null"]}
  own: {tiny: ["training.steps=4", "seed=9"], set: ["training.steps=5"]}
  large: {scales: [big]}
"""


@pytest.fixture
def write(tmp_path):
    """Write a table (and its recipe) and return its path."""

    def write(text=TABLE, recipe=RECIPE, suites="mono: {collections: {en: 'encyclopedia:en'}}\n"):
        for name, content in (("recipe", recipe), ("suites", suites), ("table", text)):
            (tmp_path / f"{name}.yaml").write_text(content, encoding="utf-8")
        return str(tmp_path / "table.yaml")

    return write


def test_every_table_of_the_paper_is_here():
    hu = ["figure3", "figure4", "table1", "table2", "table3", "table4", "table5", "table6"]
    ccp = ["figure1", "table1", "table2", "table3", "table4", "table5", "table6"]
    c3 = ["figure2", "table1", "table2"]
    assert [f"{paper}/{name}" for paper, names in (("c3", c3), ("ccp", ccp), ("hu2023", hu)) for name in names] == FOUND
    assert read_table("hu2023/table1")["kind"] == "arithmetic"


@pytest.mark.parametrize("name", TABLES)
def test_every_row_at_every_scale_is_a_valid_recipe(name, tmp_path):
    table = read_table(name)
    assert isinstance(table, TableSpec)
    assert table.rows
    assert any(scale.startswith("paper") for scale in table.scales)
    for scale in table.scales:
        rows = table.rows_at(scale)
        assert rows, scale
        resolved = {}
        for row in rows:
            recipe = table.recipe(row, scale, "/data", 7, tmp_path / "start" if table.scale(scale).start else None)
            check(recipe)
            assert recipe.seed == 7
            assert "{data}" not in recipe.model_dump_json()
            if table.scale(scale).start:
                assert recipe.model.backbone == str(tmp_path / "start")
            spec = rows[row]
            own = not (spec.of or spec.pipeline or spec.after or spec.vectors)
            resolved[row] = recipe.model_dump_json() if own else str(rows[row])
        assert len(set(resolved.values())) == len(rows), f"two rows of {scale} are the same"


@pytest.mark.parametrize("name", TABLES)
def test_every_scale_has_suites_with_its_columns(name):
    table = read_table(name)
    for scale in table.scales:
        suites = table.suites(scale)
        known = {column for suite in suites.values() for column in suite.columns()}
        assert suites
        assert all(suite.paths() for suite in suites.values())
        assert set(table.scale(scale).columns or known) <= known
        for columns in table.subsets.get(scale, {}).values():
            assert set(columns) <= known


@pytest.mark.parametrize("name", TABLES)
def test_the_papers_numbers_belong_to_rows_and_look_like_scores(name):
    table = read_table(name)
    for suite, by_measure in table.expected.items():
        for measure, rows in by_measure.items():
            for row, values in rows.items():
                for value in values.values() if isinstance(values, dict) else [values]:
                    assert isinstance(value, float | int), (suite, measure, row)
                    assert -1 <= value <= 100


def test_table_2_switches_objectives_row_by_row():
    table = read_table("hu2023/table2")
    on = {
        row: {name for name, spec in table.recipe(row, "paper", "/data", 1, None).objectives.items() if spec}
        for row in table.rows_at("paper")
    }
    assert on == {
        "retrieval": {"retrieval"},
        "+ semantic": {"retrieval", "semantic"},
        "+ language": {"retrieval", "language"},
        "+ both": {"retrieval", "semantic", "language"},
    }


def test_bm25_of_the_paper_has_the_analyzer_of_the_language_and_passages_are_pairs():
    table = read_table("hu2023/table3")
    for row in ("BM25", "BM25, tuned", "BM25 + XLM-R + semantic"):
        for scale, kind in (("paper", "language"), ("mini", "default")):
            for setting in table.ranking(row, scale).settings():
                (lexical,) = [leaf for leaf in leaves(parse_pipeline(setting)) if isinstance(leaf, Lexical)]
                assert lexical.analyzer == kind
    assert [len(table.ranking("BM25, tuned", scale).settings()) for scale in ("paper", "mini")] == [160, 30]
    assert table.recipe("XLM-R", "paper", "/data", 1, None).model.template == "pair"
    assert table.recipe("XLM-R", "mini", "/data", 1, None).model.template is None
    for name in ("ccp/table3", "ccp/table4"):
        assert read_table(name).recipe("CCP", "paper", "/data", 1, None).model.template == "pair", name


@pytest.mark.parametrize("name", ["c3/table1", "c3/table2", "c3/figure2"])
def test_what_is_reranked_in_the_paper_has_the_analyzer_of_the_language(name):
    table = read_table(name)
    for scale in table.scales:
        for row in table.rows_at(scale):
            ranking = table.ranking(row, scale)
            for setting in ranking.settings() if ranking else ():
                for leaf in leaves(parse_pipeline(setting)):
                    if isinstance(leaf, Lexical):
                        small = not scale.startswith("paper")
                        assert leaf.analyzer == ("default" if small else "language"), (row, scale)


def test_the_left_most_point_of_figure_4_has_both_losses_and_no_text_without_translation():
    for name, row in (("hu2023/figure4", "0"), ("hu2023/table5", "+ both (no Q)")):
        table = read_table(name)
        for scale in table.scales:
            recipe = table.recipe(row, scale, "/data", 1, None)
            assert recipe.objectives["semantic"] is not None
            assert recipe.objectives["language"] is not None
            assert "sentences" not in recipe.data
    figure = read_table("hu2023/figure4")
    assert [row.x for row in figure.rows.values()][:2] == [None, 0]


def test_every_source_of_text_without_translations_has_thai():
    for name in ("hu2023/table5", "hu2023/figure4"):
        table = read_table(name)
        for row in table.rows_at("paper"):
            entry = table.recipe(row, "paper", "/data", 1, None).data.get("sentences")
            thai = ("wikipedia/th.txt.gz", "mrtydi-v1.1-thai/collection")
            assert entry is None or any(path.endswith(thai) for path in entry.paths()), row


def test_overrides_of_the_table_come_first_then_the_scales_then_the_rows(write, tmp_path):
    table = read_table(write())
    plain = table.recipe("plain", "tiny", None, 1, None)
    assert plain.training.steps == 3
    assert plain.objectives["semantic"] is None  # the row switches off what the table set
    own = table.recipe("own", "tiny", None, 1, None)
    assert own.training.steps == 5  # what a row sets for every scale has the last word
    assert own.seed == 9
    assert own.objectives["semantic"] == {"weight": 0.5}
    assert table.recipe("plain", "big", None, 1, None).training.steps == 2
    assert list(table.rows_at("tiny")) == ["plain", "own"]
    assert list(table.rows_at("big")) == ["plain", "own", "large"]
    begun = table.recipe("own", "tiny", None, 3, tmp_path / "start")
    assert begun.model.backbone == str(tmp_path / "start")


def test_a_row_starts_where_it_is_told_whatever_backbone_the_table_sets(write):
    begin, named = Path("runs/a: b/model"), RECIPE.replace("{static: {dim: 8}}", "multilingual-e5-small")
    changed = TABLE.replace(
        '"training.steps=3"', '"training.steps=3", "model.backbone={name: multilingual-e5-small, layers: 6}"'
    )
    table = read_table(write(changed, named))
    free, told = (Backbone.of(table.recipe("plain", "tiny", None, 1, start).model.backbone) for start in (None, begin))
    assert (free.name, free.layers) == ("multilingual-e5-small", 6)
    assert (told.name, told.layers) == (str(begin), None)


def test_an_unknown_scale_is_answered_with_the_nearest(write):
    with pytest.raises(InterlinguaError, match=r"scale 'tinny' is not known for this table\. Did you mean 'tiny'\?"):
        read_table(write()).suites("tinny")


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("measures: [RR@10]", "measuers: [RR@10]", "table.yaml: "),
        ("plain: {set:", "plain: {sett:", "'sett' is neither a key of a row nor a scale of this table"),
        ("set: {tiny:", "set: {tinny:", "'tinny' is neither"),
        ("scales: [big]", "scales: [bigger]", "'bigger' is neither"),
        ("title: a small one", "title: [", "table.yaml: not valid YAML"),
        ("title: a small one", "name: a small one", "is a recipe, not a table"),
    ],
)
def test_mistakes_in_a_table_are_named(write, before, after, says):
    assert before in TABLE
    with pytest.raises(InterlinguaError, match=says.replace("?", r"\?")):
        read_table(write(TABLE.replace(before, after)))


@pytest.mark.parametrize(
    ("suites", "says"),
    [
        ("mono: {collection: {en: a}}", "suites.yaml: unknown key 'mono.collection'"),
        ("mono: [", "suites.yaml: not valid YAML"),
        ("", "suites.yaml: "),
    ],
)
def test_mistakes_in_suites_are_named(write, suites, says):
    table = read_table(write(suites=suites))
    with pytest.raises(InterlinguaError, match=says):
        table.suites("tiny")


def test_missing_suites_are_named(write, tmp_path):
    table = read_table(write())
    (tmp_path / "suites.yaml").unlink()
    with pytest.raises(InterlinguaError, match=r"suites\.yaml: no such file of suites"):
        table.suites("tiny")


def test_a_mistake_in_a_rows_recipe_names_the_row(write):
    table = read_table(write(TABLE.replace("training.steps=5", "training.stps=5")))
    with pytest.raises(InterlinguaError, match=r"a small one, row 'own': unknown key 'training\.stps'"):
        table.recipe("own", "tiny", None, 1, None)


def test_the_bank_is_on_in_every_row_of_ccps_table_5_but_the_fifth():
    table = read_table("ccp/table5")
    for scale in table.scales:
        found = {}
        for row in table.rows_at(scale):
            kind, _, tau = row.partition(", τ=")
            if tau not in ("0.001", "0.01", "1"):  # rows of our own are at 0.1 alone
                continue
            entry = table.recipe(row, scale, "/data", 1, None).objectives["context_prediction"]
            found.setdefault(kind, []).append((entry["temperature"], entry.get("bank", 32_768) > 0))
            assert entry.get("l2", True) == ("L2" in kind)
            norm = "asymmetric" if "asymmetric" in kind else "batch" if "plain" in kind else "none"
            assert entry.get("batch_norm", "asymmetric") == norm
        assert {kind: all(bank for _, bank in rows) for kind, rows in found.items()} == {
            "bank": True,
            "L2 + bank": True,
            "asymmetric BN + bank": True,
            "L2 + asymmetric BN + bank": True,
            "L2 + asymmetric BN": False,
            "L2 + plain BN + bank": True,
        }
        assert all(sorted(tau for tau, _ in rows) == [0.001, 0.01, 1] for rows in found.values())
    for name in ("table1", "table2"):
        for scale in ("paper", "mini"):
            recipe = read_table(f"ccp/{name}").recipe("CCP", scale, "/data", 1, None)
            assert recipe.objectives["context_prediction"].get("bank", 0) > 0
    warm_up = read_table("ccp/table3").recipe("CCP", "mini", "/data", 1, None).warm_up
    assert warm_up["objectives"]["context_prediction"]["bank"] > 0


def test_a_step_of_ccps_table_6_has_as_many_masked_sentences_in_every_cell():
    table = read_table("ccp/table6")
    for scale in table.scales:
        counts = set()
        for row in table.rows_at(scale):
            recipe = table.recipe(row, scale, "/data", 1, None)
            if "sentences" in recipe.data:
                counts.add(recipe.data["sentences"].batch * recipe.training.accumulate)
            if scale == "paper":
                assert recipe.data["contexts"].batch * recipe.training.accumulate == 2048
                assert recipe.training.own_batches
        assert len(counts) <= 1, scale
        assert scale != "paper" or counts == {2048}


def test_c3s_tables_have_the_papers_family_columns_and_rows():
    table = read_table("c3/table1")
    columns = [column for part in table.parts("paper") for column in table.scale(part).columns]
    assert len(columns) == table.family == 6
    for by_measure in table.expected["from English"].values():
        assert all(set(values) == set(columns) for values in by_measure.values())
    against = {pair[0] for pair in table.compare if pair[1:] == ("BM25", "†")}
    assert {"XLM-align ColBERT + C3", "XLM-align DPR + C3"} <= against
    second = read_table("c3/table2")
    rows = [row for row, spec in second.rows_at("paper").items() if spec.shown]
    assert set(second.expected["from English"]["nDCG@100"]) == set(rows)
    assert sum(row.startswith("XLM-align") for row in rows) == 10
    align = second.recipe("C3 of XLM-align, CLS", "paper", "/data", 1, None)
    assert align.model.backbone == "microsoft/xlm-align-base"
    large = read_table("c3/figure2").recipe("XLM-R-large, TT", "paper", "/data", 1, None)
    assert (large.model.backbone, large.data["questions"].options["passage_lang"]) == ("xlm-roberta-large", "zh")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("merged: {all: [tiny, huge]}", "merged 'all' must name scales of this table"),
        ("merged: {tiny: [tiny, big]}", "merged 'tiny' must name scales"),
        ("  theirs: {vectors: a, set: [seed=1]}", "row 'theirs' has vectors"),
    ],
)
def test_mistakes_in_merged_scales_and_vectors_are_named(write, line, says):
    with pytest.raises(InterlinguaError, match=says):
        read_table(write(TABLE + line + "\n"))
