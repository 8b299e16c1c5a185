# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# The short way to the CMake build. `make help` lists what there is.

PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
RG_WERROR ?= OFF
# The GPUs to build for, as in CMAKE_CUDA_ARCHITECTURES: those of this machine, or else code that
# the driver of any GPU compiles when it is first used. Releases name theirs: see README.md.
NATIVE := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
    sed -n 's/^\([0-9]*\)[.]\([0-9]*\)$$/\1\2-real/p' | sort -u | paste -sd';')
CUDA_ARCHITECTURES ?= $(or $(NATIVE),75-virtual)

BUILD := build
FUZZ_BUILD := build-fuzz
SECONDS := 60
VERSION := $(shell sed -n 's/^.define RG_VERSION_[A-Z]* //p' include/retrograde/base.h | paste -sd.)
NAME := retrograde-$(VERSION)

# A build folder keeps its generator; a new one takes ninja where it is installed.
KEPT := $(shell sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' $(BUILD)/CMakeCache.txt 2>/dev/null)
FOUND := $(shell command -v ninja >/dev/null 2>&1 && echo Ninja || echo Unix Makefiles)
GENERATOR := $(or $(KEPT),$(FOUND))

# CMake decides about parallel jobs, not the flags of this make.
CMAKE_BUILD := env -u MAKEFLAGS -u MAKELEVEL cmake --build $(BUILD) --parallel $(JOBS)

.NOTPARALLEL:
.PHONY: all train demo test test-long fuzz install uninstall dist clean format help configure setup-build setup-demo setup-test setup-train

all: setup-build configure ## the libraries and build/retrograde (default)
	@$(CMAKE_BUILD) --target rg_product

train: setup-train configure ## train a small network on Fashion-MNIST: run/report.html; OPTIONS=… for others
	@$(CMAKE_BUILD) --target rg_program
	@echo && $(BUILD)/retrograde train $(OPTIONS)

demo: setup-demo configure ## build, then check and measure softmax on the devices found
	@$(CMAKE_BUILD) --target rg_product
	@echo && $(BUILD)/retrograde info
	@echo && $(BUILD)/retrograde check softmax --quick
	@echo && $(BUILD)/retrograde bench softmax --against onednn

CTEST := ctest --output-on-failure --no-tests=error --parallel $(JOBS) $(CTEST_OPTIONS)

test: setup-test configure ## build all, run the tests that are not long
	@$(CMAKE_BUILD)
	@cd $(BUILD) && $(CTEST) -LE long

test-long: setup-test configure ## the long tests: every case of every op, PyTorch beside it
	@$(CMAKE_BUILD)
	@cd $(BUILD) && $(CTEST) -L long

fuzz: ## search the readers for crashes; SECONDS=60 of CPU time each, TARGET=npy for one
	@cmake --preset asan -B $(FUZZ_BUILD) -G "$(FOUND)" \
	    -D CMAKE_C_COMPILER=clang -D RG_FUZZ=ON -D RG_WERROR=$(RG_WERROR) >/dev/null
	@env -u MAKEFLAGS -u MAKELEVEL cmake --build $(FUZZ_BUILD) --parallel $(JOBS) --target rg_fuzz_all
	@tests/fuzz/run_targets.py $(FUZZ_BUILD) --seconds $(SECONDS) $(TARGET:%=--target %)

install: all ## into PREFIX (default /usr/local); DESTDIR is respected
	@cmake --install $(BUILD) --prefix $(PREFIX)
	@if [ -z "$(DESTDIR)" ] && ! ldconfig -p 2>/dev/null | grep -q "$(abspath $(PREFIX))/.*libretrograde[.]so"; then \
	    echo "Programs find the shared libraries after ldconfig has been run as root, or with"; \
	    echo "LD_LIBRARY_PATH set to the folder of libretrograde.so below $(PREFIX)."; \
	fi

uninstall: ## remove what the last `make install` has installed; DESTDIR is respected
	@test -f $(BUILD)/install_manifest.txt || { echo "$(BUILD)/install_manifest.txt: nothing was installed from here"; exit 1; }
	@while read -r file || [ -n "$$file" ]; do rm -f "$(DESTDIR)$$file"; done <$(BUILD)/install_manifest.txt

dist: ## the sources as dist/retrograde-VERSION.tar.gz
	@mkdir -p dist
	@if git rev-parse -q --verify HEAD >/dev/null 2>&1; then \
	    git archive --prefix=$(NAME)/ HEAD | gzip -9n >dist/$(NAME).tar.gz; \
	else \
	    tools/list-files | tar -cf - --no-recursion --owner=0 --group=0 --numeric-owner \
	        --transform='s|^|$(NAME)/|' -T - | gzip -9n >dist/$(NAME).tar.gz; \
	fi
	@ls -l dist/$(NAME).tar.gz

clean: ## remove every build folder and dist
	@rm -rf build build-* dist

format: ## rewrite the sources as .clang-format says
	@tools/list-files '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1 \2/p' Makefile | \
	    while read -r make target text; do printf '  make %-10s %s\n' "$$target" "$$text"; done

# ---- what the above need ----

setup-build:
	@RG_INSTALL=no sh tools/setup build
setup-demo setup-test setup-train:
	@sh tools/setup $(@:setup-%=%)

configure:
	@cmake --preset release -B $(BUILD) -G "$(GENERATOR)" -D RG_WERROR=$(RG_WERROR) \
	    -D RG_CUDA_ARCHITECTURES="$(CUDA_ARCHITECTURES)" >/dev/null
