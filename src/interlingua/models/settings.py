"""What an encoder remembers besides its weights: prompts, the title template, lengths, the similarity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from interlingua.errors import InterlinguaError, suggestion
from interlingua.models.subwords import DEFAULT_TEMPLATE, check_template

Similarity = Literal["cosine", "dot"]
MaxLength = int | Mapping[str, int] | None

_ROLES = {"query": "query", "passage": "document", "document": "document"}


def stored_role(role: str) -> str:
    """The name sentence-transformers files use: "query", or "document" for both "passage" and "document"."""
    if role not in _ROLES:
        raise InterlinguaError(f"role {role!r} is not known.{suggestion(role, _ROLES)}")
    return _ROLES[role]


def check_similarity(similarity: str | None, where: str = "similarity") -> Similarity:
    """"cosine" (also for None) or "dot", else InterlinguaError."""
    if similarity in (None, "cosine"):
        return "cosine"
    if similarity == "dot":
        return "dot"
    raise InterlinguaError(f"{where}: {similarity!r} is not supported. Use 'cosine' or 'dot'.")


@dataclass
class Settings:
    """`prompts` by name ("query" and "document" are the roles'), `max_length` in tokens with special tokens (None:
    no limit), `role_lengths` where a role has its own, `template` the one that joins title and text."""

    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    template: str = DEFAULT_TEMPLATE
    max_length: int | None = None
    role_lengths: dict[str, int] = field(default_factory=dict)
    similarity: Similarity = "cosine"

    def change(self, *, prompts: Mapping[str, str] | None = None, template: str | None = None,
               max_length: MaxLength = None, limit: int | None = None) -> None:
        """Apply what a caller asked for; None leaves a setting as it is.

        Raises InterlinguaError for a length over `limit`, the number of positions the model has.
        """
        if prompts is not None:
            stored = {_ROLES.get(name, name): prompt for name, prompt in prompts.items()}
            self.prompts = {**self.prompts, **stored}
        if template is not None:
            self.template = check_template(template)
        if max_length is None:
            return
        lengths = {stored_role(role): int(length) for role, length in max_length.items()} if isinstance(
            max_length, Mapping) else {}
        longest = max(lengths.values(), default=None) if lengths else max_length
        if not isinstance(longest, int) or min(longest, *lengths.values(), longest) < 1:
            raise InterlinguaError(f"max_length {max_length!r}: give a number of tokens, or one per role such as "
                                   "{'query': 64, 'passage': 256}.")
        if limit is not None and longest > limit:
            raise InterlinguaError(f"max_length {longest}: this model has positions for {limit} tokens at most.")
        self.max_length, self.role_lengths = longest, lengths

    def length(self, role: str | None) -> int | None:
        """The most tokens of a text in this role."""
        return self.max_length if role is None else self.role_lengths.get(stored_role(role), self.max_length)

    def prompt(self, role: str | None, prompt_name: str | None = None, prompt: str | None = None) -> str:
        """The text to put in front: `prompt`, else the one named, else the role's, else the default one."""
        if prompt is not None:
            return prompt
        if prompt_name is not None:
            name = prompt_name if prompt_name in self.prompts else _ROLES.get(prompt_name, prompt_name)
            if name not in self.prompts:
                raise InterlinguaError(f"prompt_name {prompt_name!r}: this encoder has no such prompt."
                                       f"{suggestion(prompt_name, self.prompts)}")
            return self.prompts[name]
        if role is not None:
            return self.prompts.get(stored_role(role), "")
        return self.prompts.get(self.default_prompt_name, "") if self.default_prompt_name else ""
