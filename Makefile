# The one door. `make` alone lists what there is; each target sets up what it needs in a virtual environment and a
# second call is quick. Stamps in $(VENV) remember what is installed; the built core is its own stamp.

PYTHON ?= python3
VENV ?= .venv
# More arguments for the tool a target runs, as in: make test ARGS="-k records"
ARGS ?=

# -qq: pip says nothing unless it fails, and then says why.
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -qq
CORE := src/neuron_ds/_core.abi3.so
CORE_SOURCES := $(wildcard csrc/*.[ch] csrc/python/*.[ch])
# Everything clang-format looks after: what is generated looks after itself.
C_FILES = $(filter-out csrc/nds_layout.h,$(shell find csrc tests benches fuzz -name '*.[ch]' 2>/dev/null))

SANITIZE := build/sanitize
SANITIZE_FLAGS := -std=c11 -O1 -g -D_GNU_SOURCE -Wall -Wextra -fno-omit-frame-pointer -fno-sanitize-recover=all -pthread -Icsrc
export ASAN_OPTIONS ?= detect_leaks=1:abort_on_error=1
export UBSAN_OPTIONS ?= print_stacktrace=1
export TSAN_OPTIONS ?= halt_on_error=1:second_deadlock_stack=1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test proofs slow sanitize bench test-kernel pictures web docs lint format dist clean distclean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: $(CORE) ## simulated producers and what a monitor sees of them; needs no accelerator, ends by itself
	@$(VENV)/bin/neuron-ds demo $(ARGS)

test: $(CORE) $(VENV)/.extra-test ## the tests, without the slow proofs
	@$(PY) tools/run_tests.py -m "not slow" $(ARGS)

proofs: sanitize slow bench ## everything that takes longer: the next three

slow: $(CORE) $(VENV)/.extra-test ## the slow proofs: kill storms, long races
	@$(PY) -m pytest -m slow $(ARGS)

sanitize: ## the C core's own tests and fuzzer under the address, undefined-behaviour and thread sanitizers
	@$(PYTHON) tools/toolchain.py
	@set -e; mkdir -p $(SANITIZE); \
	try() { \
	    name=$$(basename "$$1" .c); \
	    echo "$$name under -fsanitize=$$2"; \
	    $(CC) $(SANITIZE_FLAGS) -fsanitize=$$2 -o $(SANITIZE)/$$name "$$1" csrc/*.c; \
	    $(SANITIZE)/$$name; \
	}; \
	try csrc/tests/test_core.c address,undefined; \
	try csrc/tests/test_races.c thread; \
	try fuzz/fuzz_core.c address,undefined

bench: $(CORE) $(VENV)/.extra-bench ## the benches, each figure beside its limit; fails on a miss
	@mkdir -p build
	@$(PY) -m benches --json build/bench.json $(ARGS)

test-kernel: $(CORE) ## the driver's rules on a real kernel in QEMU; says plainly what is missing
	@$(PY) tests/kernel/run_guest.py $(ARGS)

pictures: $(CORE) $(VENV)/.extra-test ## draw the pictures of README and docs anew
	@$(PY) tools/picture.py docs/pictures/demo.svg
	@$(PY) tools/picture_top.py docs/pictures/top.svg
	@$(PY) tools/picture_web.py docs/pictures

web: $(VENV)/.made ## fetch what the web page uses of others anew; the same bytes as long as the version is the same
	@$(PY) tools/vendor_web.py

docs: $(VENV)/.extra-docs ## the documentation as a site in site/
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet --site-dir site $(ARGS)
	@echo "site/index.html"

lint: $(CORE) $(VENV)/.extra-lint $(VENV)/.extra-test ## style, types, the stub against the built core, the direction of imports
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(PY) -m mypy.stubtest --concise --allowlist tools/stub_exceptions.txt --ignore-unused-allowlist neuron_ds._core
	@$(VENV)/bin/lint-imports --no-logo
	@$(VENV)/bin/clang-format --dry-run --Werror $(C_FILES)

format: $(VENV)/.extra-lint ## rewrite Python and C in the house's style
	@$(VENV)/bin/ruff check --fix --exit-zero --quiet . >/dev/null
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/clang-format -i $(C_FILES)

dist: $(VENV)/.made ## the source archive, the wheel built from it, and both tried in a fresh environment
	@rm -rf dist build/try
	@$(PY) -c 'from setuptools import build_meta; build_meta.build_sdist("dist")' >$(VENV)/sdist.log 2>&1 || { cat $(VENV)/sdist.log; exit 1; }
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist dist/*.tar.gz
	@$(PY) tools/check_dist.py dist

clean: ## remove what was built, keep the virtual environment
	@rm -rf build dist site src/*.egg-info $(CORE)
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## remove the virtual environment too
	@rm -rf $(VENV)

# --- what the targets above stand on

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON): install python3 (3.11 or newer), or name one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) tools/toolchain.py
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install 'setuptools>=77'
	@touch $@

# The package itself, editable. It builds the core on the way.
$(VENV)/.core: pyproject.toml setup.py | $(VENV)/.made
	@$(PIP) install --no-build-isolation --editable .
	@touch $@

$(CORE): $(CORE_SOURCES) | $(VENV)/.core
	@$(PY) tools/toolchain.py
	@$(PY) setup.py --quiet build_ext --inplace
	@touch $@

# What an extra needs, read from pyproject.toml, so that a new extra doesn't build the package again.
$(VENV)/.extra-%: pyproject.toml | $(VENV)/.made
	@$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$*"], sep="\n")' >$(VENV)/$*.txt
	@$(PIP) install -r $(VENV)/$*.txt
	@touch $@
