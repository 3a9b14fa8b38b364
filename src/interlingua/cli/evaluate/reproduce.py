"""`interlingua reproduce`: a paper's table with one command."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

NAMES = ("reproduce",)


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("reproduce", help="run a paper's table and set ours beside its numbers")
    parser.add_argument("table", help="such as hu2023/table2")
    parser.add_argument("--scale", default="mini", help="paper (public data, real sizes), mini (two cores), … (mini)")
    parser.add_argument("--data", metavar="DIR", help="what {data} in the table's paths stands for")
    parser.add_argument("--out", default="runs", metavar="DIR", help="where runs and results go (runs)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds a row (1)")
    parser.add_argument("--device", help="cpu, cuda, … (default: a GPU if there is one)")
    parser.add_argument(
        "--rows",
        action=Repeated,
        metavar="ROW",
        help="only these rows, to share the work among machines; their report is called …-rows.md",
    )
    parser.add_argument("--columns", action=Repeated, metavar="COLUMN", help="only these columns, and only their data")
    parser.add_argument(
        "--set",
        action=Repeated,
        default=[],
        metavar="KEY=VALUE",
        help="change the recipe of every row, such as training.precision=bf16; the report says so",
    )
    parser.add_argument(
        "--plan", action="store_true", help="check recipes and data, and say what would run at what cost"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run, print, and write Markdown beside the runs."""
    from interlingua.experiments.plan import plan
    from interlingua.experiments.present import draw, draw_projections, present
    from interlingua.experiments.run import Reproduction
    from interlingua.experiments.spec import compute_table, read_table
    from interlingua.files import atomic_write

    table = read_table(arguments.table, arguments.set)
    if isinstance(table, dict):
        print(compute_table(table))
        return
    work = Reproduction(
        table,
        arguments.table,
        arguments.scale,
        arguments.data,
        Path(arguments.out),
        arguments.seeds,
        arguments.device,
        arguments.rows,
        arguments.columns,
    )
    if arguments.plan:
        text, lacking = plan(work)
        print(text, end="")
        if lacking:
            raise BadInput(f"{arguments.table}: data is missing or malformed: {'; '.join(lacking)}.")
        return
    results = work.run()
    # a report of some rows or columns must not take the place of the whole table's
    part = f"{'-rows' if arguments.rows else ''}{'-columns' if arguments.columns else ''}"
    stem = f"{work.stem}-{arguments.scale}{part}"
    projections = draw_projections(work, work.out / stem)
    if not work.processes.first:  # under torchrun one process reports
        return
    text = present(table, arguments.scale, results, problems=work.problems, calibrations=work.calibrations)
    with atomic_write(work.out / f"{stem}.md") as stream:
        stream.write(text)
    print(text)
    for picture in (*draw(table, arguments.scale, results, work.out / stem), *projections):
        print(picture)
    if work.problems:
        raise BadInput(f"{arguments.table}: the table is printed, and is not complete: {'; '.join(work.problems)}")
