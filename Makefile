# Two commands matter: `make demo` and `make test`. Each installs what is missing first.
SHELL := /bin/sh
BIN := .venv/bin
# Most tests wait for something: four processes keep two cores busy. What asks for a rate comes after them, one by one.
# The second runs even if the first failed. tests/conftest.py says which files begin.
TOGETHER := scripts/tests -n 4 --dist loadfile --no-loadscope-reorder
# Those of real servers wait more than others do.
TOGETHER_REAL := $(subst -n 4,-n 5,$(TOGETHER))
# Rollouts compare blocks of a server's own, and wait most of the time: two files of them hardly disturb each other.
TOGETHER_WAITING := $(subst -n 4,-n 2,$(TOGETHER))
# Where the slow and the real tests are: to import the files of all others took each process five seconds. A test that is
# neither in tests/real nor in a file with these words is an error of collecting (tests/conftest.py).
REAL_FILES = tests/real $$(grep -rlE 'mark\.slow|chromium' tests/unit tests/agent --include='*.py')
# What `make check` runs: rules about the source. `make test` runs them, too, unless CHECKED says that they were run.
LINTS := $(addprefix tests/unit/test_,$(addsuffix .py,architecture crates ways_out trust_rules words))
# The journal's code on a model of a machine: runs by seed, and every crash point.
SIMULATE := RUST_BACKTRACE=0 cargo test --locked --quiet --workspace --lib simulation --
export PATH := $(PATH):/usr/sbin:/sbin
# Every test of the command line is a start of Python: one that may not keep its bytecode compiles NumPy and SciPy anew.
unexport PYTHONDONTWRITEBYTECODE
# Processes beside each other: threads of NumPy's own would only wait for each other's cores.
test test-real torture: export OPENBLAS_NUM_THREADS = 1
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-real check format bench docs wheel release advisories torture lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

setup: ## install packages, Python and Rust dependencies, build the agent
	@scripts/setup

demo: setup ## from a stock MariaDB to a proven faster one, with a report
	@$(BIN)/headrace demo

test: ## unit tests, the agent's, and one real path through every loop
	@scripts/setup tests
	cargo test --locked --quiet
	$(TOGETHER) $(if $(CHECKED),$(addprefix --ignore=,$(LINTS))) -m 'not alone and not slow and (not real or path)'

test-real: ## every other test, on real servers, hosts, virtual machines, devices and in a browser
	@scripts/setup tests
	HEADRACE_SIMULATE=20000 $(SIMULATE) --include-ignored
	code=0; \
	$(TOGETHER_REAL) -m 'not alone and (slow or (real and not path))' $(REAL_FILES) || code=1; \
	$(TOGETHER_WAITING) -m alone tests/real/ssh || code=1; \
	scripts/tests -m alone tests/real --ignore=tests/real/ssh || code=1; exit $$code

check: ## format, lint, types, import directions
	cargo fmt --check
	cargo clippy --locked --quiet --all-targets -- -D warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest $(LINTS)

format: ## rewrite the sources in the project's format
	cargo fmt
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## speed and memory, each beside its peer, as ratios
	@code=0; $(BIN)/python benches || code=$$?; [ $$code = 130 ] || \
	cargo bench --locked --quiet --bench record --bench fingerprint || code=1; exit $$code

docs: ## the documentation as a site, from the code and docs/ (headrace docs opens it); broken links fail
	$(BIN)/python scripts/reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

wheel: setup docs ## dist/: a wheel per processor, for glibc and musl, and a source distribution
	@$(BIN)/python scripts/wheels.py

release: setup docs ## dist/: the same wheels bit for bit from two directories, with SBOM, provenance, sums and, with a key, signatures
	@$(BIN)/python scripts/release.py --twice
	@$(BIN)/python scripts/release.py --check dist

advisories: ## known defects of what both locks bring (needs cargo-deny and pip-audit, and their data, once, from the network)
	cargo deny --locked check advisories bans sources
	$(BIN)/pip-audit --disable-pip --require-hashes -r requirements.txt

torture: ## hours of it: killed at every command, then what servers may say in every wrong way (needs cargo-fuzz)
	HEADRACE_TEST_ALL=1 $(BIN)/pytest -m thorough tests
	HEADRACE_TEST_ALL=1 $(BIN)/pytest tests/unit/test_crash_points.py tests/real/vm/test_volumes_md.py tests/real/server/test_round_trip.py tests/real/server/test_option_matrix.py
	HEADRACE_KILLS=1000 $(BIN)/pytest -s tests/real/server/test_kills.py tests/real/devices/test_run_killed.py tests/real/ssh/test_killed_commands.py
	HEADRACE_KILLS=20 $(BIN)/pytest -s tests/real/vm/test_conformance.py
	HEADRACE_CUTS=500 $(BIN)/pytest tests/real/devices/test_power_cut.py
	PROPTEST_CASES=20000 cargo test --locked --quiet --package headrace-sql --test sql
	HEADRACE_FUZZ=2000 $(BIN)/pytest tests/unit/test_hostile_files.py
	HEADRACE_TRUST=10000 $(BIN)/pytest tests/agent/test_file_door.py
	HEADRACE_TRUST=500 $(BIN)/pytest tests/agent/test_raced_names.py
	HEADRACE_TRUST=100 $(BIN)/pytest tests/real/server/test_persist_raced.py
	$(BIN)/python benches/trust.py
	$(BIN)/python benches/killed.py 200
	$(BIN)/python benches/serve_strangers.py
	$(BIN)/python benches/serve_strangers.py 300 5000 500 1024
	$(BIN)/python benches/fuzz_readers.py 3600
	$(BIN)/python benches/serve_killed.py 100
	$(BIN)/python benches/fleet8.py
	HEADRACE_SIMULATE=1000000 $(subst test ,test --release ,$(SIMULATE))
	@for seeds in fuzz/seeds/*; do name=$${seeds##*/}; mkdir -p fuzz/corpus/$$name; \
	cargo +nightly fuzz run $$name fuzz/corpus/$$name $$seeds -- -max_len=65536 -max_total_time=60 || exit 1; done

lock: ## renew the locked Python requirements, for the oldest Python that is promised: Debian 12's
	$(BIN)/uv pip compile -q --upgrade --python-version 3.11.2 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --extra dev pyproject.toml -o requirements.txt

clean: ## remove what was built (experiments stay)
	rm -rf target .venv .mypy_cache .ruff_cache .pytest_cache
