from __future__ import annotations

import random

import pytest

from interlingua.errors import InterlinguaError
from interlingua.retrieval.pipeline.grammar import (
    Cut,
    Lexical,
    Model,
    ReciprocalRank,
    Rerank,
    RunFile,
    WeightedSum,
    cuts,
    leaves,
    parse_pipeline,
)

BM25, A, B, C = Lexical(), Model("a"), Model("b"), Model("c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bm25", BM25),
        ("bm25(k1=1.2, b=0.8, analyzer=char4)", Lexical(1.2, 0.8, "char4")),
        ("bm25(queries=qt/de.tsv)", Lexical(queries="qt/de.tsv")),
        ("bm25(queries=ir_datasets:hc4/zh/test#mt_title)", Lexical(queries="ir_datasets:hc4/zh/test#mt_title")),
        ("runs/sema-1.2/model", Model("runs/sema-1.2/model")),
        ("org/name(maxp=180/90)", Model("org/name", (180, 90))),
        ("a(queries='my file.tsv', maxp=64/64)", Model("a", (64, 64), "my file.tsv")),
        ("'runs/a + b (2)'", Model("runs/a + b (2)")),
        ('"bm25"', Model("bm25")),
        ('"0.5"', Model("0.5")),
        ('"it\'s"', Model("it's")),
        ("run(trec/a.run)", RunFile("trec/a.run")),
        ('run("a b.run")', RunFile("a b.run")),
        ("a % 100", Cut(A, 100)),
        ("a%100%10", Cut(Cut(A, 100), 10)),
        ("a + b", WeightedSum(((1.0, A), (1.0, B)))),
        ("a + 0.5 * b", WeightedSum(((1.0, A), (0.5, B)))),
        (".5*a+2*b + 1e-3*c", WeightedSum(((0.5, A), (2.0, B), (0.001, C)))),
        ("rrf(a, b)", ReciprocalRank((A, B))),
        ("rrf(a, b % 9, bm25 >> c, k=0)", ReciprocalRank((A, Cut(B, 9), Rerank(BM25, C)), 0)),
        ("a >> b", Rerank(A, B)),
        ("(((a)))", A),
        ("  a\t>>\n b ", Rerank(A, B)),
        # precedence: %, then * and +, then >>; all from left to right
        ("bm25 % 1000 >> a", Rerank(Cut(BM25, 1000), A)),
        ("bm25 % 1000 + 0.5 * a % 100 >> b", Rerank(WeightedSum(((1.0, Cut(BM25, 1000)), (0.5, Cut(A, 100)))), B)),
        ("a >> b + 0.5 * c", Rerank(A, WeightedSum(((1.0, B), (0.5, C))))),
        ("a >> b >> c", Rerank(Rerank(A, B), C)),
        ("a >> (b >> c)", Rerank(A, Rerank(B, C))),
        ("(a >> b) + c", WeightedSum(((1.0, Rerank(A, B)), (1.0, C)))),
        ("(a + b) + c", WeightedSum(((1.0, WeightedSum(((1.0, A), (1.0, B)))), (1.0, C)))),
        ("(a + b) % 5", Cut(WeightedSum(((1.0, A), (1.0, B))), 5)),
        # a cut at the end of a second stage is one of what came out
        ("a >> b % 10", Cut(Rerank(A, B), 10)),
        ("a >> (b % 10 % 5)", Cut(Cut(Rerank(A, B), 10), 5)),
        ("a % 1000 >> b % 100 >> c", Rerank(Cut(Rerank(Cut(A, 1000), B), 100), C)),
    ],
)
def test_a_line_is_a_tree_and_back(text, expected):
    assert parse_pipeline(text) == expected
    assert parse_pipeline(str(expected)) == expected


def random_tree(rng, depth):
    """Trees as the notation can write them."""
    if depth == 0:
        return rng.choice(
            [
                Lexical(),
                Lexical(rng.choice([0.9, 1e-05, 3.0]), 0.4, rng.choice([None, "char4", "a b"]), None),
                Model(rng.choice(["a", "x/y", "bm25", "rrf", "run", "k", "1.5", "a >> b", "it's", 'say "x"', "ä%"])),
                Model("m", (180, 90), rng.choice([None, "q.tsv", "q 1.tsv"])),
                RunFile(rng.choice(["a.run", "a,b.run"])),
            ]
        )
    kind = rng.randrange(4)
    inside = [random_tree(rng, rng.randrange(depth)) for _ in range(rng.choice([2, 3]))]
    if kind == 0:
        return Cut(inside[0], rng.randrange(1, 2000))
    if kind == 1:
        return WeightedSum(tuple((rng.choice([0.0, 1.0, 0.3, 1e-07, 1e22]), stage) for stage in inside))
    if kind == 2:
        return ReciprocalRank(tuple(inside), rng.choice([0, 60, 7]))
    return inside[0] if cuts(inside[1]) else Rerank(inside[0], inside[1])


