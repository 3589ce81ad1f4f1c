# What a person does with this repository; `make help` lists it. Everything lands in .build/ and $(VENV).
PYTHON ?= python3
VENV ?= .venv
FRAMEWORK ?= numpy
WORKERS ?= 2
TEST_WORKERS ?= 3
# The index for PyTorch; without one, the small build without CUDA where that is in reach.
TORCH_INDEX ?=
PYTEST_FLAGS ?=
N ?= 10
MINUTES ?=
LOAD ?= 0
OLD ?= main
NEW ?=
ONLY ?=
DEMO_FLAGS ?=
DB ?=
PYTHON_VERSION ?= 3.11
EXTRAS ?=
PICTURES ?= docs
LOCK_FLAGS ?=
FUZZ_SECONDS ?= 60
TARGETS ?=
SEED ?=

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

TORCH_VERSION := 2.13.0
DEMO_VENV := .build/demo-$(FRAMEWORK)
SOURCES := agent collectors dashboards tests benchmarks examples hatch_build.py

.PHONY: help demo test certain live steady check shadow vm weights constants bench score bpf budget fmt lint fuzz audit lock clean packages picture deb site tutorial

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(DEMO_VENV)/.installed ## watch a real training run and its restart, under two minutes; FRAMEWORK=torch for PyTorch
	$(DEMO_VENV)/bin/python examples/demo.py --framework $(FRAMEWORK) $(DEMO_FLAGS)

picture: $(VENV)/.installed ## renew the pictures of README and docs/page.md from a planted recording (root, cgroup v1); needs chromium; DB=FILE uses that
	$(VENV)/bin/python examples/pictures.py $(PICTURES) $(DB)

test: certain live ## the whole suite; as root with the tests that need root

certain: packages $(VENV)/.installed-all ## its deterministic tests: functions, recordings, the store, the command line
	$(VENV)/bin/python tests/tries.py --workers $(TEST_WORKERS) $(PYTEST_FLAGS)

live: packages $(VENV)/.installed-all ## its live tests, scored: real jobs, this kernel, a booted systemd
	$(VENV)/bin/python tests/tries.py --live --workers $(WORKERS) $(if $(MINUTES),--minutes $(MINUTES)) $(PYTEST_FLAGS)

steady: packages $(VENV)/.installed-all ## which tests fail now and then, and with what: N=10 LOAD=2 PYTEST_FLAGS='-m live -k dies'
	@.ci/pip $(VENV)/bin/python install --group steady
	$(VENV)/bin/python tests/steady.py --runs $(N) --load $(LOAD) -n $(WORKERS) $(or $(PYTEST_FLAGS),-m "not live")

check: $(VENV)/.installed lint ## what every commit should pass, under three minutes
	$(VENV)/bin/python -m pytest -n $(WORKERS) -m "not slow and not live" $(PYTEST_FLAGS)

lint: $(VENV)/.installed ## style, types and import directions
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python tests/suite/budget.py
	$(VENV)/bin/python tests/suite/english.py

budget: $(VENV)/.installed ## lower the figures of lines in pyproject.toml to what is reached
	$(VENV)/bin/python tests/suite/budget.py --lower

vm: $(VENV)/.installed-all ## real NFS, NVMe and RDMA in a virtual machine, half an hour, as root: KERNEL=5.10, 6.1 or 6.12, ARCH=arm64 (ONLY=nfs42)
	@.ci/packages mmdebstrap ssh:openssh-client $(if $(filter arm64,$(ARCH)),qemu-system-aarch64:qemu-system-arm \
		qemu-aarch64-static:qemu-user-static arch-test aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu \
		/usr/aarch64-linux-gnu/lib/libc.a:libc6-dev-arm64-cross,qemu-system-x86_64:qemu-system-x86 gcc)
	trap '$(VENV)/bin/python tests/vm/table.py' EXIT; CKPTPROF_VM=$(or $(KERNEL),$(if $(filter arm64,$(ARCH)),6.12,6.1))$(if $(filter arm64,$(ARCH)),-arm64) \
		$(VENV)/bin/python -m pytest -p no:randomly tests/vm/real_storage.py $(if $(ONLY),-k '$(ONLY)')

tutorial: $(VENV)/.installed ## renew the listings of docs/tutorial.md from real runs, two minutes, as root on a quiet machine
	$(VENV)/bin/python examples/tutorial.py

site: $(VENV)/.installed ## the documentation as a web site, in .build/site
	@.ci/pip $(VENV)/bin/python install --group site
	$(VENV)/bin/mkdocs build --strict --config-file .ci/mkdocs.yml

shadow: $(VENV)/.installed ## replay all captures through two trees and print what differs: OLD=main (NEW=REV)
	$(VENV)/bin/python tests/recording/shadow.py $(if $(ONLY),--only '$(ONLY)') $(OLD) $(NEW)

