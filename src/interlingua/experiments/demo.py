"""The demonstration: the bundled encyclopedia, the bundled model, and the same trained on without and with the
semantic loss."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from shlex import quote

import torch

from interlingua.data import encyclopedia
from interlingua.data.collections import cross, load_collection
from interlingua.errors import BadInput, NotFound
from interlingua.evaluation.protocol import evaluate_on, results_table
from interlingua.index.index import Index
from interlingua.index.local.rows import arrow
from interlingua.models.dual import DualEncoder
from interlingua.models.folder import fingerprint
from interlingua.training.build import train
from interlingua.training.recipe import find_recipe, raw_recipe, resolve, same_recipe

logger = logging.getLogger(__name__)

QUESTIONS = ("alan-turing:sw", "coffee:ja", "braille:ru", "octopus:te")
"""Topics asked about at the end, each in a language that no training question had."""


def demo(out: str | Path) -> None:
    """Measure the bundled model, train it on twice, print the tables, answer questions across languages."""
    out = Path(out)
    arrow()  # what an index needs is said now, not when all is trained
    tree = raw_recipe(find_recipe("demo/static"))
    runs = {out / "retrieval": resolve(tree, ["objectives.semantic=null"]), out / "semantic": resolve(tree)}
    for run, recipe in runs.items():  # what is of somebody else would be deleted below
        kept = run / "recipe.yaml"
        is_ours = kept.is_file() and same_recipe(kept.read_text(encoding="utf-8"), recipe)
        if (run / "start").exists() and not is_ours:
            raise BadInput(f"{run}: holds another run. Give another folder with --out, or delete it.")
    if (out / "index").exists() and not (out / "semantic/recipe.yaml").is_file():
        raise BadInput(f"{out / 'index'}: is there, and of no demonstration. Give another folder with --out.")
    # the steps are so small that threads would wait for one another, most of all on a busy machine
    torch.set_num_threads(1)
    logger.info(
        "The demonstration: an encyclopedia of "
        f"{len(encyclopedia.topics())} topics in {len(encyclopedia.languages())} languages, "
        "half of them for training.\n"
        "Questions in training are English only. Training starts from the bundled model, which has never seen the "
        "encyclopedia.\n"
    )
    bundled = DualEncoder.load("default")
    now = fingerprint(bundled)
    for run in runs:
        if (run / "start").exists() and fingerprint(DualEncoder.load(run / "start")) != now:
            logger.info(f"{run}: began from the bundled model of another version; it is trained anew.")
            shutil.rmtree(run)
    logger.info("1. English questions and passages alone (the retrieval loss).")
    train(runs[out / "retrieval"], out / "retrieval")
    logger.info("\n2. The same and sentences beside their translations (the semantic loss of Hu et al. 2023).")
    train(runs[out / "semantic"], out / "semantic")
    semantic = DualEncoder.load(out / "semantic/model")
    models = {"bundled": bundled, "+ retrieval": DualEncoder.load(out / "retrieval/model"), "+ semantic": semantic}
    picture(print_tables(models), out / "demo.svg")
    answer(semantic, out)
    index = quote(f"{out}/index")
    print(f"""
What next?
  ask it something         interlingua search {index} "Apa kegunaan huruf Braille?"
  what was just trained    {out}/semantic/recipe.yaml, {out}/semantic/log.jsonl
  your own data            README.md, "A model of your own"
  a search page            interlingua serve {index}
""")


def print_tables(models: dict[str, DualEncoder]) -> dict[str, dict[str, float]]:
    """MRR@100 per language: topics that training read in every language, and topics it never saw with a label.

    Returns the second table of A, system → language → MRR@100: it is the one to draw.
    """
    scores: dict[str, dict[str, float]] = {}
    settings = (
        (
            "train",
            "A. Training topics, asked in ten languages that no training question had.\n"
            "   Only the semantic loss saw their passages beside translations.",
        ),
        (
            "test",
            "B. Test topics: in no question and no translation that was trained on here. What carries over\n"
            "   from one language to another, the bundled model brought along.",
        ),
    )
    for split, title in settings:
        by_lang = {lang: load_collection(f"encyclopedia:{lang}", split=split) for lang in encyclopedia.languages()}
        pools = (
            ("question and passages in one language", list(by_lang.values())),
            (
                "questions in each language, English passages",
                [replace(cross(c, by_lang["en"]), name=lang) for lang, c in by_lang.items() if lang != "en"],
            ),
        )
        print(f"\n{title}")
        for name, collections in pools:
            systems = {system: evaluate_on(model, collections, ["RR@100"]) for system, model in models.items()}
            print(f"\n{name}, MRR@100\n{results_table(systems, 'RR@100', intervals=False).render()}")
            if split == "train":
                scores = {system: {r.lang: r.scores["RR@100"] for r in results} for system, results in systems.items()}
    return scores


def picture(systems: dict[str, dict[str, float]], path: Path) -> None:
    """The bars of a table, where matplotlib is installed."""
    from interlingua.evaluation.plots import plot_languages

    try:
        print(f"\npicture: {plot_languages(systems, path, y_label='MRR@100 against English passages')}")
    except NotFound as error:
        logger.warning(str(error))


def answer(model: DualEncoder, out: Path) -> None:
    """Index every passage in every language and ask about a few topics."""
    passages = [
        replace(passage, id=f"{passage.id}.{lang}")
        for lang in encyclopedia.languages()
        for passage in load_collection(f"encyclopedia:{lang}").passages
    ]
    index = Index.build(model, passages, out / "index", model_path=out / "semantic" / "model", overwrite=True)
    topics = {topic.id: topic for topic in encyclopedia.topics()}
    print(f"\nA few questions against all {len(index):,} passages in all languages at once:")
    for key in QUESTIONS:
        name, _, lang = key.partition(":")
        print(f"\n[{lang}] {topics[name].question[lang]}   ({topics[name].question['en']})")
        for rank, hit in enumerate(index.search(topics[name].question[lang], k=3), 1):
            mark = "✓" if hit.passage.id.startswith(f"{name}.") else " "
            print(
                f"  {rank}. {hit.score:.3f} {mark} [{hit.passage.lang}] {hit.passage.title}: {hit.passage.text[:70]}…"
            )
