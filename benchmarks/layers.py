"""What layers on top of the bundled model's vectors learn from a larger encoder, by the tokens that were read.

    python benchmarks/layers.py --data DATA --layers 2 --tokens 5 --out runs/layers

The student begins as the bundled model, turned onto the teacher's space by an orthogonal map: its layers normalise
what they read, and begin by adding nothing. It learns to choose each text's vector of the teacher among those of 10,000
texts (KL of the two softmaxes, temperature 0.05), and the teacher's similarities within the batch. All vectors of the
teacher are computed first, in int8, once for all runs of one --out; they are centred and cut to the student's size.
--layers 0 trains the vectors alone. A run that was stopped goes on after its last 10,000 texts. Texts are those of
DATA/train, in all languages; what is printed are means over the languages of DATA/dev that choices are made on, and at
the end those of the others, too. The curve is of one learning rate that falls in the last quarter of --tokens: runs
of other lengths are runs of their own. Minutes are those of this call, measuring included.
"""

from __future__ import annotations

import gzip
import json
import random
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from common import options
from interlingua.alignment.rotation import procrustes
from interlingua.files import atomic_write
from interlingua.models.dual import DualEncoder
from interlingua.models.inference.packing import token_batches
from interlingua.models.static.encoder import StaticEncoder
from interlingua.models.subwords import plain_text
from interlingua.models.transformer import pool_padded
from interlingua.objectives.distillation import distil_scores
from interlingua.training.teacher import TeacherVectors
from models import COLUMNS, quality

TEACHER = "multilingual-e5-small"
WINDOW = 10_000  # texts of one draw, whose teacher's vectors are each other's candidates
TOKENS = 8_192  # of a batch, with padding
TEMPERATURE = 0.05
HEADS = 5
LONGEST = 256  # subwords of a text that are read
GROUPS = ("choices are made on", "no choice is made on")


def lines(data: Path, pattern: str) -> Iterator[list[str]]:
    """The lines of each file of DATA/train."""
    for path in sorted((data / "train").glob(pattern)):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            yield stream.readlines()


def texts(data: Path, limit: int) -> list[tuple[str, str]]:
    """The first `limit` texts of a seeded shuffle, each with its role: questions and passages of all languages,
    documents in parts of three lengths, and up to 8,000 pairs a language of sentences and 4,000 of localisation."""
    draw, found = random.Random(7), dict[tuple[str, str], None]()

    def add(role: str, text: str) -> None:
        if len(text := " ".join(text.split())[:1500]) > 1:
            found[role, text] = None

    for pattern in ("qa/*.jsonl.gz", "qa_multilingual/*.jsonl.gz"):
        for rows in lines(data, pattern):
            for record in map(json.loads, rows):
                add("query", record["question"])
                add("passage", f"{record.get('title') or ''} {record['passage'][:700]}")
    for rows in lines(data, "documents/*.jsonl.gz"):
        for record in map(json.loads, rows):
            part, size, longest = list[str](), 0.0, draw.choice([150, 300, 600])
            for sentence in record.get("sentences") or [record["text"]]:
                part.append(sentence)
                size += len(sentence.encode())
                if size > longest * (1.0 if record["lang"] in ("en", "de", "es", "fr") else 1.6):
                    add("passage", " ".join(part)[:700])
                    part, size, longest = [], 0.0, draw.choice([150, 300, 600])
            add("passage", " ".join(part)[:700])
    for pattern, most in (("parallel/*.gz", 8_000), ("parallel_localisation/*.gz", 4_000)):
        for rows in lines(data, pattern):
            draw.shuffle(rows)
            for row in rows[:most]:
                for side in row.split("\t")[:2]:
                    add("passage", side)
    ordered = list(found)
    draw.shuffle(ordered)
    return ordered[:limit]


