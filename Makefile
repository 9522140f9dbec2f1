# make demo   a small real dataset through every format, and the proof that nothing was lost
# make test   lint, types, docs and tests; what continuous integration runs: six minutes
# make soak   all tests and all cases of them, every reader with 10,000 damaged files a format (FUZZ=100000 for more,
#             SEED=2 for others), the laws with many examples: some hours
# make oldest tests of what depends on other packages, with the oldest versions (tests/oldest.txt); `make soak` runs it
# make lint   only the linter, the formatter's check and the types
# make docs   the site of the documentation, in build/site
# make bench  speed beside the peers' and the machine's limit (FULL=1 for the large corpora, CASES='read*', REPS=5)
# make vitals counts of the source, next to those that bench/vitals.json holds, which it lowers
# make clean  remove what these made
#
# Each sets up what it needs in $(VENV), once.

PYTHON ?= python3
VENV ?= .venv
DATA ?= build/bench-data/$(if $(FULL),full,small)
REPS ?= 3
CASES ?= *
FUZZ ?= 10000
SEED ?= 1

# Where it is set, each of the thousand processes that the tests start compiles lading anew: half of a run's time.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
# Of the eleven thousand modules of the peers a twentieth is ever imported, and compiled then.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

.PHONY: demo test collected oldest soak lint docs bench vitals clean

demo: $(VENV)/.lading
	$(BIN)/lading demo

# Two at a time, which do not meet: environments first, then what reads the sources. A module's tests stay with one
# worker: what its fixtures make is made once.
test:
	$(MAKE) --jobs 2 --no-print-directory $(VENV)/.peers $(VENV)/.servers
	$(MAKE) --jobs 2 --no-print-directory lint collected docs
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder

# Compiles, once for all processes of the run, the tests and what they import.
collected: $(VENV)/.peers
	$(BIN)/python -m pytest --collect-only --quiet > /dev/null

soak: oldest $(VENV)/.peers $(VENV)/.servers $(VENV)/.xenna
	LADING_FUZZ=$(FUZZ) LADING_FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -n 2 --dist loadscope

oldest: $(VENV)/.oldest
	$(VENV)/oldest/bin/python -m pytest -p oldest_versions -n 2 --dist loadscope $(addprefix tests/,arrow caches content formats)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

bench: $(VENV)/.peers
	$(BIN)/python bench/corpora.py --data $(DATA) $(if $(FULL),--full)
	$(BIN)/python bench/run.py --data $(DATA) --reps $(REPS) --cases '$(CASES)'

vitals: $(VENV)/.lading
	$(BIN)/python bench/vitals.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.lading: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) --editable '.[docs]'
	touch $@

# The peers that the interop tests and the benches run: pinned, and without their dependencies, since some ask for
# gigabytes that nothing here needs.
$(VENV)/.peers: tests/interop/requirements.txt $(VENV)/.docs
	$(PIP) --no-deps --requirement $<
	touch $@

$(VENV)/.xenna: tests/interop/xenna.txt $(VENV)/.peers
	$(PIP) --no-deps --requirement $<
	touch $@

# The server of object stores that tests start: its packages and those of the peers do not agree on versions.
$(VENV)/.servers: tests/support/servers.txt | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/servers
	$(VENV)/servers/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --requirement $<
	touch $@

$(VENV)/.oldest: tests/oldest.txt pyproject.toml | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/oldest
	$(VENV)/oldest/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]' --constraint $<
	touch $@
