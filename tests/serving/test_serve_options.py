"""The options of `interlingua serve`: its help and the page show the class that checks them."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from interlingua.cli import build_parser
from interlingua.serving.service import ServeSettings

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
MADE = {"token", "read_token", "tokens", "rerank_model", "aliases", "names"}
"""Fields that are made of what the options name: files with tokens, models, hosts."""
UNSAID = {"delay", "check_pace", "max_body"}
"""Fields without an option."""
FIELDS = sorted(ServeSettings.model_fields.keys() - MADE - UNSAID)
WITHOUT = {"rate": "any number", "connections_per_address": "half of all", "log_queries": "off"}


def options() -> dict[str, argparse.Action]:
    parser = build_parser()
    verbs = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {action.dest: action for action in verbs.choices["serve"]._actions}


def shown(name: str) -> str:
    """What stands for the default of a field."""
    return WITHOUT.get(name) or f"{ServeSettings.model_fields[name].default:g}"


@pytest.mark.parametrize("name", FIELDS)
def test_help_says_of_an_option_what_its_field_says(name: str) -> None:
    option, field = options()[name], ServeSettings.model_fields[name]
    assert option.default == field.default
    assert option.help == field.description + ("" if name == "log_queries" else f" ({shown(name)})")


@pytest.mark.parametrize("name", FIELDS)
def test_the_page_says_of_an_option_what_its_field_says(name: str) -> None:
    row = re.search(
        rf"^\| `--{name.replace('_', '-')}(?: [A-Z]+)?` \| (.*) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert row is not None
    said = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", row[2])
    assert (row[1], said) == (shown(name), ServeSettings.model_fields[name].description)


def test_the_page_has_a_row_for_every_option() -> None:
    table = PAGE.read_text("utf-8").partition("\n\nA port in use")[0]
    named = {option for action in options().values() for option in action.option_strings}
    own = named - {"-h", "--help", "--quiet", "--debug", "--version"}
    assert [option for option in sorted(own) if not re.search(rf"`{option}[` ]", table)] == []
