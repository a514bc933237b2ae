# creditscope: `make help` lists what can be made. Set-up happens by itself, once, in .venv.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

# The Python that makes .venv (3.10 or newer).
PYTHON ?= python3
# The index of a particular build of torch (CPU, CUDA, ROCm); empty: the default build.
TORCH_INDEX ?=
# Further arguments.
DEMO_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# A stamp is written when its part of the set-up is complete, and never before.
VENV_READY := $(VENV)/.ready-venv
RUNTIME_READY := $(VENV)/.ready-runtime
DEV_READY := $(VENV)/.ready-dev
DOCS_READY := $(VENV)/.ready-docs
JAX_READY := $(VENV)/.ready-jax
# Exists while .venv is being changed, and names the make that does it. Found with that make gone, it betrays an
# interrupted set-up, and .venv is made anew.
BUSY := $(VENV)/.busy
ifneq ($(filter demo test test-jax test-all test-gpu format bench mutate fuzz faults starts census properties docs figures generated audit-docs board setup,$(MAKECMDGOALS)),)
OTHER := $(shell [ -e $(BUSY) ] || exit 0; other=$$(cat $(BUSY)); \
	if [ -n "$$other" ] && kill -0 "$$other" 2>/dev/null; then echo "$$other"; else rm -rf $(VENV); fi)
ifneq ($(OTHER),)
$(error creditscope: process $(OTHER) is setting up $(VENV) at this moment; wait for it, or stop it and try again)
endif
endif

# The pins; another build of torch brings its own CUDA libraries.
PINS := $(VENV)/constraints.txt
UNPINNED := $(if $(strip $(TORCH_INDEX)),/^nvidia-/d;/^cuda-/d;/^triton==/d)

# $(call install,ARGUMENTS): pip install under the pins. If pip itself refuses (no network, no such version) an
# environment that was complete before is kept; after anything else .venv counts as half-made.
define install
trap 'exit 130' INT TERM HUP; \
echo $$PPID > $(BUSY) && sed '$(UNPINNED)' constraints.txt > $(PINS) || exit 1; \
$(PIP) install -c $(PINS) $(1); status=$$?; \
if [ $$status -eq 0 ] || { [ $$status -le 2 ] && [ -e $(RUNTIME_READY) ]; }; then rm -f $(BUSY); fi; \
[ $$status -eq 0 ] || { echo "creditscope: set-up failed (see above); the next make tries again." >&2; exit 1; }
endef

.PHONY: help
help: ## show this list
	@echo "creditscope: make <target>"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r name text; do \
		printf '  %-16s %s\n' "$$name" "$$text"; done
	@echo "Variables: PYTHON=python3.12  TORCH_INDEX=<url of a torch build>  DEMO_ARGS=...  PYTEST_ARGS=..."

.PHONY: demo
demo: $(RUNTIME_READY) ## run the demonstration (arguments: DEMO_ARGS)
	@$(BIN)/creditscope demo $(DEMO_ARGS)

.PHONY: test
test: $(DEV_READY) ## ruff, mypy, import-linter and pytest (arguments: PYTEST_ARGS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

.PHONY: test-jax
test-jax: $(JAX_READY) ## the tests of the JAX adapter (adds jax, flax and equinox to .venv, 0.5 GB)
	$(ONE_THREAD) $(BIN)/python -m pytest tests/integrations/test_jax.py tests/test_arrays.py $(PYTEST_ARGS)

# Another package to be compared with, beside .venv's own packages: it names versions of torch that are gone.
biotorch = [ -d $(VENV)/peers/biotorch ] || $(PIP) install --no-deps --target $(VENV)/peers biotorch==0.0.16 2>/dev/null