def test_what_is_written_reads_as_the_same():
    rng = random.Random(0)
    for _ in range(500):
        tree = random_tree(rng, 4)
        assert parse_pipeline(str(tree)) == tree, str(tree)


def test_leaves_from_left_to_right():
    assert leaves(parse_pipeline("bm25 % 9 + rrf(a, run(x)) >> b + c(maxp=9/9)")) == [
        BM25,
        A,
        RunFile("x"),
        B,
        Model("c", (9, 9)),
    ]


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("", "the end", "bm25, the path of a model, run(file), rrf(A, B) or '(' was expected"),
        ("bm25 >>", "the end", "bm25, the path of a model"),
        ("bm25 > a", "position 6, before '> a'", "'>>' was expected"),
        ("bm25 a", "position 6, before 'a'", "%, +, >> or the end was expected"),
        (
            "bm25 % x >> a",
            "position 8, before 'x >> a'",
            "the number of results to keep, 1 or more, was expected after %",
        ),
        ("bm25 % 0", "position 8", "1 or more"),
        ("bm25 % 1.5", "position 8", "1 or more"),
        ("bm25 % -5", "position 8", "1 or more"),
        ("a + x * b", "position 5, before 'x * b'", "a number of 0 or more was expected before *, 'x' is none"),
        ("a + b * 0.5", "position 5, before 'b * 0.5'", "The weight comes first, A + 0.5 * B"),
        ("a + -0.5 * b", "position 5", "'-0.5' is none"),
        ("a + nan * b", "position 5", "'nan' is none"),
        ("0.5 * a", "position 1, before '0.5 * a'", "a weight is for a sum"),
        ("a + 0.5", "position 5, before '0.5'", "a number is a weight, 0.5 * A"),
        ("(a + b", "the end", "')' was expected"),
        ("a + b)", "position 6, before ')'", "the end was expected"),
        ("rrf(a)", "position 1", "rrf needs at least two stages"),
        ("rrf a", "position 5", "rrf(A, B) was expected"),
        ("rrf(a, b, k=x)", "position 13", "a whole number, k=60, was expected"),
        ("rrf(a, b, k=1, c)", "position 14", "',' or ')' was expected"),
        ("run()", "position 5", "the path of a TREC run file was expected"),
        ("run", "the end", "run(file) was expected"),
        ("bm25(k=1)", "position 6, before 'k=1)'", "an option of bm25 was expected: k1=…, b=…, analyzer=…, queries=…"),
        ("bm25(k1=high)", "position 9", "k1 must be a number of 0 or more"),
        ("bm25(k1=1, k1=2)", "position 12", "k1 is given twice"),
        ("bm25(k1 1)", "position 9", "'=' and the value of k1 were expected"),
        ("bm25(b=)", "position 8", "the value of b was expected"),
        ("bm25()", "position 6", "an option of bm25 was expected"),
        ("a(maxp=90)", "position 8", "maxp is window/stride in tokens"),
        ("a(maxp=90/180)", "position 8", "the stride no longer than the window"),
        ("a(maxp=90/0)", "position 8", "maxp is window/stride"),
        (
            "rff(a, b)",
            "position 5, before 'a, b)'",
            "an option of rff was expected: maxp=…, queries=…. Did you mean 'rrf'?",
        ),
        ("run(a.run", "the end", "')' was expected"),
        ("'a b >> c", "position 1", "this quote is never closed"),
        ("'' >> c", "position 1", "the path of a model"),
        ("a >> (b % 9) + c", "position 6, before '(b % 9) + c'", "cannot cut inside"),
        ("a >> rrf(b % 9, c)", "position 6", "Cut before it, A % 100 >> B, or after it, (A >> B) % 10"),
    ],
)
def test_misspelt_lines_say_where_and_what_was_expected(text, place, said):
    with pytest.raises(InterlinguaError) as caught:
        parse_pipeline(text)
    message = str(caught.value)
    assert message.startswith(f"pipeline '{text}', at {place}")
    assert said in message
    assert "\n" not in message


def test_a_name_with_both_kinds_of_quotes_cannot_be_written():
    with pytest.raises(InterlinguaError, match="holds both kinds of quotes"):
        str(Model("""it's "x" """))
