"""Learning a subword vocabulary: SentencePiece Unigram pieces in a fast tokenizer with XLM-R's special tokens.

SentencePiece finds the pieces because its result is the same on every run; the trainer of the tokenizers library
gives other scores each time and takes three times as long. The tokenizer that is made holds no SentencePiece.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import Unigram
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from interlingua.errors import InterlinguaError
from interlingua.models.normalising import normalizer
from interlingua.models.piece_file import BYTES

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
_THREADS = 4
"""Fixed, whatever the machine has: sums over threads decide ties, and a vocabulary must not depend on the machine."""
_LONGEST = 2_000
"""Characters of a text that are read; SentencePiece would leave out longer lines."""


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, *, lowercase: bool = False, character_coverage: float = 0.9995,
    byte_fallback: bool = False, max_length: int = 512,
) -> PreTrainedTokenizerFast:
    """A Unigram tokenizer of `vocab_size` tokens learned from `texts` (Kudo 2018), the same for the same texts.

    NFKC normalisation, words begin with "▁", ids 0–3 are <s> <pad> </s> <unk> and the last is <mask>, as in XLM-R;
    one text becomes `<s> A </s>`, two become `<s> A </s></s> B </s>`. `character_coverage` is the share of characters
    that get a token; the rarest others become <unk>, or with `byte_fallback` the bytes of their UTF-8, which are 256 of
    the tokens (after the first four). A corpus too small for `vocab_size` gives fewer tokens.
    Raises InterlinguaError without the sentencepiece package or without text.
    """
    try:
        import sentencepiece
    except ImportError as error:
        raise InterlinguaError("learning a vocabulary needs sentencepiece: `pip install sentencepiece`.") from error
    if vocab_size < 16:
        raise InterlinguaError(f"vocab_size {vocab_size}: is too small, thousands are usual.")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_sentences(texts, normalizer(lowercase)), model_writer=model, model_type="unigram",
            vocab_size=vocab_size - 1 - len(BYTES) * byte_fallback, hard_vocab_limit=False,
            character_coverage=character_coverage,
            normalization_rule_name="identity", remove_extra_whitespaces=True, num_threads=_THREADS,
            max_sentence_length=8 * _LONGEST, minloglevel=2, bos_id=0, pad_id=1, eos_id=2, unk_id=3,
            bos_piece=SPECIAL[0], pad_piece=SPECIAL[1], eos_piece=SPECIAL[2], unk_piece=SPECIAL[3])
    except RuntimeError as error:
        raise InterlinguaError(f"no vocabulary of {vocab_size:,} tokens could be learned from these texts ({error}). "
                               "Give more text, or ask for fewer tokens.") from error
    learned = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [(learned.id_to_piece(i), learned.get_score(i)) for i in range(len(SPECIAL), learned.get_piece_size())]
    return unigram_tokenizer(pieces, lowercase=lowercase, byte_fallback=byte_fallback, max_length=max_length)


def unigram_tokenizer(
    pieces: Sequence[tuple[str, float]], *, lowercase: bool = False, byte_fallback: bool = False, max_length: int = 512
) -> PreTrainedTokenizerFast:
    """A tokenizer of these `(piece, log probability)` pairs, with XLM-R's special tokens around them."""
    bytes_ = [(token, 0.0) for token in BYTES if byte_fallback]
    vocabulary = [*((token, 0.0) for token in SPECIAL), *bytes_, *pieces, (MASK, 0.0)]
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=SPECIAL.index("<unk>"), byte_fallback=byte_fallback))
    tokenizer.normalizer = normalizer(lowercase)
    tokenizer.pre_tokenizer = Metaspace()
    tokenizer.decoder = MetaspaceDecoder()
    tokenizer.add_special_tokens([*SPECIAL, AddedToken(MASK, lstrip=True)])
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return with_special_tokens(tokenizer, max_length)


def with_special_tokens(tokenizer: Tokenizer, max_length: int) -> PreTrainedTokenizerFast:
    """A tokenizer that has XLM-R's special tokens, with their roles. Raises InterlinguaError where it lacks one."""
    missing = [token for token in (*SPECIAL, MASK) if tokenizer.token_to_id(token) is None]
    if missing:
        raise InterlinguaError(f"the tokenizer has no token {', '.join(missing)}: a transformer needs XLM-R's.")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", sep_token="</s>",
        cls_token="<s>", pad_token="<pad>", mask_token=AddedToken(MASK, lstrip=True), model_max_length=max_length)


def token_counts(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]) -> Counter[int]:
    """How often each token id occurs in `texts`, without special tokens."""
    counts: Counter[int] = Counter()
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == 10_000:
            _count(tokenizer, batch, counts)
            batch = []
    _count(tokenizer, batch, counts)
    return counts


def _count(tokenizer: PreTrainedTokenizerFast, batch: list[str], counts: Counter[int]) -> None:
    for encoding in tokenizer.backend_tokenizer.encode_batch_fast(batch, add_special_tokens=False):
        counts.update(encoding.ids)


def _sentences(texts: Iterable[str], normal: Normalizer) -> Iterator[str]:
    for text in texts:
        sentence = normal.normalize_str(text[:_LONGEST])
        if sentence:
            yield sentence
