"""Trim a vocabulary: keep the subwords that given texts or languages need, and their rows of the embedding table.

A multilingual model of 384 dimensions and 250,000 subwords keeps four fifths of its weights in that table. A text whose
best segmentation uses kept subwords alone is segmented as before, so its vectors stay the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import regex
import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedTokenizerFast

from interlingua.errors import BadInput
from interlingua.models.encoder import Encoder
from interlingua.models.subwords import Subwords, token_counts
from interlingua.models.transformer import Transformer
from interlingua.text.languages import language

SCRIPTS = {"Jpan": ("Hani", "Hira", "Kana"), "Kore": ("Hang", "Hani"), "Hans": ("Hani",), "Hant": ("Hani",)}
"""Scripts that ISO 15924 names together, by the names that Unicode gives to characters."""


def trim_vocabulary(
    encoder: Encoder, texts: Iterable[str] = (), langs: Iterable[str] = (), most: int | None = None
) -> tuple[int, int]:
    """Change `encoder` to the subwords that occur in `texts`, and to all those in the scripts of `langs`; how
    many are kept, of how many.

    Special tokens, prompts and all subwords of one character stay, so that no character becomes unknown that was known.
    With `most`, so many are kept at most, the most frequent of the texts; those of `langs` come on top. Texts with
    others fall into more subwords then, and their vectors change.
    Raises BadInput for a static model, for a tokenizer that is not a Unigram one, where texts and languages give
    nothing to keep, and where what has to stay is more than `most`.
    """
    backbone = encoder.backbone
    if not isinstance(backbone, Transformer):
        raise BadInput("a static model is not trimmed: its table is all that it has. Give a transformer.")
    description = json.loads(backbone.tokenizer.backend_tokenizer.to_str())
    if description["model"]["type"] != "Unigram":
        raise BadInput(
            f"its tokenizer is of the type {description['model']['type']}; the vocabulary of a Unigram tokenizer "
            "(XLM-R, multilingual E5) can be trimmed."
        )
    pieces = [piece for piece, _ in description["model"]["vocab"]]
    counts = token_counts(backbone.tokenizer.backend_tokenizer, texts)
    scripts = _in_scripts(pieces, langs)
    if most is not None and not counts:
        raise BadInput(f"the {most:,} most frequent subwords of no text: give texts that hold some.")
    if not counts and not scripts:
        raise BadInput("the texts hold no subword and no language is named, so nothing would be left. Check the files.")
    base = _always(description, backbone.pad_id)
    base |= token_counts(backbone.tokenizer.backend_tokenizer, encoder.settings.prompts.values()).keys()
    limit = len(pieces) if most is None else most - len(base)
    if limit < 0:
        raise BadInput(
            f"a vocabulary of {most:,}: special tokens and single characters alone are {len(base):,}. Ask for more."
        )
    ranked = sorted(counts.keys() - base, key=lambda number: (-counts[number], number))
    ids = sorted(base | scripts | set(ranked[:limit]))
    _rebuild(backbone, description, ids)
    return len(ids), len(pieces)


def _in_scripts(pieces: Sequence[str], langs: Iterable[str]) -> set[int]:
    codes = {language(lang).script for lang in langs}
    names = {name for code in codes for name in SCRIPTS.get(code, (code,))}
    if not names:
        return set()
    pattern = regex.compile("[▁\\p{Common}\\p{Inherited}" + "".join(rf"\p{{Script={name}}}" for name in names) + "]+")
    return {number for number, piece in enumerate(pieces) if pattern.fullmatch(piece)}


def _always(description: dict[str, Any], pad: int) -> set[int]:
    """Special tokens, single characters, bytes; the ids up to the padding's, from which XLM-R counts positions; and the
    least likely subword, by which Unigram weighs an unknown character."""
    vocabulary = description["model"]["vocab"]
    ids = {number for number, (piece, _) in enumerate(vocabulary) if len(piece.lstrip("▁")) <= 1}
    ids |= {number for number, (piece, _) in enumerate(vocabulary) if regex.fullmatch("<0x[0-9A-F]{2}>", piece)}
    ids |= {token["id"] for token in description["added_tokens"]} | set(range(pad + 1))
    ids.add(min(range(len(vocabulary)), key=lambda number: vocabulary[number][1]))
    return ids | {description["model"]["unk_id"]}


def _rebuild(backbone: Transformer, description: dict[str, Any], ids: Sequence[int]) -> None:
    new_ids = {old: new for new, old in enumerate(ids)}
    model = description["model"]
    model["vocab"] = [model["vocab"][old] for old in ids if old < len(model["vocab"])]
    model["unk_id"] = new_ids[model["unk_id"]]
    for token in description["added_tokens"]:
        token["id"] = new_ids[token["id"]]
    _rename(description.get("post_processor") or {}, new_ids)
    old_tokenizer = backbone.tokenizer
    backbone.tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(description)),
        model_max_length=old_tokenizer.model_max_length,
        **old_tokenizer.special_tokens_map,
    )
    backbone.subwords = Subwords(backbone.tokenizer.backend_tokenizer, special=True)
    table: Any = backbone.input_embeddings
    rows = table.weight.detach()[torch.tensor(ids)].clone()
    config = backbone.model.config
    embeddings = nn.Embedding(len(ids), rows.shape[1], padding_idx=getattr(config, "pad_token_id", None))
    embeddings.weight = nn.Parameter(rows)
    backbone.model.set_input_embeddings(embeddings)
    config.vocab_size = len(ids)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if (old := getattr(config, name, None)) is not None:
            setattr(config, name, new_ids.get(old))


def _rename(processor: dict[str, Any], new_ids: dict[int, int]) -> None:
    """Give the special tokens of a post-processor their new ids."""
    for part in processor.get("processors", ()):
        _rename(part, new_ids)
    for token in processor.get("special_tokens", {}).values():
        token["ids"] = [new_ids[old] for old in token["ids"]]
    for name in {"sep", "cls"} & processor.keys():
        processor[name][1] = new_ids[processor[name][1]]
