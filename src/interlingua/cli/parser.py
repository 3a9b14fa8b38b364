"""The parser of the command line: arguments and options in any order, options that repeat, errors with a way out."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Never

from interlingua.errors import suggestion

REPEATING = """\
An option that may be repeated takes one value each time: --on A --on B. Several at
once, --on A B, are all the option's where the arguments of the command stand before
it or after another option; where they do not, A is the option's and B an argument.
Where values have the form KEY=VALUE, the first word of another form is an argument.
"""
SHOWN = {
    "--quiet": "show only warnings and errors while it works",
    "--debug": "show every message, and the traceback of an error",
}
"""Options of the command line and of every verb."""
NUMBER = re.compile(r"-\d+|-\d*\.\d+")
SHELLS = ("bash", "zsh", "fish")
FILES = re.compile(r"FILE|DIR|FOLDER|PATH|IDX|INDEX|MODEL|COLLECTION|PASSAGES|QUESTIONS|RUN|RECIPE|SOURCE|^[AB]$")
"""The names of arguments for which shells complete names of files."""


class Repeated(argparse.Action):
    """An option whose values, one each time it is given, become a list. `form` is what all of them look like, if they
    have a form that arguments do not have."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, *, form: str = "", help: str = "", **options: Any
    ) -> None:
        super().__init__(option_strings, dest, help=f"{help} (may be repeated)", **options)
        self.form = re.compile(form) if form else None

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Append one value."""
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), values])


class Parser(argparse.ArgumentParser):
    """argparse with suggestions for a misspelt verb or option, and exit code 2."""

    def error(self, message: str) -> Never:
        """One line and the way out."""
        if message.startswith("argument VERB: invalid choice") and "'" in message:
            verbs = next(action.choices for action in self._actions if action.dest == "verb") or ()
            message = f"unknown verb '{message.split(chr(39))[1]}'." + suggestion(message.split("'")[1], verbs)
        end = "" if message.endswith((".", "?")) else "."
        self.exit(2, f"interlingua: {message}{end} See `{self.prog} --help`.\n")

    def unknown(self, word: str) -> Never:
        """The error for a word that this parser has no use for: its usage, and the option that was meant."""
        self.print_usage(sys.stderr)
        if is_option(word):
            name = word.partition("=")[0]
            self.error(f"unknown option '{name}'.{suggestion(name, self.options())}")
        self.error(f"'{word}' is one argument too many")

    def options(self) -> dict[str, argparse.Action]:
        """The options by their names."""
        return {name: action for action in self._actions for name in action.option_strings}

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse, but for the error."""
        arguments, extras = self.parse_known_args(args, namespace)
        if extras:
            self.unknown(extras[0])
        return arguments


class Given(NamedTuple):
    """Words of a command that belong together: an option with its values, or one argument, whose `action` is None."""

    action: argparse.Action | None
    words: list[str]


