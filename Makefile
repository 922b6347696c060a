# make lab    two teams, two control planes, sliced GPUs, eight tests, on this machine
# make test   format, lints, unit, property and end-to-end tests
# make help   everything else

CARGO_BIN := $(HOME)/.cargo/bin
export PATH := $(CURDIR)/.tools/bin:$(CARGO_BIN):/usr/sbin:/sbin:$(PATH)
LAB_PROFILE ?= lab
ATOLL := $(or $(CARGO_TARGET_DIR),target)/$(LAB_PROFILE)/atoll
GOLDEN ?=

.PHONY: help setup build lab test bench golden image

help:
	@sed -n 's/^# //p' Makefile

setup:
	@scripts/setup $(SETUP_FLAGS)

build: setup
	cargo build --locked --profile $(LAB_PROFILE) --package atoll

lab: build
	$(ATOLL) lab $(LAB_FLAGS)

test: setup
	scripts/test

# make golden GOLDEN=DIR   runs the recorded API cases of a folder against a control plane of our own
golden: build
	@scripts/golden "$(GOLDEN)" $(ATOLL)

# make bench   the numbers, measured on this machine in release mode
bench: setup
	cargo build --locked --release --package atoll
	scripts/bench

# make image   an OCI archive of the binary, without a daemon
image: setup
	cargo build --locked --release --package atoll
	scripts/image
