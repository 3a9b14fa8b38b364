"""One training step: against the bare encoder passes in it, and against the same step with sentence-transformers.

    python benchmarks/step.py
    python benchmarks/step.py --batch 16 --layers 2 --repeat 5
    python benchmarks/step.py --model multilingual-e5-small --batch 32 --sparse

The step is joint (retrieval + semantic + language) on a random transformer whose vocabulary is learned from the bundled
encyclopedia. `bare` is the encoder's forward and backward passes alone: the same texts in the same chunks, tokenised
beforehand, a fixed gradient instead of the losses. The peer is a plain loop of sentence-transformers' collator, model
and MultipleNegativesRankingLoss, our other two losses through its loss interface, and fused AdamW: what its trainer
does in a step, without its logging. Both sides step with dropout; before that both take the gradient without dropout,
and the norms are printed: they must be equal. The four ways run in turn; a ratio is the median of the rounds' ratios,
once of elapsed and once of processor seconds (the latter hardly depend on what else the machine does). `--batch` is the
number of questions, and of pairs.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from common import counting, encyclopedia_encoder, in_turn, options, ratio
from interlingua.data import encyclopedia
from interlingua.data.records import QuestionPassage
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import token_batches
from interlingua.models.subwords import plain_text
from interlingua.objectives import Language, Retrieval, Semantic, language_contrastive, semantic_contrastive
from interlingua.objectives.objective import Batch, SentenceTransformersLoss
from interlingua.objectives.retrieval import as_text
from interlingua.training.backbones import build_encoder
from interlingua.training.encoding import Chunking
from interlingua.training.optimizer import Optimizer, OptimizerSpec, gradient_norm
from interlingua.training.processes import Processes
from interlingua.training.step import backward, groups
from interlingua.training.weighted import WeightedObjective

ALONE = Processes(0, 1, torch.device("cpu"))
TEMPERATURE, SEMANTIC, LANGUAGE, RATE, CLIP = 0.05, 0.5, 0.1, 1e-5, 2.0


def draw(size: int) -> Batch:
    """Questions with a passage and a hard negative, and as many sentence pairs, of all languages, no text twice: what
    is saved by encoding a repeated text once is not measured here."""
    choose = random.Random(0)
    asked = [
        next(q for q in encyclopedia.questions(None, lang) if q.id == f"{topic.id}#0")
        for lang in encyclopedia.languages()
        for topic in encyclopedia.topics()
    ]
    pairs = list(encyclopedia.parallel(None))
    choose.shuffle(asked)
    choose.shuffle(pairs)
    pairs = list({pair.group: pair for pair in pairs}.values())
    if size > min(len(asked) // 2, len(pairs)):
        raise SystemExit(f"--batch {size}: the encyclopedia has texts for {min(len(asked) // 2, len(pairs))}.")
    questions = [
        QuestionPassage(own.question, own.positives, other.positives, own.lang)
        for own, other in zip(asked[:size], asked[size : 2 * size], strict=True)
    ]
    return {"questions": questions, "parallel": pairs[:size]}


class Ours:
    """The toolkit's step."""

    def __init__(self, model: DualEncoder, batch: Batch, sparse: bool = False) -> None:
        self.model, self.batch, self.chunking = model, batch, Chunking()
        model.query.input_embeddings.sparse = sparse
        terms = [
            WeightedObjective("retrieval", Retrieval(temperature=TEMPERATURE)),
            WeightedObjective("semantic", Semantic(), SEMANTIC),
            WeightedObjective("language", Language(), LANGUAGE),
        ]
        self.groups = groups(terms, batch)
        self.optimizer = Optimizer([model], OptimizerSpec(lr=RATE, clip=CLIP, schedule="constant"), 1)
        self.passes: list[tuple[list[list[int]], Tensor]] = []
        for group in self.groups:
            unique: dict[str, dict[Any, None]] = {}
            for wanted in chain.from_iterable(term.objective.requests(batch).values() for term in group):
                unique.setdefault(wanted.role, {}).update(dict.fromkeys(wanted.texts))
            for role, texts in unique.items():
                ids = model.encoder(role).tokenize(list(texts), role)
                for chunk in token_batches([len(text) for text in ids], self.chunking.tokens):
                    self.passes.append(([ids[i] for i in chunk], torch.randn(len(chunk), model.dim)))
        self.tokens = sum(len(text) for ids, _ in self.passes for text in ids)

    def joint(self) -> None:
        """All objectives' gradients."""
        for group in self.groups:
            backward(group, self.model, self.batch, 0, self.chunking, ALONE)

    def bare(self) -> None:
        """The encoder passes in `joint` alone."""
        for ids, gradient in self.passes:
            torch.autograd.backward(self.model.query.embed_ids(ids), gradient)

    def step(self) -> None:
        """`joint` and the update."""
        self.joint()
        self.optimizer.step(0)


