# Each target brings what it needs: the tools in .venv, asv's environment and everything measured under .asv.
#
#   make bench [RANGE=v1..v2] [BENCH=regex]   measure the last changes (or RANGE) and publish them beside the history
#   make compare [BASE=main] [HEAD=HEAD]      has HEAD made anything slower than BASE? With EXACT=1, by instructions alone;
#                                             with ALL=1, of everything and not only of what those say can have changed
#   make test                                 lint, types, coverage and tests
#   make sanitize                             the package's tests under the sanitizers of gcc
#   make oldest-numpy                         the package's tests on an installed wheel beside numpy 2.0
#   make budgets                              the budgets of the hot paths, measured now
#   make peers                                measure kvpool beside SGLang, vLLM and LMCache
#   make engine-tests [ENGINE=vllm]           the engines' own tests, as they are and over kvpool
#   make performance [TRACES=files]           write docs/performance.md from the recorded run, or record one first
#   make history                              measure the milestones into results/ and publish html/
#   make site                                 publish results/ to html/
#   make selftest                             plant faults and see the comparison find each of them
#   make clean                                remove .venv, .asv and the tools' caches

# Any Python from 3.11 on that can make a virtual environment; name another one with PYTHON=...
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& command -v $$python && break; done)

RANGE ?=
BENCH ?=
BASE ?= main
HEAD ?= HEAD
EXACT ?=
ALL ?=
TRACES ?=
ENGINE ?=

VENV := .venv
INSTALLED := $(VENV)/installed
READY := $(VENV)/ready
RUN := $(VENV)/bin/python

# A machine without a C compiler gets one from the package index, for asv's environments as well as for this one. It
# compiles for any CPU of its kind, as others do, unless told so.
ifeq ($(origin CC),default)
ifeq ($(shell command -v cc || command -v gcc || command -v clang),)
COMPILER := ziglang==0.17.1
export CC := $(CURDIR)/$(RUN) -m ziglang cc -mcpu=baseline
export LDSHARED := $(CC) -shared
export ZIG_GLOBAL_CACHE_DIR := $(CURDIR)/$(VENV)/zig
export ZIG_LOCAL_CACHE_DIR := $(ZIG_GLOBAL_CACHE_DIR)
endif
endif

# What the extension modules are built from: when one of these is newer, all are built anew.
SOURCES := setup.py $(wildcard kvpool/*.py kvpool/*.pyx kvpool/*.pxd kvpool/*.h)

.DEFAULT_GOAL := help
.PHONY: help tools bench compare test lint coverage sanitize oldest-numpy budgets peers engine-tests performance history site selftest clean

help:
	@sed -n 's/^#  //p' Makefile

# What every target needs, for whoever calls the commands themselves: the libraries, and the package built in place.
tools: $(READY)

bench: $(READY)
	$(RUN) -m history bench $(if $(BENCH),--bench '$(BENCH)') $(if $(RANGE),'$(RANGE)')

compare: $(READY)
	$(RUN) -m history compare $(if $(EXACT),--exact) $(if $(ALL),--all) $(if $(BENCH),--bench '$(BENCH)') '$(BASE)' '$(HEAD)'

# pytest is last, so that its summary closes the output.
test: lint coverage
	$(RUN) -m pytest

lint: $(READY)
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	$(RUN) -m mypy.stubtest --mypy-config-file pyproject.toml --concise --ignore-disjoint-bases \
		--allowlist tests/stubtest_allowlist.txt $(subst /,.,$(basename $(wildcard kvpool/*.pyi)))

# Compiled code is invisible to coverage: for this a copy without extension modules runs as plain Python.
coverage: $(READY)
	$(RUN) -m tests.plain_copy $(VENV)/plain tests/kvpool
	cd $(VENV)/plain && $(CURDIR)/$(RUN) -m coverage report --skip-covered

# Memory errors and undefined behaviour in the extension modules end the tests, with file and line. Without the leak tests,
# which count what the allocator counts that is replaced here.
sanitize: $(READY)
	$(RUN) -m tests.sanitized_copy $(VENV)/sanitize --durations=10 --ignore=tests/kvpool/test_leaks.py tests/kvpool

# What is installed, built with the newest numpy and run with the oldest.
oldest-numpy: $(READY)
	$(RUN) -m tests.installed_copy $(VENV)/oldest-numpy tests/kvpool

budgets: $(READY)
	$(RUN) -m benchmarks budgets

peers: $(READY)
	$(RUN) -m history peers $(if $(BENCH),--bench '$(BENCH)')

engine-tests: $(READY)
	$(RUN) -m history engine-tests $(if $(ENGINE),--engine '$(ENGINE)')

performance: $(READY)
	$(RUN) -m history performance $(if $(TRACES),--record $(TRACES))

history: $(READY)
	$(RUN) -m history record $(if $(RANGE),'$(RANGE)')

site: $(READY)
	$(RUN) -m history publish

selftest: $(READY)
	$(RUN) -m history selftest

clean:
	rm -rf $(VENV) .asv build kvpool/*.so .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache

# The extension modules are built in place, where git ignores them; one of a source that is gone must not be imported.
$(READY): $(INSTALLED) $(SOURCES)
	rm -f kvpool/*.so
	$(RUN) setup.py --quiet build_ext --inplace --force
	touch $@

# The tools' pins are read from pyproject.toml; the package itself is not installed but run from here.
$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "kvpool needs Python 3.11 or newer with ensurepip (Debian: python3-venv);" \
		"name one with 'make PYTHON=/path/to/python'" >&2; exit 1; }
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
		print(*project['optional-dependencies']['dev'], sep='\n')" > $(VENV)/requirements.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements.txt $(COMPILER)
	touch $@