# Extras, and the reasons for which tests may be skipped where one cannot be had.
EXTRAS := ray slurm dask query tensorboard wandb trackio lightning hf timm dev-jax
.PHONY: test-all
test-all: $(DEV_READY) ## the tests with every extra installed and nothing skipped (says what could not be installed)
	@sed '$(UNPINNED)' constraints.txt > $(PINS); allowed=; for extra in $(EXTRAS); do \
		$(PIP) install -c $(PINS) --no-build-isolation -e ".[$$extra]" || { \
			echo "creditscope: extra $$extra could not be installed (see above); its tests are skipped"; \
			allowed="$$allowed,extra $$extra is missing"; }; done; \
	$(BIN)/python -c 'from importlib.util import find_spec; find_spec("torchvision") and __import__("torchvision")' 2> /dev/null || { \
		echo "creditscope: torchvision does not load beside this build of torch and is removed; timm is tested without it"; \
		$(PIP) uninstall -y torchvision; }; \
	{ $(biotorch); } || { \
		echo "creditscope: BioTorch could not be installed; the comparison with it is skipped"; \
		allowed="$$allowed,BioTorch is not there"; }; \
	command -v pdflatex > /dev/null || { \
		echo "creditscope: no pdflatex here (a program of the system, not of pip); its tests are skipped"; \
		allowed="$$allowed,no pdflatex here"; }; \
	$(BIN)/python -c 'from tests.e2e.browsing import CHROMIUM; raise SystemExit(CHROMIUM is None)' || { \
		echo "creditscope: no chromium here (a program of the system, not of pip); its tests are skipped"; \
		allowed="$$allowed,NO CHROMIUM FOUND"; }; \
	$(ONE_THREAD) CREDITSCOPE_MAY_SKIP="$$allowed" $(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

.PHONY: test-gpu
test-gpu: $(DEV_READY) ## on the accelerator that is there: the CPU's numbers within tolerances, and speed (skips where there is none)
	@$(BIN)/python -m tests.device.on_hardware

.PHONY: format
format: $(DEV_READY) ## settle questions of style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: bench
bench: $(DEV_READY) ## run the benchmarks (arguments: BENCH_ARGS)
	@$(biotorch) || echo "creditscope: BioTorch could not be installed; the comparison with it is left out"
	$(ONE_THREAD) PYTHONPATH=$(VENV)/peers $(BIN)/python -W ignore -m benchmarks $(BENCH_ARGS)

.PHONY: example-pcx example-fabricpc
example-pcx: ## audit a predictive-coding network of pcx (makes an environment of its own, with its version of jax)
	@$(PYTHON) examples/environment.py pcx
example-fabricpc: ## the same for a network of FabricPC
	@$(PYTHON) examples/environment.py fabricpc

.PHONY: mutate
mutate: $(DEV_READY) ## put defects into a copy of the code; every one must be caught by its test
	$(ONE_THREAD) $(BIN)/python tests/trust/mutate.py --record

.PHONY: fuzz
fuzz: $(DEV_READY) ## 20,000 damaged and hostile files; all must be read or refused
	$(ONE_THREAD) $(BIN)/python tests/trust/fuzz.py 20000 --record

.PHONY: faults
faults: $(DEV_READY) ## kills and a full disk at every write, 100 faults by chance; nothing may be lost
	$(ONE_THREAD) $(BIN)/python tests/trust/faults.py 100 --record

.PHONY: properties
properties: $(DEV_READY) ## 10 minutes of networks drawn from a grammar; none may be measured wrongly
	$(ONE_THREAD) $(BIN)/python tests/trust/odd_property.py 10

.PHONY: census
census: $(DEV_READY) ## every architecture of Hugging Face transformers, tiny; the table of docs/census.md (an hour)
	$(ONE_THREAD) $(BIN)/python tests/trust/census.py --write docs/census.md

.PHONY: starts
starts: $(DEV_READY) ## 200 times 2, 4 and 8 drivers at once on a new store; all must succeed
	$(ONE_THREAD) $(BIN)/python tests/trust/starts.py 200 --record

.PHONY: docs
docs: $(DOCS_READY) ## build the documentation in docs/_build/html
	$(BIN)/sphinx-build -q -W --keep-going -E -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

.PHONY: figures
figures: $(RUNTIME_READY) ## draw the figures of the documentation from results/ and docs/images/profiles.json
	@$(BIN)/python docs/figures.py

.PHONY: generated
generated: $(RUNTIME_READY) ## write into docs/ what the pages take from the code (options, commands, studies)
	@$(BIN)/python docs/_ext/generated_pages.py

.PHONY: audit-docs
audit-docs: $(RUNTIME_READY) ## docs/audit.md, docs/field.md, their CSV and figures from results/; every network in docs/_build/audit.html
	@$(BIN)/python audits/arxiv-2606.21126/page.py
	@$(BIN)/python audits/field/page.py
	@mkdir -p docs/_build
	@$(BIN)/creditscope audit audits/arxiv-2606.21126 --store results --html docs/_build/audit-lines.html > /dev/null
	@$(BIN)/creditscope report results --html docs/_build/audit.html > /dev/null
	@echo "docs/audit.md, docs/planned.md, docs/audit.csv, docs/images/audit.svg, docs/field.md, docs/field.csv, docs/images/field.svg, docs/_build/audit.html, docs/_build/audit-lines.html"

.PHONY: board
board: $(RUNTIME_READY) ## check the claims in board/ and build their page in docs/_build/board
	@$(BIN)/creditscope claim check board
	@mkdir -p docs/_build
	@$(BIN)/creditscope board build board --out docs/_build/board

.PHONY: setup
setup: $(DEV_READY) ## set up .venv for development, and nothing else

.PHONY: clean
clean: ## remove .venv, caches and build products (never results)
	rm -rf $(VENV) examples/*/.venv build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .coverage htmlcov
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV_READY):
	@version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || { \
		echo "creditscope: '$(PYTHON)' does not run; name a Python 3.10 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "creditscope: needs Python 3.10 or newer, '$(PYTHON)' is $$version; name another: make PYTHON=python3.12 ..." >&2; \
		exit 1; }; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "creditscope: this Python cannot make virtual environments; on Debian or Ubuntu: apt-get install python$$version-venv" >&2; \
		exit 1; }; \
	echo "Setting up $(VENV) (first time: a few minutes) ..."; \
	trap 'rm -rf $(VENV); exit 130' INT TERM HUP; \
	rm -rf $(VENV) && mkdir $(VENV) && echo $$PPID > $(BUSY) && $(PYTHON) -m venv $(VENV) && touch $@ || { \
		rm -rf $(VENV); echo "creditscope: '$(PYTHON) -m venv $(VENV)' failed (see above)." >&2; exit 1; }

$(RUNTIME_READY): pyproject.toml constraints.txt | $(VENV_READY)
	@echo "Installing creditscope and what it needs ..."
ifneq ($(strip $(TORCH_INDEX)),)
	@$(call install,--no-deps --index-url $(TORCH_INDEX) torch)
endif
	@$(call install,hatchling editables)
	@$(call install,--no-build-isolation -e .)
	@touch $@

$(DEV_READY): $(RUNTIME_READY)
	@echo "Installing the development tools ..."
	@$(call install,--no-build-isolation -e '.[dev]')
	@touch $@

$(JAX_READY): $(DEV_READY)
	@echo "Installing jax, flax and equinox ..."
	@$(call install,--no-build-isolation -e '.[dev-jax]')
	@touch $@

$(DOCS_READY): $(RUNTIME_READY)
	@echo "Installing the documentation tools ..."
	@$(call install,--no-build-isolation -e '.[docs]')
	@touch $@