weights: $(VENV)/.installed ## name the captures and tests that hold each number of the decision table
	$(VENV)/bin/python tests/recording/weights.py

constants: $(VENV)/.installed ## ask each other number of detection and diagnosis who holds it, five minutes; ONLY='diagnose.*' asks these
	$(VENV)/bin/python tests/recording/constants.py $(if $(ONLY),--only '$(ONLY)')

fmt: $(VENV)/.installed ## put the sources into shape
	$(VENV)/bin/ruff check --fix --exit-zero $(SOURCES)
	$(VENV)/bin/ruff format $(SOURCES)

bpf: ## compile the eBPF programs again, after a change to them; needs clang 14 (Debian 12)
	$(PYTHON) collectors/ckptprof_collectors/bpf/build.py

bench: packages $(VENV)/.installed-all ## measure ckptprof against its budgets
	$(VENV)/bin/python benchmarks/run.py $(BENCH_FLAGS)

score: $(VENV)/.installed-all ## score what is reported of the hold-out (benchmarks/holdout/catalogue.py), alone and under load: SCORE_FLAGS='--loads alone --only bz2'
	$(VENV)/bin/python benchmarks/score.py $(SCORE_FLAGS)

deb: $(VENV)/.installed ## build the package for Debian 12 into .build/deb; PYTHON_VERSION=3.13 for Debian 13, EXTRAS=ship with the shipper
	rm -f .build/deb/*.whl
	$(VENV)/bin/python -m build --wheel --no-isolation --outdir .build/deb
	EXTRAS=$(EXTRAS) PIP_PYTHON=$(VENV)/bin/python deploy/deb/build .build/deb/*.whl .build/deb $(PYTHON_VERSION)

fuzz: $(VENV)/.installed ## feed what reads foreign bytes with damaged ones: FUZZ_SECONDS=60 for each of 12 targets (TARGETS='request tree')
	@.ci/pip $(VENV)/bin/python install --group fuzz
	$(VENV)/bin/python tests/fuzz/fuzz.py $(TARGETS) --seconds=$(FUZZ_SECONDS) --seed=$(or $(SEED),$$RANDOM)

audit: .build/audit/.installed ## ask PyPI's advisories for known faults of all that the locks name; needs the network
	.build/audit/bin/pip-audit --strict --disable-pip --requirement .ci/locks/dev.txt --requirement .ci/locks/all.txt

lock: ## renew .ci/locks after a change of the dependencies; LOCK_FLAGS=--upgrade takes the newest versions
	@.ci/lock $(LOCK_FLAGS)

clean: ## remove what the other targets made
	rm -rf .build .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

packages: ## as root on Debian and Ubuntu: install the programs that tests run against
	@.ci/packages prometheus prometheus-node-exporter fio mkfs.xfs:xfsprogs systemd-analyze:systemd \
		systemd-nspawn:systemd-container mmdebstrap clang llvm-strip:llvm libbpf.so.1:libbpf1 \
		/usr/include/bpf/bpf_helpers.h:libbpf-dev bpftool strace bpftrace bindfs mkfs.btrfs:btrfs-progs \
		rsync zstd unzip git gcc curl wget /usr/sbin/logrotate:logrotate \
		sshfs /usr/sbin/sshd:openssh-server s3fs rclone socat man:man-db tc:iproute2 /usr/lib/openssh/sftp-server:openssh-sftp-server zsh fish chromium tmux

# The next make a virtual environment and put into it what a target needs; again when that changes.
$(DEMO_VENV)/.installed: pyproject.toml $(shell find agent collectors dashboards systemd -type f -not -name '*.pyc')
	@echo "Installing into $(DEMO_VENV) (once) ..."
	@.ci/venv $(PYTHON) $(DEMO_VENV)
	@.ci/pip $(DEMO_VENV)/bin/python install . numpy safetensors
	@$(if $(filter torch,$(FRAMEWORK)),.ci/torch $(DEMO_VENV)/bin/python $(TORCH_VERSION) $(TORCH_INDEX))
	@touch $@

$(VENV)/.installed: pyproject.toml .ci/locks/dev.txt
	@.ci/venv $(PYTHON) $(VENV)
	@.ci/install $(VENV)/bin/python dev
	@touch $@

$(VENV)/.installed-all: $(VENV)/.installed .ci/locks/all.txt
	@.ci/torch $(VENV)/bin/python $(TORCH_VERSION) $(TORCH_INDEX)
	@.ci/install $(VENV)/bin/python all
	@touch $@

.build/audit/.installed:
	@.ci/venv $(PYTHON) .build/audit
	@.ci/pip .build/audit/bin/python install pip-audit
	@touch $@
