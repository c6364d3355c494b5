# Every target sets itself up: a fresh clone needs Python 3.11 or later and a network, nothing else.

PYTHON ?= python3
ARGS ?=

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.ready-dev
LOCK := requirements/lock.txt
DEV_LOCK := requirements/dev.txt
AUDIT_LOCK := requirements/audit.txt
TORCH := requirements/torch.txt
OLDER := requirements/older.txt
TRITON := requirements/triton.txt
PIP := $(BIN)/python -m pip install --progress-bar off
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

export PYTHONUNBUFFERED = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow chaos check docs page page-types study-page bench lock audit clean

help:
	@echo "make demo         measure a small model, write a run folder and its figures"
	@echo "make test         run the tests, on all cores (ARGS='-k name' is handed to pytest)"
	@echo "make test-slow    run those that take longer: the page in a browser, real servers, kills at every write"
	@echo "make chaos        kill, damage, starve and attack it for an hour; docs/reliability.md has what came of it"
	@echo "make check        lint, formatting, types, the direction of imports, and that the built page is not stale;"
	@echo "                  where Node and web/node_modules are present, lint and unit tests of the page as well"
	@echo "make docs         build the site from docs/ into docs/_build; a warning fails it (ARGS='-b linkcheck' tries every link)"
	@echo "make page         build the page of report and explorer from web/ (needs Node 20.19 or later; users do not)"
	@echo "make page-types   write the types of what the page is sent from Python into web/src/data/types.ts"
	@echo "make study-page   write docs/study.md and the JSON Schema of study files from the models"
	@echo "make bench        time and memory beside other tools (ARGS='--lengths 128 --rounds 3'); half an hour"
	@echo "make lock         write $(LOCK) and $(DEV_LOCK) from pyproject.toml, and $(AUDIT_LOCK)"
	@echo "                  (ARGS=--upgrade takes the newest versions)"
	@echo "make audit        ask PyPI's advisories about every package of the locks; fails where one is not answered for"
	@echo "make clean        remove $(VENV) and caches; run folders stay"
	@echo "Each of them first installs into $(VENV) what it needs; the tools of tests and checks come with those."
	@echo "PYTHON=python3.12 chooses the interpreter."

demo: $(READY)
	@$(BIN)/fillerscope demo

test: $(DEV_READY)
	@$(require-browser)
	@$(PYTEST) -m 'not slow' $(ARGS)

test-slow: $(DEV_READY)
	@$(require-browser)
	@$(PYTEST) -m slow $(ARGS)

chaos: $(DEV_READY)
	@$(require-browser)
	@FILLERSCOPE_CHAOS=1 $(PYTEST) --timeout 4500 -m chaos $(ARGS)

