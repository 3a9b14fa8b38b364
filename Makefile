# make demo   train, evaluate and search on the bundled encyclopedia
# make test   every test; make check: lint and types; make fast: tests without the slow ones
# TORCH=cuda  let pip choose PyTorch's build instead of the pinned one (once, before the first target)

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
TORCH ?= pinned

.PHONY: demo test fast check clean

demo: $(READY)
	$(BIN)/interlingua demo

test: $(READY)
	$(BIN)/python -m pytest

fast: $(READY)
	$(BIN)/python -m pytest -m "not slow"

check: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
ifeq ($(TORCH),pinned)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
else
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
endif
	touch $(READY)

clean:
	rm -rf .venv runs