class Layer(nn.Module):
    """Attention with rotary positions and a feed-forward network, each of normalised states; both begin as zero."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.heads, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim, bias=False)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.down.weight)

    def forward(self, states: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor) -> Tensor:
        """`[texts, tokens, dim]` → the same. `mask` is added to the attention's logits."""

        def turned(part: Tensor) -> Tensor:
            one, other = part.chunk(2, -1)
            return torch.cat((one * cos - other * sin, one * sin + other * cos), -1)

        batch, tokens, dim = states.shape
        split = self.heads(self.first(states)).view(batch, tokens, 3, HEADS, dim // HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        cos, sin = cos.to(query), sin.to(query)
        # written out: faster on processors than F.scaled_dot_product_attention for texts this short, in bfloat16
        logits = (turned(query) * (dim // HEADS) ** -0.5) @ turned(key).transpose(-1, -2)
        mixed = (logits if mask is None else logits + mask.to(logits)).softmax(-1).to(value) @ value
        states = states + self.out(mixed.transpose(1, 2).reshape(batch, tokens, dim))
        fed: Tensor = states + self.down(F.gelu(self.up(self.second(states)), approximate="tanh"))
        return fed


class Student(nn.Module):
    """Token ids → vectors: the bundled model's, layers, the mean, a linear map. An `Encoder` for `quality`."""

    similarity = "cosine"

    def __init__(self, layers: int) -> None:
        super().__init__()
        bundled = cast(StaticEncoder, StaticEncoder.load("default")).query
        self.subwords = bundled.tokenize
        rows = torch.from_numpy(bundled.table.take(np.arange(bundled.table.shape[0])))
        dim = rows.shape[1]
        # as long as what a layer adds: else its first steps outweigh the vectors
        self.rows = nn.Embedding.from_pretrained(rows / rows.norm(dim=1).mean() * dim**0.5, freeze=False)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(layers))
        self.map = nn.Linear(dim, dim)
        nn.init.eye_(self.map.weight)
        nn.init.zeros_(self.map.bias)
        angles = torch.arange(LONGEST)[:, None] / 1000 ** (torch.arange(dim // HEADS // 2) / (dim // HEADS // 2))
        self.angles = angles.cos(), angles.sin()

    def ids(self, sentences: Sequence[Any]) -> list[list[int]]:
        """Subwords of each text, one at least."""
        return [ids[:LONGEST] or [0] for ids in self.subwords([plain_text(text) for text in sentences])]

    def forward(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Token ids of each text → unit vectors `[texts, dim]`."""
        padded = pad_sequence([torch.tensor(text) for text in ids], batch_first=True)
        mask = torch.arange(padded.shape[1]) < torch.tensor([[len(text)] for text in ids])
        states = self.rows(padded)
        cos, sin = (part[: padded.shape[1]] for part in self.angles)
        added = None if mask.all() else torch.zeros(mask.shape).masked_fill(~mask, -1e4)[:, None, None]
        for layer in self.layers:
            states = layer(states, added, cos, sin)
        means = pool_padded(states, mask, "mean") / states.shape[-1] ** 0.5
        return F.normalize(self.map(means), dim=1)

    @torch.no_grad()
    def encode_document(self, sentences: Sequence[Any], **_: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Vectors of texts of either role."""
        ids = self.ids(sentences)
        vectors = torch.zeros(len(ids), self.map.out_features)
        for batch in token_batches([len(text) for text in ids], TOKENS):
            vectors[batch] = self([ids[n] for n in batch])
        return vectors.numpy()

    encode_query = encode_document


def turn(student: Student, teacher: TeacherVectors, sample: Sequence[tuple[str, str]]) -> None:
    """Set the student's map to the orthogonal one that brings its vectors nearest to the teacher's."""
    vectors = student.encode_document([text for _, text in sample])
    rotation = procrustes(vectors - vectors.mean(0), taught(teacher, sample).numpy())
    student.map.weight.data.copy_(torch.from_numpy(rotation))


def taught(teacher: TeacherVectors, part: Sequence[tuple[str, str]]) -> Tensor:
    """The teacher's vectors of texts with their roles, `[texts, dim]`."""
    vectors = torch.zeros(len(part), teacher.space[1].shape[1])
    for role in ("query", "passage"):
        if rows := [n for n, item in enumerate(part) if item[0] == role]:
            vectors[rows] = teacher([part[n][1] for n in rows], role)
    return vectors


def loss_of(vectors: Tensor, targets: Tensor, candidates: Tensor) -> Tensor:
    """The divergence of the choice among the candidates, and of that among the batch's other texts."""
    itself = torch.eye(len(vectors), dtype=torch.bool)
    chosen = distil_scores(vectors @ candidates.T, targets @ candidates.T, temperature=TEMPERATURE)
    return chosen + distil_scores(vectors @ vectors.T, targets @ targets.T, temperature=TEMPERATURE, mask=itself)


def store(path: Path, student: Student, optimizer: torch.optim.Optimizer, read: int, step: int, window: int) -> None:
    """Keep a run: its weights, the optimizer's moments, and how far it is."""
    moments = optimizer.state_dict()["state"]
    tensors = {f"model.{name}": value for name, value in student.state_dict().items()}
    tensors |= {f"moments.{n}.{name}": value for n, state in moments.items() for name, value in state.items()}
    with atomic_write(path, "wb") as stream:
        stream.write(save({**tensors, "progress": torch.tensor([read, step, window])}))


def restored(path: Path, student: Student, optimizer: torch.optim.Optimizer) -> list[int]:
    """Tokens read, steps and windows of a run that was kept; nothing of a new one."""
    if not path.exists():
        return [0, 0, 0]
    tensors, moments = load_file(path), dict[int, dict[str, Tensor]]()
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        if kind == "moments":
            number, _, moment = rest.partition(".")
            moments.setdefault(int(number), {})[moment] = value
    student.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("model.")})
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    return [int(value) for value in tensors["progress"]]


def report(student: Student, arguments: Namespace, read: int, loss: float, minutes: float) -> None:
    """Print a row of the curve; of a whole run one of the languages that no choice is made on, too."""
    _, rows = quality(student, arguments.data / "dev", arguments.questions, [])
    chosen, held = (rows[f"XQuAD and Tatoeba, languages that {name}"] for name in GROUPS)
    for name, values in (("", chosen), *([("  not chosen on", held)] if read >= arguments.tokens * 1e6 else [])):
        print(
            f"{read / 1e6:6.1f}M tokens, {minutes:5.1f} min, loss {loss:.3f}:",
            "  ".join(f"{column} {value:.3f}" for column, value in zip(COLUMNS, values, strict=False)),
            name,
            flush=True,
        )


def main(arguments: Namespace) -> None:
    """Train, and measure at about twice as many tokens each time."""
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    chosen = texts(arguments.data, arguments.texts)
    TeacherVectors.build(arguments.out / "teacher", DualEncoder.load(TEACHER, precision="int8"), chosen)
    student = Student(arguments.layers)
    teacher = TeacherVectors(arguments.out / "teacher", student.map.out_features)
    rate = 1e-3 if arguments.layers else 3e-3
    parts = ((student.layers, rate), (student.map, rate / 20), (student.rows, rate / 2 if arguments.layers else rate))
    optimizer = torch.optim.AdamW(
        [{"params": list(part.parameters()), "lr": lr} for part, lr in parts],
        betas=(0.9, 0.98),
        weight_decay=0.01,
        fused=True,
    )
    rates = [group["lr"] for group in optimizer.param_groups]
    kept = arguments.out / f"layers-{arguments.layers}-{arguments.tokens}.safetensors"
    read, step, window = restored(kept, student, optimizer)
    start, last = time.perf_counter(), arguments.tokens * 1e6
    following = max(1e6, 2 * read)
    if not read:
        turn(student, teacher, chosen[:WINDOW])
        report(student, arguments, 0, float("nan"), 0.0)
    while read < last:
        draw, losses = np.random.default_rng([1, window]), list[float]()
        part = [chosen[n] for n in draw.choice(len(chosen), min(WINDOW, len(chosen)), replace=False)]
        ids, targets = student.ids([text for _, text in part]), taught(teacher, part)
        batches = list(token_batches([len(text) for text in ids], TOKENS))
        for number in draw.permutation(len(batches)):
            rows = batches[number]
            share = min(1.0, (step + 1) / 200, max(0.02, (last - read) / (0.25 * last)))
            for group, lr in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = lr * share
            with torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bfloat16"):
                loss = loss_of(student([ids[n] for n in rows]), targets[rows], targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            read, step = read + sum(len(ids[n]) for n in rows), step + 1
        window += 1
        if read >= min(following, last):
            report(student, arguments, read, fmean(losses), (time.perf_counter() - start) / 60)
            following = 2 * read
        store(kept, student, optimizer, read, step, window)


if __name__ == "__main__":
    parser = options(__doc__, layers=2, tokens=5, texts=300_000, questions=400)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="keeps the teacher's vectors and the runs")
    parser.add_argument(
        "--precision",
        choices=["float32", "bfloat16"],
        default="float32",
        help="of the training's products; bfloat16 is faster on processors that have it",
    )
    given = parser.parse_args()
    if missing := [part for part in ("train", "dev") if not (given.data / part).is_dir()]:
        parser.error(f"--data {given.data}: has no folder {' and no folder '.join(missing)}.")
    if given.layers < 0:
        parser.error(f"--layers {given.layers}: give 0 or more.")
    main(given)
