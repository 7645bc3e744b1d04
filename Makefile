# Two commands matter: `make demo` and `make test`. Each sets up everything it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs

.PHONY: demo test test-more simulation setup-tests lint types unit bench serve experiments-small docs constraints wheel clean help

help:
	@echo "make demo   set up, then raw GPS to a report on a small simulated town (minutes, two cores)"
	@echo "make test   set up, then lint, types and tests; without a browser or PostgreSQL their tests are skipped"
	@echo "make test-more   state machines of the store and of live scores, made-up requests and fuzzing, for much longer"
	@echo "make simulation SEEDS=500   simulated services with kills, torn writes, lost messages and wrong clocks; for nights"
	@echo "make setup-tests   install a browser and PostgreSQL for those tests (Debian, Ubuntu; as root)"
	@echo "make serve  set up, then the analyst's page for the demo's run (after make demo)"
	@echo "make bench  set up, then the benchmarks that run on a CPU"
	@echo "make experiments-small   set up, then the paper's seven experiments at a small size"
	@echo "make docs   set up, then the pages of docs/ with search, in site/"
	@echo "make wheel  set up, then a wheel in dist/; make constraints pins what is installed"
	@echo "make clean  remove the environment and everything that was made"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet -c constraints.txt -e '.[geo,knn,plots,lab,service,ray,dev]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/ustad demo --out runs/demo

# Types are checked beside the tests: whenever one of the two test processes waits, a core is free.
test: lint
	@$(MAKE) --no-print-directory -j2 types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadscope --no-loadscope-reorder --durations=20

# The same state machines and fuzzing as in `make test`, with other examples in every run and for much longer.
test-more: $(STAMP)
	OMP_NUM_THREADS=1 USTAD_MORE=50 $(BIN)/pytest -n 2 --hypothesis-profile search \
	  tests/service/test_store_machine.py tests/service/test_openapi.py tests/scoring/test_live_machine.py tests/fuzz

# Whole services from one seed each, for DAYS simulated days; a failing seed runs again bit for bit with FIRST=seed SEEDS=1.
SEEDS ?= 500
DAYS ?= 20
FIRST ?= 1
simulation: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.simulated_service --first $(FIRST) --seeds $(SEEDS) --days $(DAYS)

# System packages: a browser and a PostgreSQL server. `make test` runs without them and skips the tests that need them.
setup-tests:
	sh tests/service/requirements.sh

serve: $(STAMP)
	$(BIN)/ustad serve runs/demo

experiments-small: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/ustad lab experiment all --size small --agents 40 --anomalous-share 0.2 --seeds 1-2 --workers 2 \
	  --device cpu --out runs/experiments-small --work runs/experiments-small/work
	@echo "the page: runs/experiments-small/results.md"

bench: $(STAMP)
	@for job in extraction simulation training scoring report history service engine whole_verbs; do $(BIN)/python benchmarks/$$job.py || exit 1; done

$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $(DOCS_STAMP)

docs: $(DOCS_STAMP)
	$(BIN)/mkdocs build --quiet
	@echo "built: $(PYTHON) -m http.server -d site 8000, then http://localhost:8000 (pages open from the disk too, without the search)"

# What is installed and passed the tests becomes what is pinned.
constraints: $(DOCS_STAMP)
	@{ grep '^#' constraints.txt; $(BIN)/pip freeze --exclude-editable | sed 's/+.*//' | sort -f; } > constraints.new
	@mv constraints.new constraints.txt

wheel: $(STAMP)
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/ustad-*.whl

clean:
	rm -rf $(VENV) runs build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
