# `make lab` for students, `make test` for developers and CI, `make grade` for instructors; `make` lists the rest.
#
# Variables, each with a default:
#   PYTHON       the Python (3.11 or newer) that .venv is made from
#   TORCH_INDEX  a package index to take torch from instead of pip's own. A Linux machine without an NVIDIA GPU can
#                name PyTorch's CPU index here and save gigabytes: `make lab TORCH_INDEX=<its address>`.
#   LAB_ARGS     passed on to JupyterLab: `make lab LAB_ARGS="--no-browser --port 8899"`
#   SEEDS        how many seeds `make prove` and `make soak` take, the public one included
#   SWEEP        on how many seeds more than the proofs `make soak` performs all right answers: 20 take a quarter of an hour
#   WORKERS      how many processes share the tests: one more than two cores, because many tests wait for others
#   FUZZ_SECONDS, SUBMISSIONS   how long `make soak` fuzzes the wire format, and how many submissions it grades

PYTHON ?= $(shell python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo python3 || echo python3.11)
TORCH_INDEX ?=
LAB_ARGS ?=
SEEDS ?= 3
SWEEP ?= 20
WORKERS ?= 3
SHARED := -n $(WORKERS) --dist loadscope --no-loadscope-reorder -p no:nbmake
FUZZ_SECONDS ?= 600
SUBMISSIONS ?= 2000

VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_COMPILE=0 $(BIN)/python -m pip install
# pip would compile one file after the other: this does so on all cores, and leaves out the packages' own tests. A few
# files are templates that do not compile.
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib || true
TORCH := $(shell grep '^torch==' constraints.txt)
BEGAN := $(shell date +%s)
# Solved in `make test`: the first ones, and one with ranks. `make soak` runs all; what is in them is proven either way.
SOLVED := $(addprefix build/source/,00_start_here 01_computational_graphs 05_ddp)
NBMAKE = XDG_DATA_HOME=$(VENV)/.data $(BIN)/pytest -q -n $(WORKERS) --dist worksteal --nbmake --nbmake-timeout=300
UNITS = $(notdir $(patsubst %/__init__.py,%,$(wildcard autograder/answers/*/__init__.py)))
PASSED := build/soak/$(shell (git rev-parse HEAD && git diff HEAD || date) 2>/dev/null | sha1sum | cut -c 1-12)
# What the proof of a unit ($(1)) can read: no unit knows another one, as the import contracts hold.
NOTHING :=
OTHERS = $(subst $(NOTHING) ,|,$(filter-out $(1),$(UNITS)))
OF_OTHERS = ^(course/(exercises|reference|sheets)|autograder/answers|solutions(/numbers)?)/([0-9]+_)?($(OTHERS))[/.]
READ = (git rev-parse --git-dir || date; git ls-files -co --exclude-standard course autograder solutions constraints.txt \
	| grep -vE '$(OF_OTHERS)' | xargs -r sha1sum) 2>/dev/null | sha1sum | cut -c 1-12
PROVEN = $(foreach unit,$(UNITS),build/soak/proof-$(unit)-$(shell $(call READ,$(unit))))
ATHERIS = $(BIN)/python -c 'import atheris' 2>/dev/null

# nbgrader starts `alembic` by its bare name, so the environment's commands must be on the path.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start hundreds of processes: modules are compiled once, also where the caller's shell says otherwise.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help lab dev test grade sandbox build prove soak soak-right soak-tests soak-attacks soak-fuzz soak-class
.PHONY: soak-notebooks system unit notebooks fuzz lint format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

lab: $(VENV)/.lab  ## install what is needed and open JupyterLab on the first notebook
	@echo "== JupyterLab"
	@$(BIN)/course lab $(LAB_ARGS)

dev: $(VENV)/.dev  ## install what tests and proofs need, and run nothing

test: system lint unit notebooks  ## install what is needed and pass every test
	@$(BIN)/python -m tools.ending $(BEGAN) $(VENV)/.dev

grade: $(VENV)/.lab sandbox  ## grade a sample class through nbgrader, leave the results in build/
	@echo "== sample class"
	@$(BIN)/autograder demo

sandbox: $(VENV)/.lab  ## install bubblewrap and libseccomp where apt-get may, and say which protections are active
	@$(PYTHON) -m tools.system sandbox
	@$(BIN)/autograder doctor

build: $(VENV)/.lab  ## make notebooks/ and nbgrader's trees from solutions/
	@echo "== notebooks"
	@$(BIN)/autograder build

prove: $(VENV)/.dev  ## prove the grader: right answers pass, each misconception is told
	@echo "== proof of the grader, $(SEEDS) seeds"
	@$(BIN)/autograder prove --seeds $(SEEDS)

soak: system $(VENV)/.dev  ## what a release must pass besides: more seeds and processors, every attack, fuzzing, a large class
	@$(MAKE) --no-print-directory $(PROVEN) $(addprefix $(PASSED)/,right tests notebooks attacks fuzz class)
	@echo "== soak passed; this call took $$(($$(date +%s) - $(BEGAN))) s"

# A part that has passed is not run again for the same commit and uncommitted changes, nor a proof as long as nothing that
# it can read has changed: who was interrupted, or mended one unit, goes on.
$(PASSED)/%:
	@$(MAKE) --no-print-directory soak-$*
	@mkdir -p $(@D) && touch $@

build/soak/proof-%:
	@$(MAKE) --no-print-directory soak-proof-$(firstword $(subst -, ,$*))
	@mkdir -p $(@D) && touch $@

soak-proof-%: SEEDS = 20
soak-proof-%: $(VENV)/.dev
	$(BIN)/autograder prove $* --seeds $(SEEDS)

soak-right: $(VENV)/.dev
	$(BIN)/autograder prove --right --seeds $(SWEEP)

soak-tests: $(VENV)/.dev
	$(BIN)/pytest -q $(SHARED) --durations=10 -m soak --ignore=tests/attacks

soak-notebooks: build
	$(NBMAKE) build/source

soak-attacks: $(VENV)/.dev
	$(BIN)/pytest -q $(SHARED) --durations=10 -m "soak or not soak" tests/attacks

soak-fuzz: fuzz

soak-class: build
	$(BIN)/python benchmarks/soak.py --count $(SUBMISSIONS)

system:  # Debian packages, before anything runs
	@$(PYTHON) -m tools.system

unit: $(VENV)/.dev  ## run tests/, in which those of judging must reach every line and branch of it
	@echo "== tests"
	@$(BIN)/pytest -q $(SHARED) --durations=10 --cov --cov-report=term-missing --cov-fail-under=100

notebooks: $(VENV)/.dev  ## compare the committed notebooks with what the lessons make, run all, and some solved
	@echo "== notebooks, as committed, untouched, and three solved"
	@$(BIN)/autograder build --no-sheets --check
	@$(NBMAKE) $(SOLVED) notebooks

fuzz: $(VENV)/.dev  ## look for frames that harm the grader (fuzz/README.md), where atheris can be installed
	@$(ATHERIS) || $(PIP) -q -c constraints.txt -e '.[fuzz]' \
		|| echo "== nothing is fuzzed: atheris cannot be installed here (it has wheels for Linux and Python up to 3.13)"
	@mkdir -p build/fuzz
	@! $(ATHERIS) || $(BIN)/python fuzz/wire.py -dict=fuzz/wire.dict -max_len=65536 -rss_limit_mb=2048 -timeout=10 \
		-max_total_time=$(FUZZ_SECONDS) -artifact_prefix=build/fuzz/ build/fuzz fuzz/corpus/wire

lint: $(VENV)/.dev  ## ruff, mypy and the import contracts
	@echo "== ruff"
	@$(BIN)/ruff check -q
	@$(BIN)/ruff format -q --check
	@echo "== mypy, and beside it the import contracts"
	@$(BIN)/mypy -n 2 & mypy=$$!; $(BIN)/lint-imports --no-logo; kept=$$?; wait $$mypy && exit $$kept

format: $(VENV)/.dev  ## let ruff lay out the code and mend what it can
	@$(BIN)/ruff check -q --fix-only
	@$(BIN)/ruff format

clean:  ## remove .venv and the tools' caches (not build/: it holds the gradebook)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find course autograder tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment, in steps; each leaves a mark, so that a second start installs nothing.
$(BIN)/pip:
	@echo "== $(VENV), from $(PYTHON)"
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; name one with PYTHON=..." if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m tools.system venv
	@$(PYTHON) -m venv $(VENV)

# torch first and alone, so that its index decides nothing else and a broken download is seen as what it is.
$(VENV)/.torch: constraints.txt | $(BIN)/pip
	@echo "== $(TORCH) (large, a few minutes)"
	@$(PIP) '$(TORCH)' $(if $(TORCH_INDEX),--index-url '$(TORCH_INDEX)')
	@touch $@

$(VENV)/.lab: pyproject.toml constraints.txt $(VENV)/.torch
	@echo "== the course and what it needs (a minute or two)"
	@$(PIP) -q -c constraints.txt -e .
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.torch
	@echo "== the course, what it needs and the tools of its tests (a minute or two)"
	@$(PIP) -q -c constraints.txt -e '.[dev]'
	@$(COMPILE)
	@touch $(VENV)/.lab $@
