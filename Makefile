# Every target sets itself up in a fresh clone: Python 3.11+ and Java 17+ are all it asks for.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench soak clean setup java jars help
.DEFAULT_GOAL := help

help: ## what can be made
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: $(READY) ## the virtual environment with every pinned package

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is missing: install it (Debian: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1), but Tidewise needs 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 2; }
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "The venv module is missing: install it (Debian: apt-get install python3-venv)"; exit 2; }
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

java: $(READY)
	@$(BIN)/python -m tidewise.host.java

jars: java
	@$(BIN)/python -m tidewise.kafka.jars

demo: java ## a morning of load on real Spark in four minutes, tuned while you look on (needs Java 17)
	@$(BIN)/tidewise demo

# The JVMs of tests live for seconds: what their second compiler would do for them never pays, and an archive of the
# classes of Spark saves a third of their start. Without the archive they only start more slowly. The room for code is
# that of a usual JVM: with one compiler it would be a fifth, and a Spark that many tests share dies when it is full.
ARCHIVE := $(VENV)/spark.jsa
QUICK := -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -Xlog:disable -Xlog:all=error:stderr

$(ARCHIVE): $(READY) | java
	@echo "Archiving the classes of Spark for the tests (once) ..."
	@JDK_JAVA_OPTIONS="$(QUICK)" $(BIN)/python -m tests.class_archive $@ >/dev/null 2>&1 || echo "... which did not work; they start without it."

test: $(READY) ## lint, types, layers and all tests but the slow proofs
	@$(MAKE) --no-print-directory --jobs=2 jars lint $(ARCHIVE)
	@JDK_JAVA_OPTIONS='$(QUICK) -XX:SharedArchiveFile="$(CURDIR)/$(ARCHIVE)"' $(BIN)/pytest -n 3 --dist loadgroup -m "not soak" --durations=15

lint: $(READY) ## style, types and the layers of the house
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: jars ## measure, and write docs/benchmarks.md (make bench TRACES=folder: on released traces)
	@$(BIN)/python -m bench $(if $(TRACES),--traces $(TRACES))

soak: jars ## the slow proofs
	@$(BIN)/pytest -m soak
	@$(BIN)/pytest -n 2 --dist loadgroup -m "hypothesis and not soak" --hypothesis-profile=thorough

clean: ## remove everything that was made here
	rm -rf $(VENV) $(VENV)-3.5 runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +
