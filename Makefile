# make demo   train, evaluate and search on the bundled encyclopedia
# make test   the tests, on two cores in half the time (make test CORES= for one process)
# make torture   the hard ones: processes that are killed, power cuts, full disks, hostile requests, a loaded server,
#                nodes that go;
#                TRIES=60 SEED=1 for more trials of those that are drawn, and others
# make fast   the tests without the slow ones; make check: lint, format and types; make format: bring into format
# make docs   the guide as a site in build/site; a broken link is an error
# make bench DATA=folder   the benchmarks of docs/benchmarks.md, written into it; without DATA what needs none
# make default-model MODEL=runs/default/static/model   put a trained model into the package
# TORCH=cuda  let pip choose PyTorch's build instead of the pinned one (once, before the first target)

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
TORCH ?= pinned

TRIES ?= 5
SEED ?= 0
CORES ?= --numprocesses auto --dist worksteal

# Tests start hundreds of processes. Without compiled files on the disk each of them compiles every module again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test torture fast check format docs bench default-model clean

demo: $(READY)
	$(BIN)/interlingua demo

test: $(READY)
	$(BIN)/python -m pytest $(CORES) --ignore=tests/torture

torture: $(READY)
	INTERLINGUA_TORTURE=$(TRIES) INTERLINGUA_TORTURE_SEED=$(SEED) $(BIN)/python -m pytest $(CORES) tests/torture

fast: $(READY)
	$(BIN)/python -m pytest $(CORES) --ignore=tests/torture -m "not slow"

check: $(READY)
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

docs: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(READY)
	$(BIN)/python benchmarks/bench.py --data "$(DATA)"

BOX := src/interlingua/models/default

default-model: $(READY)
	rm -f $(BOX)/fingerprint.json
	$(BIN)/python -c "from interlingua import Encoder; Encoder.load('$(MODEL)').save('$(BOX).new')"
	cp -r $(BOX).new/. $(BOX)/ && rm -r $(BOX).new
	$(BIN)/python -c "import json; from interlingua import Encoder; from interlingua.models.folder import fingerprint; \
	    json.dump(fingerprint(Encoder.load('default')), open('$(BOX)/fingerprint.json', 'w'), indent=1)"

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
