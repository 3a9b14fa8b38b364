"""One step of contrastive context prediction with a full memory bank: what is spent outside the encoder.

    python benchmarks/context.py
    python benchmarks/context.py --windows 64 --bank 32768 --layers 6 --hidden 384 --repeat 3

A random transformer whose vocabulary is learned from the bundled encyclopedia reads windows of its English sentences;
the bank is filled before. `gradients` is the step without the update. `bare` is the encoder's forward and backward
passes in it alone: the same texts in the same chunks, tokenised beforehand, a fixed gradient instead of the loss.
`objective alone` is the rest of `gradients` but for tokenising: projection head, bank read, similarities, loss, their
gradients, and what goes into the bank, on fixed vectors. `update` is the optimizer, which is no part of the others. All
run in turn; a share is the median of the rounds' shares, in brackets the smallest and the largest, once of elapsed and
once of processor seconds (the latter hardly depend on what else the machine does).

What is spent outside the encoder is taken twice: as `gradients` less `bare`, which is all of it, but the difference of
two long times; and from `objective alone`, which is steady but a lower bound: there it finds its memory at hand, in the
step it comes after an encoder pass and must get it anew.
"""

from __future__ import annotations

from statistics import median

import numpy as np
import torch
from torch.nn import functional as F

from common import Seconds, encyclopedia_encoder, in_turn, options, ratio
from interlingua.data import encyclopedia
from interlingua.data.contexts import context_pair, with_context
from interlingua.data.records import ContextPair
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import token_batches
from interlingua.objectives import ContextPrediction
from interlingua.objectives.objective import Batch
from interlingua.training.encoding import Chunking
from interlingua.training.optimizer import Optimizer, OptimizerSpec
from interlingua.training.processes import Processes
from interlingua.training.step import backward
from interlingua.training.weighted import WeightedObjective

ALONE = Processes(0, 1, torch.device("cpu"))
LANG, WINDOW = "en", 5


def draw(windows: int) -> list[ContextPair]:
    """Draw windows, each from a document of its own. So no text occurs twice, and the gain from encoding a repeated
    text once is not measured."""
    documents = list(with_context(encyclopedia.documents(None, [LANG])))
    if windows > len(documents):
        raise SystemExit(f"--windows {windows}: the encyclopedia has {len(documents)} documents in '{LANG}'.")
    random = np.random.default_rng(0)
    return [
        context_pair(documents[number], int(number), WINDOW, random)
        for number in random.permutation(len(documents))[:windows]
    ]


class Step:
    """The step and its parts."""

    def __init__(self, model: DualEncoder, pairs: list[ContextPair], bank: int) -> None:
        torch.manual_seed(0)
        self.model, self.chunking = model, Chunking()
        self.batch: Batch = {"contexts": pairs}
        self.objective = ContextPrediction(dim=model.dim, bank=bank)
        if bank:
            # numbers of documents that none of the windows has: nothing is masked, and nothing need be
            self.objective.bank.add(
                LANG, F.normalize(torch.randn(bank, model.dim), dim=-1), torch.arange(bank) + 1_000_000
            )
        self.term = WeightedObjective("context_prediction", self.objective)
        self.optimizer = Optimizer([model, self.objective], OptimizerSpec(schedule="constant"), 1)
        texts = [pair.center for pair in pairs] + [pair.target for pair in pairs]
        ids = model.passage.tokenize(list(dict.fromkeys(texts)), "passage")
        self.passes = [
            ([ids[i] for i in chunk], torch.randn(len(chunk), model.dim))
            for chunk in token_batches([len(text) for text in ids], self.chunking.tokens)
        ]
        self.tokens = sum(map(len, ids))
        self.vectors = {name: torch.randn(len(pairs), model.dim, requires_grad=True) for name in ("centers", "targets")}

    def gradients(self) -> None:
        """The step without the update."""
        backward([self.term], self.model, self.batch, 0, self.chunking, ALONE)
        self.objective.after_step()

    def bare(self) -> None:
        """The encoder passes in `gradients` alone."""
        for ids, gradient in self.passes:
            torch.autograd.backward(self.model.passage.embed_ids(ids), gradient)

    def alone(self) -> None:
        """The objective in `gradients` alone."""
        torch.autograd.backward(self.objective.loss(self.batch, self.vectors).value)
        self.objective.after_step()

    def update(self) -> None:
        """The optimizer's part, on the gradients that are there."""
        self.optimizer.step(0)

    def clear(self, name: str) -> None:
        """Forget the gradients of all ways but `gradients`: `update` comes next and uses them."""
        if name != "gradients":
            for tensor in (*self.optimizer.parameters, *self.vectors.values()):
                tensor.grad = None


def share(name: str, parts: list[Seconds], wholes: list[Seconds], rest: bool = False) -> None:
    """Print the rounds' shares parts / wholes, or with `rest` what is left of the wholes."""
    lines = []
    for kind in Seconds._fields:
        found = [getattr(a, kind) / getattr(b, kind) for a, b in zip(parts, wholes, strict=True)]
        found = [1 - value for value in found] if rest else found
        lines.append(f"{kind} {median(found):.1%} ({min(found):.1%} to {max(found):.1%})")
    print(f"{name}: {', '.join(lines)}")


def main() -> None:
    given = options(__doc__, windows=64, bank=32_768, repeat=3, layers=6, hidden=384).parse_args()
    torch.set_num_threads(given.threads)
    encoder = encyclopedia_encoder(given.layers, given.hidden)
    step = Step(DualEncoder.tied(encoder).train(), draw(given.windows), given.bank)
    print(
        f"{given.windows} windows in '{LANG}', {step.tokens:,} tokens, bank of {given.bank:,}; "
        f"{given.layers} layers x {given.hidden}, tied, float32, {given.threads} threads",
        flush=True,
    )
    step.gradients()
    step.update()  # the first update allocates its moments
    rounds = in_turn(
        {
            "bare encoder passes": step.bare,
            "objective alone": step.alone,
            "gradients": step.gradients,
            "update": step.update,
        },
        given.repeat,
        step.clear,
    )
    for name, taken in rounds.items():
        print(
            f"{name:20} {median(s.elapsed for s in taken):7.3f} s elapsed, "
            f"{median(s.processor for s in taken):7.3f} s processor"
        )
    print(f"gradients / bare encoder passes: {ratio(rounds['gradients'], rounds['bare encoder passes'])}")
    share("outside the encoder, gradients less bare", rounds["bare encoder passes"], rounds["gradients"], rest=True)
    share(
        "outside the encoder, objective alone",
        rounds["objective alone"],
        [
            Seconds(a.elapsed + b.elapsed, a.processor + b.processor)
            for a, b in zip(rounds["bare encoder passes"], rounds["objective alone"], strict=True)
        ],
    )


if __name__ == "__main__":
    main()
