# Every target sets up what it needs: on a fresh machine, `make train` or `make test` is the first and only command.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
LATER_TESTS := $(wildcard tests/e2e tests/integration)
# Whole files to each of three processes, in the order of collection: tests/conftest.py has the longest ones first. On two cores three are
# quicker than two, as these tests wait for processes, phones and browsers more than they compute.
IN_PARALLEL = -n 3 --dist loadfile --no-loadscope-reorder
INSTALL = $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
MEND = look at what pip says above: mostly the network or the disk. Then the same command again, which goes on from here
# Tests start hundreds of processes; without bytecode on disk each of them would compile the whole package anew.
unexport PYTHONDONTWRITEBYTECODE
failed = echo "== setting up .venv failed at $(1) of 3. Try: $(2)" >&2; exit 1

.PHONY: help train test system check unit integration long docs site images wheel clean

help:
	@echo "make train   train on simulated phones (ARGS='--seed 1 ...' are passed on)"
	@echo "make test    check, unit tests, integration and end-to-end tests: about ten minutes on two cores"
	@echo "make long    the tests that make test leaves out: whole runs of minutes, which continuous integration makes too"
	@echo "make system  Chromium for the tests of Chromium phones, where it is missing and can be installed"
	@echo "make check   format, lint (Dockerfiles too), types and the import law"
	@echo "make unit    unit tests"
	@echo "make docs    write docs/configuration.md, metrics.md, dialects.md and the matrix of faults.md anew from the code, then the site"
	@echo "make site    build the documentation site into build/site; a warning is an error"
	@echo "make images  build both container images with Docker and try them"
	@echo "make wheel   build the package into build/dist"
	@echo "make clean   remove .venv and caches; runs/ stays"

train: $(READY)
	@echo "== training on simulated phones"
	@$(BIN)/distrl train configs/first-run.toml $(ARGS)

# Types are checked on one core: unit tests run beside that, and what both print comes as it comes.
test: $(READY) system
	@$(MAKE) --no-print-directory -j 2 check unit
	@$(MAKE) --no-print-directory integration

# Programs that tests use and pip does not have. Root on Debian gets them; anyone else is told what is skipped.
system:
	@command -v chromium-headless-shell chromium chromium-browser google-chrome >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "== installing Chromium"; \
			{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell; } >/dev/null || \
			echo "== no Chromium could be installed: the tests of Chromium phones are skipped" >&2; \
		else echo "== there is no Chromium: its tests are skipped (Debian: apt-get install chromium-headless-shell)" >&2; fi; }

check: $(READY)
	@echo "== checking format, lint, types and imports"
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@test ! -x $(BIN)/hadolint || $(BIN)/hadolint Dockerfile Dockerfile.cuda

unit: $(READY)
	@echo "== unit tests"
	@$(BIN)/pytest -n 2 --dist loadfile tests/unit

integration: $(READY)
	@echo "== integration and end-to-end tests: $(or $(LATER_TESTS),none)"
	@$(if $(LATER_TESTS),$(BIN)/pytest $(IN_PARALLEL) -m "not long" $(LATER_TESTS),true)

long: $(READY) system
	@echo "== long tests"
	@$(BIN)/pytest $(IN_PARALLEL) -m long $(LATER_TESTS)

docs: $(READY)
	@echo "== writing docs/configuration.md"
	@$(BIN)/distrl config reference > docs/configuration.md.new
	@mv docs/configuration.md.new docs/configuration.md
	@echo "== writing docs/metrics.md"
	@$(BIN)/python -m distrl.telemetry.metrics > docs/metrics.md.new
	@mv docs/metrics.md.new docs/metrics.md
	@echo "== writing docs/phone-tables.md"
	@$(BIN)/python -m distrl.devices.sim.schema > docs/phone-tables.md.new
	@mv docs/phone-tables.md.new docs/phone-tables.md
	@echo "== writing docs/dialects.md"
	@$(BIN)/python -m distrl.policies.dialects.reference > docs/dialects.md.new
	@mv docs/dialects.md.new docs/dialects.md
	@echo "== writing the fault matrix of docs/faults.md"
	@$(BIN)/python -m distrl.bench.system.faults docs/faults.md
	@$(MAKE) --no-print-directory site

site: $(READY)
	@echo "== building the site: build/site/index.html"
	@# Not --quiet: it also hides warnings from --strict.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

images:
	@echo "== building the images distrl and distrl-cuda, and trying them"
	docker build -t distrl . && docker run --rm distrl doctor
	docker build -f Dockerfile.cuda -t distrl-cuda . && docker run --rm distrl-cuda --version

wheel: $(READY)
	@echo "== building the package: build/dist"
	@$(BIN)/python -m pip wheel -qq --disable-pip-version-check --no-deps --no-build-isolation -w build/dist .

clean:
	@echo "== removing .venv and caches"
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build src/*.egg-info
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@echo "== setting up .venv: about two minutes and 1.6 GB of disk the first time (more with torch for CUDA)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "distrl needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@echo "   1 of 3: making the virtual environment"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; $(call failed,1,install the venv module of Python (Debian and Ubuntu: apt install python3-venv)); }
	@echo "   2 of 3: installing torch: the largest part; nothing is printed meanwhile"
	@$(INSTALL) torch || { $(call failed,2,$(MEND)); }
	@echo "   3 of 3: installing the other packages and distrl itself"
	@$(INSTALL) -e ".[train,vlm,bench,tensorboard,view,datasets,video,android,ray,miniwob,dev,docs]" || { $(call failed,3,$(MEND)); }
	@touch $@
