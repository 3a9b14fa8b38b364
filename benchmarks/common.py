"""Shared parts of the benchmarks. Nothing heavy is imported at the top: memory.py's parent must stay small."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from interlingua.models.encoder import Encoder


HELD = frozenset("el ko th tr vi".split())
"""Languages of DATA/dev that no choice of a model, weight or setting is made on: they are reported beside the others,
so that both are seen. Of Tatoeba it is about half of the languages: `is_held`."""


class Seconds(NamedTuple):
    """The time of a run: on the clock, and of the processor (which hardly depends on what else the machine does)."""

    elapsed: float
    processor: float


def is_held(code: str) -> bool:
    """Whether no choice is made on a language of Tatoeba, given by three letters: those in `HELD`, and of the others
    those whose letters add up to an odd number, whatever files are there."""
    from interlingua.text.languages import find_code

    return find_code(code) in HELD or sum(code.encode()) % 2 == 1


def options(doc: str | None, **numbers: int) -> argparse.ArgumentParser:
    """A parser of whole numbers with these defaults (`max_length=256` is `--max-length`) and of `--threads`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {**numbers, "threads": 1}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=f"default: {default:,}")
    return parser


def encyclopedia_encoder(layers: int, hidden: int) -> Encoder:
    """A random transformer with a vocabulary of the bundled encyclopedia."""
    from interlingua.data import encyclopedia
    from interlingua.training.backbones import build_encoder

    texts = (sentence.text for sentence in encyclopedia.sentences())
    return build_encoder(
        {
            "scratch": {
                "vocab_size": 8_000,
                "layers": layers,
                "hidden": hidden,
                "heads": hidden // 32,
                "intermediate": 4 * hidden,
            }
        },
        texts=texts,
        device="cpu",
    )


def counting(model: Any, computed: Counter[str]) -> None:
    """Count the tokens that go through `model`, pad tokens too."""
    model.get_input_embeddings().register_forward_pre_hook(lambda _, inputs: computed.update(tokens=inputs[0].numel()))


def in_turn(
    ways: Mapping[str, Callable[[], object]], repeat: int, after: Callable[[str], object] = lambda name: None
) -> dict[str, list[Seconds]]:
    """The time of each way in every round; `after(name)` is not timed. Rounds interleave the ways, so that other load
    on the machine hits all alike."""
    found: dict[str, list[Seconds]] = {name: [] for name in ways}
    for _ in range(repeat):
        for name, way in ways.items():
            start, busy = time.perf_counter(), time.process_time()
            way()
            found[name].append(Seconds(time.perf_counter() - start, time.process_time() - busy))
            after(name)
    return found


def ratio(one: Iterable[Seconds], other: Iterable[Seconds]) -> str:
    """The median of the rounds' ratios one / other, and the smallest and largest: elapsed, then processor time."""
    rounds = [(a.elapsed / b.elapsed, a.processor / b.processor) for a, b in zip(one, other, strict=True)]
    return ", ".join(
        f"{kind} {median(found):.3f} ({min(found):.3f} to {max(found):.3f})"
        for kind, found in zip(Seconds._fields, zip(*rounds, strict=True), strict=True)
    )