class VerbParser(Parser):
    """A verb's own parser: arguments and options in any order (`train recipe.yaml --out runs/a training.steps=9`), and
    options that repeat.

    `without` are the options with which the verb needs no arguments, though it takes them. `moved` are options of
    earlier versions, each with the option or the verb that it is now.
    """

    _mixing = False
    without: tuple[str, ...] = ()
    moved: Mapping[str, str] = MappingProxyType({})

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)
        for option, description in SHOWN.items():
            self.add_argument(option, action="store_true", default=argparse.SUPPRESS, help=description)

    def format_help(self) -> str:
        """With the rule for options that may be repeated, where there are any."""
        text = super().format_help()
        return f"{text}\n{REPEATING}" if any(isinstance(action, Repeated) for action in self._actions) else text

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse, which would close a list of arguments at the first option after it."""
        if self._mixing:  # argparse parses options and arguments apart by calling this twice
            return super().parse_known_args(args, namespace)
        words = list(sys.argv[1:] if args is None else args)
        self._refuse_moved(words)
        words = self._one_value_each(words)
        self._mixing = True
        try:
            arguments, extras = self.parse_known_intermixed_args(words, namespace)
        finally:
            self._mixing = False
        if extras:
            self.unknown(extras[0])
        for action in self._actions:  # argparse takes a second "--" for an argument, and then leaves it out
            if action.nargs is None and not action.option_strings and getattr(arguments, action.dest, None) == []:
                self.error(
                    f"argument {action.metavar or action.dest}: '--' is none. For a file of this name write ./--"
                )
        return arguments, extras

    def _refuse_moved(self, words: list[str]) -> None:
        """Stop at an option of an earlier version with the command as it is typed now."""
        end = words.index("--") if "--" in words else len(words)
        place = next((i for i, word in enumerate(words[:end]) if word.partition("=")[0] in self.moved), None)
        if place is None:
            return
        name, sign, value = words[place].partition("=")
        program, _, verb = self.prog.rpartition(" ")
        before, after, new = words[:place], words[place + 1 :], self.moved[name]
        if new.startswith("-"):
            command = [program, verb, *before, new + sign + value, *after]
        else:  # the option had the index as its value, which is the first argument of the verb
            command = [program, new, *([value] if sign else after[:1]), *before, *(after if sign else after[1:])]
        self.exit(2, f"interlingua: `{shlex.join([program, verb, *words])}` is now: {shlex.join(command)}\n")

    def _one_value_each(self, words: list[str]) -> list[str]:
        """The same command with `--on=A --on=B` in place of `--on A B`, as `REPEATING` says."""
        end = words.index("--") if "--" in words else len(words)
        parts = list(self._given(words[:end]))
        arguments = sum(one.action is None for one in parts) + len(words[end + 1 :])
        missing = arguments < self._needed({name for one in parts if one.action for name in one.action.option_strings})
        result: list[str] = []
        for action, (first, *values) in parts:
            if not isinstance(action, Repeated) or not values:
                result += [first, *values]
                continue
            option_values = values[:1] if missing and action.form is None else values
            result += [f"{first}={value}" for value in option_values] + values[len(option_values) :]
        return result + words[end:]

    def _needed(self, options: set[str]) -> int:
        """The least number of arguments of a command with these options."""
        if self.without:
            return int(options.isdisjoint(self.without))
        return sum(not action.option_strings and action.nargs in (None, "+") for action in self._actions)

    def _given(self, words: list[str]) -> Iterator[Given]:
        """The words of a command as options with their values and as arguments."""
        start = 0
        while start < len(words):
            first, end = words[start], start + 1
            action = self._option(first) if is_option(first) else None
            form = action.form if isinstance(action, Repeated) else None
            if (
                action is not None
                and action.nargs != 0
                and (first in action.option_strings or (first.startswith("--") and "=" not in first))
            ):
                while (
                    end < len(words)
                    and not is_option(words[end])
                    and (
                        end == start + 1 or (isinstance(action, Repeated) and (form is None or form.match(words[end])))
                    )
                ):
                    end += 1
            yield Given(action, words[start:end])
            start = end

    def _option(self, word: str) -> argparse.Action | None:
        """The option that a word names, perhaps by its first letters; None where these fit several, which argparse
        says."""
        options, name = self.options(), word.partition("=")[0]
        if not name.startswith("--"):
            name = name if name in options else name[:2]  # -k5
        if name in options:
            return options[name]
        matches = {
            id(action): action for key, action in options.items() if name.startswith("--") and key.startswith(name)
        }
        if not matches:
            self.unknown(word)
        return next(iter(matches.values())) if len(matches) == 1 else None


def is_option(word: str) -> bool:
    """Whether argparse takes a word for the name of an option."""
    return word.startswith("-") and word != "-" and " " not in word.partition("=")[0] and not NUMBER.fullmatch(word)


class PrintCompletion(argparse.Action):
    """Print a script that completes commands in a shell, and stop."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Verbs, options and choices are completed, and names of files where files are asked for."""
        import shtab

        parsers = [parser]
        while parsers:
            for action in parsers.pop()._actions:
                if isinstance(action, argparse._SubParsersAction):
                    parsers += action.choices.values()
                elif (
                    action.nargs != 0
                    and not action.choices
                    and FILES.search(str(action.metavar or action.dest).upper())
                ):
                    action.complete = shtab.FILE  # type: ignore[attr-defined]
        print(shtab.complete(parser, values))
        parser.exit()