class Theirs:
    """The same step with sentence-transformers. Semantic and language loss share one encoding, as ours do."""

    def __init__(self, model: SentenceTransformer, batch: Batch) -> None:
        self.model = model
        questions, pairs = batch["questions"], batch["parallel"]
        self.rows = [
            [
                {
                    "question": q.question,
                    "positive": plain_text(as_text(q.positives[0])),
                    "negative": plain_text(as_text(q.negatives[0])),
                }
                for q in questions
            ],
            [{"source": pair.source, "target": pair.target} for pair in pairs],
        ]
        self.losses = [
            MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE),
            SentenceTransformersLoss(model, self.alignment),
        ]
        self.collate = SentenceTransformerDataCollator(preprocess_fn=model.preprocess)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=RATE, weight_decay=0.0, fused=True)

    @staticmethod
    def alignment(source: Tensor, target: Tensor) -> Tensor:
        """The weighted semantic and language loss."""
        return SEMANTIC * semantic_contrastive(source, target) + LANGUAGE * language_contrastive(source, target)

    def joint(self) -> None:
        """All losses' gradients."""
        for rows, loss in zip(self.rows, self.losses, strict=True):
            features = self.collate(rows)
            names = [name.removesuffix("_input_ids") for name in features if name.endswith("_input_ids")]
            columns = [
                {key.removeprefix(f"{name}_"): value for key, value in features.items() if key.startswith(f"{name}_")}
                for name in names
            ]
            loss(columns, None).backward()

    def step(self) -> None:
        """`joint` and the update."""
        self.joint()
        torch.nn.utils.clip_grad_norm_(self.parameters, CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad()


def norm(side: Ours | Theirs) -> float:
    """The norm of the joint gradient without dropout."""
    side.model.eval()
    side.joint()
    found = gradient_norm(p.grad for p in side.model.parameters())
    side.model.zero_grad()
    side.model.train()
    return found


def main() -> None:
    parser = options(__doc__, batch=48, repeat=5, layers=6, hidden=384)
    parser.add_argument("--model", default="", help="the first --layers layers of this model, not a random one")
    parser.add_argument("--sparse", action="store_true", help="row-sparse updates of our embeddings")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    batch = draw(given.batch)
    encoder = (
        build_encoder({"name": given.model, "layers": given.layers}, device="cpu")
        if given.model
        else encyclopedia_encoder(given.layers, given.hidden)
    )
    encoder.settings.prompts = {}  # the peer's collator puts none before a text
    with tempfile.TemporaryDirectory() as folder:
        encoder.save(Path(folder) / "model")
        theirs = Theirs(SentenceTransformer(str(Path(folder) / "model"), device="cpu"), batch)
    ours = Ours(DualEncoder.tied(encoder), batch, given.sparse)
    print(
        f"{given.batch} questions with a passage and a hard negative, {given.batch} pairs, "
        f"{ours.tokens:,} tokens; {given.layers} layers x {encoder.hidden_size}, tied, float32, "
        f"{given.threads} threads",
        flush=True,
    )
    computed: Counter[str] = Counter()
    counting(encoder.backbone.model, computed)
    counting(theirs.model[0].auto_model, computed)
    padding = {}
    for name, side in (("interlingua", ours), ("sentence-transformers", theirs)):
        computed.clear()
        print(f"{name:30} gradient norm without dropout {norm(side):.5f}", flush=True)
        padding[name] = computed["tokens"] / ours.tokens
    ways: dict[str, Callable[[], None]] = {
        "bare encoder passes": ours.bare,
        "joint gradients": ours.joint,
        "interlingua": ours.step,
        "sentence-transformers": theirs.step,
    }
    rounds = in_turn(ways, given.repeat, lambda _: encoder.zero_grad())
    for name, taken in rounds.items():
        middle = median(seconds.elapsed for seconds in taken)
        more = (
            f"  {given.batch / middle:6.2f} examples/s, {padding[name]:.2f} computed/real tokens"
            if name in padding
            else ""
        )
        print(f"{name:30} {middle:7.2f} s (fastest {min(taken).elapsed:.2f}){more}")
    for one, other in (("joint gradients", "bare encoder passes"), ("sentence-transformers", "interlingua")):
        print(f"{one} / {other}: {ratio(rounds[one], rounds[other])}")


if __name__ == "__main__":
    main()