check: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=src:benchmarks $(BIN)/mypy --ignore-missing-imports --explicit-package-bases --no-warn-unused-ignores benchmarks/*.py
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_architecture.py tests/test_setup.py tests/report/test_bundle.py
	@$(check-page)

page: page-types
	cd web && npm ci --no-audit --no-fund && npm run build

page-types: $(DEV_READY)
	$(BIN)/python web/page_types.py

study-page: $(READY)
	$(BIN)/python docs/study_page.py

docs: $(READY)
	@$(BIN)/python -m pip list --format=freeze --exclude-editable > $(VENV)/installed.txt
	@set -o pipefail; $(PIP) -c $(VENV)/installed.txt -e '.[docs]' | $(show-progress)
	@$(BIN)/python -m sphinx -q --fail-on-warning --keep-going $(ARGS) docs docs/_build
	@echo "the site is in docs/_build/index.html"

# The other tools come with much, so only this target installs them; what is installed keeps its version.
bench: $(DEV_READY)
	@$(BIN)/python -m pip list --format=freeze --exclude-editable > $(VENV)/installed.txt
	@set -o pipefail; $(PIP) -c $(VENV)/installed.txt -e '.[bench]' | $(show-progress)
	@$(BIN)/python benchmarks/capture.py $(ARGS)

# One version of each package for all Pythons and systems, with the hashes of all its files. Versions stay where
# they still fit. torch and what comes with it are taken out: see requirements/torch.txt. The second file adds what
# development needs to the first one, whose versions bind it.
UV := uv==0.13.7
COMPILE = $(VENV)/lock/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 \
  --fork-strategy fewest --generate-hashes --custom-compile-command 'make lock' -c $(TORCH) -c $(OLDER)
without-torch = awk '/^[^ \#]/ { skip = /^(torch|triton|nvidia-[a-z0-9-]*|cuda-[a-z0-9-]*)==/ } !skip'
without-those-of = awk 'NR == FNR { if (/^[^ \#]/) seen[$$0]; next } /^[^ \#]/ { skip = $$0 in seen } !skip'

lock:
	@$(require-python)
	@$(require-venv)
	@$(PYTHON) -m venv $(VENV)/lock && $(VENV)/lock/bin/python -m pip install --quiet '$(UV)'
	@$(COMPILE) --group build -o $(LOCK) $(ARGS) pyproject.toml
	@$(without-torch) $(LOCK) > $(VENV)/lock.txt && cp $(VENV)/lock.txt $(LOCK)
	@$(COMPILE) --extra dev --group build -c $(LOCK) -o $(DEV_LOCK) $(ARGS) pyproject.toml
	@$(without-torch) $(DEV_LOCK) > $(VENV)/dev.txt && $(without-those-of) $(LOCK) $(VENV)/dev.txt > $(DEV_LOCK)
	@echo pip-audit | $(COMPILE) -o $(AUDIT_LOCK) $(ARGS) -
	@for file in $(LOCK) $(DEV_LOCK) $(AUDIT_LOCK); do echo "$$file pins $$(grep -c '^[a-z]' $$file) packages"; done

# The tool has an environment of its own, whose packages are pinned and asked about as well. Without --strict it passes
# packages that the service does not answer for.
AUDIT_READY := $(VENV)/audit/.ready
PIP_AUDIT = $(VENV)/audit/bin/pip-audit --strict --progress-spinner off --disable-pip

audit: $(AUDIT_READY)
	@$(PIP_AUDIT) --require-hashes -r $(LOCK) -r $(DEV_LOCK) -r $(AUDIT_LOCK) && $(PIP_AUDIT) --no-deps -r $(TORCH) || { \
	  echo "the audit failed: what stands above has known weaknesses, or PyPI's advisory service was not reached or" \
	    "did not answer for it; nothing was found to be sound" >&2; exit 1; }

$(AUDIT_READY): $(AUDIT_LOCK)
	@$(require-python)
	@$(require-venv)
	@$(PYTHON) -m venv --clear $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip install --quiet --require-hashes --no-deps -r $(AUDIT_LOCK)
	@touch $@

clean:
	rm -rf $(VENV) dist docs/_build .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Made once, and again when the requirements change. The stamp is written last, so an interrupted set-up
# is taken up again; an environment whose interpreter has gone is made anew. All but torch is checked against
# the hashes of the lock. torch comes after it, because a build of torch finds its other requirements there.
# Tests and checks need more, which completes the same environment: a newcomer who runs the demo does not wait for it.
$(READY): pyproject.toml $(LOCK) $(TORCH)
	@$(require-python)
	@$(require-venv)
	@if ! $(BIN)/python -c 'import pip; $(recent)' 2>/dev/null; then \
	  echo "[1/5] making $(VENV) with $$($(PYTHON) --version)"; \
	  $(PYTHON) -m venv --clear $(VENV); \
	else echo "[1/5] keeping $(VENV)"; fi
	@echo "[2/5] bringing pip up to date"
	@$(only-pip) $(LOCK) > $(VENV)/pip.txt && $(PIP) --quiet --require-hashes --no-deps -r $(VENV)/pip.txt
	@echo "[3/5] installing the packages of the lock: some minutes the first time, a dot for each package"
	@set -o pipefail; $(PIP) --require-hashes --no-deps -r $(LOCK) | $(show-progress)
	@echo "[4/5] installing torch"
	@set -o pipefail; $(PIP) -r $(TORCH) | $(show-progress)
	@echo "[5/5] installing fillerscope"
	@$(PIP) --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(DEV_READY): $(READY) $(DEV_LOCK) $(TRITON)
	@echo "[1/2] installing the tools of tests and checks"
	@set -o pipefail; $(PIP) --require-hashes --no-deps -r $(DEV_LOCK) | $(show-progress)
	@echo "[2/2] installing triton, where torch did not bring it"
	@set -o pipefail; $(PIP) -r $(TORCH) -r $(TRITON) | $(show-progress)
	@touch $@

# pip goes first: it should not replace itself while it installs the others.
only-pip = awk '/^[^ \#]/ { ours = /^pip==/ } ours'

recent = import sys; sys.exit(sys.version_info < (3, 11))

define require-python
if ! command -v $(PYTHON) >/dev/null; then \
  echo "$(PYTHON) was not found: install Python 3.11 or later, or name one with PYTHON=/path/to/python3" >&2; exit 1; \
elif ! $(PYTHON) -c '$(recent)'; then \
  echo "fillerscope needs Python 3.11 or later, $(PYTHON) is $$($(PYTHON) --version 2>&1): name another with PYTHON=python3.12" >&2; exit 1; \
fi
endef

# Debian and Ubuntu ship Python without the part that makes environments.
has-venv = $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null

define require-venv
if ! $(has-venv) && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
  echo "$(PYTHON) cannot make environments: installing python3-venv with apt-get"; \
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null; \
fi; \
if ! $(has-venv); then \
  echo "$(PYTHON) cannot make environments: install python3-venv (Debian, Ubuntu: sudo apt-get install python3-venv)" >&2; exit 1; \
fi
endef

# Tests drive the page in a real browser. CI gets one; elsewhere those tests say what they miss and are skipped.
define require-browser
if [ -n "$$CI" ] && ! command -v chromium >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
  echo "installing chromium for the tests of the page"; \
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; \
fi
endef

# The page has tools of its own, which only those who change it need: `make page` installs them.
define check-page
if command -v npm >/dev/null && [ -d web/node_modules/eslint ]; then \
  cd web && npm run --silent lint && npm test --silent; \
else \
  echo "the page in web/ was not linted and its unit tests not run: they need Node 20.19 or later and \`make page\`"; \
fi
endef

# pip's own account is long; dots, the large downloads and the last line tell enough. Errors come unfiltered.
define show-progress
awk '/^ *Collecting / { printf "."; fflush() } \
     /^ *Downloading .*[0-9][0-9]\.[0-9] MB/ { sub(/-.*/, "", $$2); printf " %s (%s MB) ", $$2, substr($$3, 2); fflush() } \
     /^Installing collected packages/ { printf "\n      unpacking\n"; fflush() } \
     /^Successfully installed/ { print "      done" }'
endef
