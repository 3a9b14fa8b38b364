"""Encoding speed against sentence-transformers at its best batch size: same random model, same texts, same vectors.

    python benchmarks/encode.py --texts 4000 --pooling cls
    python benchmarks/encode.py --file texts.txt --threads 2
    python benchmarks/encode.py --model multilingual-e5-small --file texts.txt --texts 100 --batch-sizes 1 8 32

Prints the fastest run's seconds and real tokens a second, computed tokens per real token (1.00 = no padding), and how
many times as long as ours each took: the median of the rounds, elapsed and processor time. Runs are interleaved.

With --model a real model takes the place of the random one: ours in each precision that the processor has, and
sentence-transformers in float32, in bfloat16, with torch's dynamic int8 layers and with its ONNX back end, as far as
they are installed. ONNX Runtime by itself (`ONNX Runtime`) runs our export of the model, in float32 and with its own
dynamic int8, on batches of texts of like length, as sentence-transformers makes them. Times are of the processor.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers import XLMRobertaConfig, XLMRobertaModel

from common import counting, in_turn, options, ratio
from interlingua.errors import BadInput
from interlingua.models.encoder import Encoder
from interlingua.models.folder import POOLINGS, Pooling, Settings, model_folder
from interlingua.models.inference.machine import cpu_has_bfloat16
from interlingua.models.layout import Parts
from interlingua.models.onnx import export_onnx
from interlingua.models.transformer import Transformer
from interlingua.training.backbones import unigram_tokenizer


def passages(count: int, seed: int = 0) -> list[str]:
    """Random words in texts of lognormal length: median 60 words, a tenth over 160, as Wikipedia passages have."""
    choose = random.Random(seed)
    words = ["".join(choose.choices("abcdefghijklmnoprstuvwyz", k=choose.randint(2, 9))) for _ in range(4_000)]
    return [
        " ".join(choose.choices(words, k=max(3, int(choose.lognormvariate(math.log(60), 0.75))))) for _ in range(count)
    ]


def build(texts: list[str], layers: int, hidden: int, max_length: int, pooling: Pooling) -> Encoder:
    """A random XLM-R-shaped encoder with a vocabulary of the texts' own words."""
    counts = Counter(word for text in texts for word in text.split()).most_common(30_000)
    pieces = {"▁" + word: float(count) for word, count in counts}
    pieces |= {character: 1.0 for text in texts for character in text if character not in pieces}
    total = sum(pieces.values())
    tokenizer = unigram_tokenizer(
        [(piece, math.log(n / total)) for piece, n in pieces.items() if piece != " "], max_length=max_length
    )
    torch.manual_seed(0)
    model = XLMRobertaModel(
        XLMRobertaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=hidden // 32,
            intermediate_size=4 * hidden,
            max_position_embeddings=max_length + 2,
            type_vocab_size=1,
        )
    )
    return Encoder.of(
        Parts(Transformer(model, tokenizer), pooling, normalize=True, settings=Settings(max_length=max_length)),
        device="cpu",
    )


