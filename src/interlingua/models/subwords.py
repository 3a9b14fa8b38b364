"""Text to subword ids: prompts, titles and truncation, the same at training, indexing and search time."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tokenizers import Tokenizer

from interlingua.errors import InterlinguaError
from interlingua.models.sentence_pieces import SentencePieces

Text = str | tuple[str, str]
"""A plain text, or a passage as `(title, text)`."""

PAIR = "pair"
DEFAULT_TEMPLATE = "{title} {text}"


def check_template(template: str) -> str:
    """`template` if it is "pair" or a format string of exactly {title} and {text}, else InterlinguaError."""
    try:
        fields = [field for _, field, spec, conversion in string.Formatter().parse(template) if field is not None]
        plain = not any(spec or conversion for _, _, spec, conversion in string.Formatter().parse(template))
    except ValueError:
        fields, plain = [], False
    if template == PAIR or (sorted(fields) == ["text", "title"] and plain):
        return template
    raise InterlinguaError(f"title template {template!r}: use '{PAIR}', or a text that holds {{title}} and {{text}} "
                           f"once each, such as '{DEFAULT_TEMPLATE}'.")


def plain_text(text: Text, template: str = DEFAULT_TEMPLATE) -> str:
    """One string: `(title, text)` through the template, the text alone where the title is empty."""
    if isinstance(text, str):
        return text
    if not text[0]:
        return text[1]
    return (DEFAULT_TEMPLATE if template == PAIR else template).format(title=text[0], text=text[1])


@contextmanager
def _unicode() -> Iterator[None]:
    try:
        yield
    except (TypeError, UnicodeEncodeError) as error:  # strings they are all
        raise InterlinguaError("a text holds half a surrogate pair, so it is not valid Unicode. Was it read as "
                               "UTF-8?") from error


class Subwords:
    """A fast tokenizer used without state: no padding, no truncation set on it, so that threads may share it.

    `special` adds the tokenizer's own template (`<s> A </s>`, for pairs `<s> A </s></s> B </s>`). Truncation keeps
    the closing special token and cuts from the end, which is the text: a title or question in front is kept.
    """

    def __init__(self, tokenizer: Tokenizer, *, special: bool) -> None:
        self.tokenizer = tokenizer
        self._reset()
        self.special = special
        mask = tokenizer.encode("a", add_special_tokens=special).special_tokens_mask
        self._closing = next((count for count, flag in enumerate(reversed(mask)) if not flag), 0)
        self._overhead = sum(mask)
        self._pieces = None if special else SentencePieces.of(tokenizer)

    def __call__(
        self, texts: Sequence[Text], *, prompt: str = "", template: str = DEFAULT_TEMPLATE,
        max_length: int | None = None,
    ) -> list[list[int]]:
        """Token ids of each text, `prompt` in front, at most `max_length` long with special tokens.

        Raises InterlinguaError for anything that is neither a string nor a pair of strings.
        """
        if max_length is not None and max_length <= self._overhead:
            raise InterlinguaError(f"max_length {max_length}: must be larger than the {self._overhead} special tokens.")
        self._reset()
        inputs = [self._input(number, text, prompt, template) for number, text in enumerate(texts)]
        with _unicode():
            return [self._cut(found, max_length) for found in self._ids(inputs)]

    def spans(self, text: str) -> list[tuple[int, tuple[int, int]]]:
        """The ids of a text, without special tokens, each with the characters that it stands for."""
        self._reset()
        with _unicode():
            encoding = self.tokenizer.encode(text, add_special_tokens=False)
        return list(zip(encoding.ids, encoding.offsets, strict=True))

    def _ids(self, inputs: Sequence[str | tuple[str, str]]) -> list[list[int]]:
        if self._pieces is not None:  # not special, so all of them are strings
            return self._pieces([text for text in inputs if isinstance(text, str)])
        encodings = self.tokenizer.encode_batch_fast(inputs, add_special_tokens=self.special)
        return [encoding.ids for encoding in encodings]

    def _reset(self) -> None:
        # A call of the transformers tokenizer that wraps this one leaves its truncation and padding behind.
        if self.tokenizer.truncation is not None:
            self.tokenizer.no_truncation()
        if self.tokenizer.padding is not None:
            self.tokenizer.no_padding()

    def _input(self, number: int, text: Text, prompt: str, template: str) -> str | tuple[str, str]:
        if isinstance(text, str):
            return prompt + text
        if not (isinstance(text, (tuple, list)) and len(text) == 2 and all(isinstance(part, str) for part in text)):
            raise InterlinguaError(f"text {number}: {str(text)[:60]!r} is {type(text).__name__}. "
                                   "Give a string or a (title, text) pair of strings.")
        if template == PAIR and text[0] and self.special:
            return prompt + text[0], text[1]
        return prompt + plain_text((text[0], text[1]), template)

    def _cut(self, ids: list[int], max_length: int | None) -> list[int]:
        if max_length is None or len(ids) <= max_length:
            return ids
        return ids[: max_length - self._closing] + ids[len(ids) - self._closing :]
