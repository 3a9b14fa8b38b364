"""Table 1 of Hu et al. 2023 is arithmetic: it must come out exactly."""

import pytest

from interlingua.cli import main
from interlingua.experiments.spec import compute_table, read_table, steps_of


@pytest.mark.parametrize(
    ("questions", "batch", "epochs", "devices", "steps"),
    [
        (58_880, 48, 20, 8, 24_540),  # the paper: 7,360 questions a device, 1,227 batches of 6
        (58_880, 48, 1, 1, 1_227),
        (48, 48, 3, 8, 3),
        (49, 48, 1, 8, 2),  # one question more fills a second batch on one device, and all step together
    ],
)
def test_steps_of_sharded_epochs(questions, batch, epochs, devices, steps):
    assert steps_of(questions, batch, epochs, devices) == steps


def test_table_1_as_printed():
    table = compute_table(read_table("hu2023/table1"))
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:-1]]
        for cells in (line.split("|") for line in table.splitlines())
        if len(cells) == 7
    }
    assert "unit: 48 × 24,540 steps" in table
    assert rows["InfoXLM"] == ["2,048", "200,000", "347.7", "347"]
    assert rows["LaBSE"] == ["8,192", "1,800,000", "12,518.3", "12,518"]
    assert rows["XLM-R + semantic loss"] == ["48", "24,540", "1.0", "1"]


def test_reproduce_prints_it(capsys):
    assert main(["reproduce", "hu2023/table1"]) == 0
    assert "12,518.3" in capsys.readouterr().out