def onnx_runtime(encoder: Encoder, folder: Path, int8: bool) -> Callable[..., np.ndarray]:
    """Texts and a batch size → vectors `[texts, dim]`, by ONNX Runtime."""
    from onnxruntime import InferenceSession, SessionOptions
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from tokenizers import Tokenizer

    path = folder / "model.onnx"
    if not path.exists():
        export_onnx(encoder, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if int8:
        path = folder / "int8.onnx"
        quantize_dynamic(folder / "model.onnx", path, weight_type=QuantType.QInt8)
    options = SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = InferenceSession(path, options, providers=["CPUExecutionProvider"])
    prompt = encoder.settings.prompt(None)

    def encode(texts: list[str], batch_size: int) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
        found = np.empty((len(texts), encoder.dim), np.float32)
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            rows = tokenizer.encode_batch([prompt + texts[number] for number in part])
            given = {
                "input_ids": np.array([row.ids for row in rows]),
                "attention_mask": np.array([row.attention_mask for row in rows]),
            }
            found[part] = session.run(None, given)[0]
        return found

    return encode


def real_model(name: str, texts: list[str], sizes: list[int], repeat: int) -> None:
    """Compare on a model that is there."""
    folder = str(model_folder(name))
    encoders = {"interlingua": Encoder.load(folder, device="cpu")}
    for precision in ("float32", "int8", "bfloat16"):
        try:
            encoders[f"interlingua {precision}"] = Encoder.load(folder, device="cpu", precision=precision)
        except BadInput as error:
            print(error)
    whole = next(iter(encoders.values()))
    real = sum(len(ids) for ids in whole.tokenize(texts))
    print(f"{len(texts):,} texts, {real:,} tokens, {torch.get_num_threads()} threads, torch {torch.__version__}")
    ways: dict[str, Callable[[], object]] = {
        way: partial(encoder.encode, texts, normalize_embeddings=True) for way, encoder in encoders.items()
    }
    for way, load in {
        "float32": lambda: SentenceTransformer(folder, device="cpu"),
        "bfloat16": lambda: SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.bfloat16}),
        "int8 of torch": lambda: torch.ao.quantization.quantize_dynamic(
            SentenceTransformer(folder, device="cpu"), {torch.nn.Linear}, torch.qint8
        ),
        "ONNX": lambda: SentenceTransformer(folder, device="cpu", backend="onnx"),
        "OpenVINO": lambda: SentenceTransformer(folder, device="cpu", backend="openvino"),
    }.items():
        if way == "bfloat16" and not cpu_has_bfloat16():
            print("sentence-transformers bfloat16: this processor has no units for it")
            continue
        try:
            theirs = load()
        except Exception as error:  # a back end that is not installed says so in many ways
            print(f"sentence-transformers {way}: not to be had here ({str(error).strip().splitlines()[0]})")
            continue
        for size in sizes:
            ways[f"sentence-transformers {way}, batch {size}"] = partial(
                theirs.encode, texts, batch_size=size, normalize_embeddings=True
            )
    with tempfile.TemporaryDirectory() as beside:
        for kind in ("float32", "int8"):
            try:
                encode = onnx_runtime(whole, Path(beside) / "onnx", kind == "int8")
            except (ImportError, BadInput) as error:
                print(f"ONNX Runtime {kind}: not to be had here ({error})")
                continue
            for size in sizes:
                ways[f"ONNX Runtime {kind}, batch {size}"] = partial(encode, texts, size)
    vectors = {way: np.asarray(encode(), dtype=np.float32) for way, encode in ways.items()}  # and sets all up
    rounds = in_turn(ways, repeat)
    for way, found in rounds.items():
        least = min(one.processor for one in found)
        cosine = float((vectors[way] * vectors["interlingua"]).sum(axis=1).min())
        times = median(a.processor / b.processor for a, b in zip(rounds["interlingua"], found, strict=True))
        print(f"{way:46} {real / least:8,.0f} tokens/s {times:6.2f} x interlingua, least cosine {cosine:.4f}")


def main() -> None:
    parser = options(__doc__, texts=4_000, layers=6, hidden=384, max_length=256, repeat=3)
    parser.add_argument("--pooling", choices=POOLINGS, default="mean")
    parser.add_argument("--model", help="a model folder or name, instead of a random one")
    parser.add_argument("--file", type=Path, help="one text a line, instead of random words")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[4, 8, 16, 32, 64])
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    texts = passages(given.texts)
    if given.file:
        texts = given.file.read_text(encoding="utf-8").splitlines()[: given.texts]
    if given.model:
        real_model(given.model, texts, given.batch_sizes, given.repeat)
        return
    ours = build(texts, given.layers, given.hidden, given.max_length, given.pooling)
    with tempfile.TemporaryDirectory() as folder:
        ours.save(Path(folder) / "model")
        theirs = SentenceTransformer(str(Path(folder) / "model"), device="cpu")
    real = sum(len(ids) for ids in ours.tokenize(texts))
    print(
        f"{len(texts):,} texts, {real:,} tokens ({real / len(texts):.0f} a text), {given.layers} layers x "
        f"{given.hidden}, {given.pooling} pooling, float32, {given.threads} threads, torch {torch.__version__}",
        flush=True,
    )
    computed: Counter[str] = Counter()
    counting(ours.backbone.model, computed)
    counting(theirs[0].auto_model, computed)
    vectors: dict[str, Any] = {}
    padding: dict[str, float] = {}

    def run(name: str, encode: Callable[..., Any], **how: int) -> Callable[[], None]:
        encode(texts[:8], **how)  # what is set up at the first call is not measured
        return lambda: vectors.update({name: encode(texts, **how)})

    def count(name: str) -> None:
        padding[name] = computed.pop("tokens") / real

    ways = {"interlingua": run("interlingua", ours.encode)}
    for size in given.batch_sizes:
        name = f"sentence-transformers, batch {size}"
        ways[name] = run(name, theirs.encode, batch_size=size)
    computed.clear()
    rounds = in_turn(ways, given.repeat, count)
    fastest = {name: min(rounds[name]).elapsed for name in ways}
    for name, taken in fastest.items():
        print(
            f"{name:32} {taken:7.2f} s {real / taken:8,.0f} tokens/s {padding[name]:6.2f} computed/real; "
            f"to ours: {ratio(rounds[name], rounds['interlingua'])}"
        )
    best = min((name for name in ways if name != "interlingua"), key=fastest.__getitem__)
    difference = float(np.abs(vectors["interlingua"] - vectors[best]).max())
    print(
        f"fastest of each: {fastest[best] / fastest['interlingua']:.2f} x {best}; "
        f"largest difference of the vectors {difference:.1e}"
    )


if __name__ == "__main__":
    main()
