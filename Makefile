# Development commands. What CI runs is .ci/run; it needs no make.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# Tools are pinned in modules of their own, because their dependencies clash with ours.
LINT := go tool -modfile=.tools/lint/go.mod
BUF := cd proto && go tool -modfile=../.tools/buf/go.mod buf

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
PKG ?= ./...
BENCH ?= .
COUNT ?= 5
FUZZTIME ?= 30s

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: all
all: lint test build ## Lint, test and build

.PHONY: build
build: ## Build the static binary ./fairlead (VERSION=...)
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o fairlead ./cmd/fairlead

IMAGE ?= fairlead:dev

.PHONY: image
image: ## Build the image fairlead:dev from the static binary (IMAGE=...)
	mkdir -p bin/root/data bin/root/pki
	touch bin/root/data/.keep bin/root/pki/.keep
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/fairlead ./cmd/fairlead
	docker build -q -t $(IMAGE) .

.PHONY: up
up: image ## Start the local cluster of docker-compose.yml and wait until it is healthy
	docker-compose up -d

.PHONY: test
test: ## Run the tests (PKG=./...)
	go test $(PKG)

.PHONY: race
race: ## Run the tests under the race detector (PKG=./...); needs a C compiler
	CGO_ENABLED=1 go test -race $(PKG)

.PHONY: lint
lint: ## Check style, layers, schemas and formatting
	go vet ./...
	$(LINT) golangci-lint run ./...
	go test ./e2e/lint/...
	$(BUF) lint

.PHONY: format
format: ## Format the Go code and the schemas
	$(LINT) golangci-lint fmt
	$(BUF) format -w

.PHONY: generate
generate: ## Generate Go code from the schemas in proto
	$(BUF) generate

.PHONY: checkgenerate
checkgenerate: ## Check that the generated code is current
	.ci/checkgenerate

.PHONY: proto-breaking
proto-breaking: ## Check that the schemas break no caller of the last release
	$(BUF) breaking --against baseline.binpb

.PHONY: proto-baseline
proto-baseline: ## Make the present schemas the promise: at a release, or with a break that the commit explains
	$(BUF) build --exclude-source-info --output baseline.binpb

.PHONY: rewrite
rewrite: ## Rewrite the expected output of script tests: commit only differences you understand
	@packages=$$(grep -rlE --include='*_test.go' 'flag\.Bool\("rewrite"' . | xargs -r -n1 dirname | sort -u); \
	if [[ -z "$$packages" ]]; then echo 'no test has the flag -rewrite'; exit 0; fi; \
	go test $$packages -rewrite

.PHONY: pictures
pictures: ## Draw docs/pictures with the simulator
	go test ./e2e/sim/report -run TestPictures -rewrite

.PHONY: e2e
e2e: ## Run the end-to-end tests against real processes, uncached
	FAIRLEAD_CLUSTER=1 go test -count=1 -p 1 ./e2e/...

.PHONY: fuzz
fuzz: ## Fuzz every target in turn (FUZZTIME=30s, PKG=./...)
	@for package in $$(go list $(PKG)); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "== $$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

.PHONY: bench
bench: ## Run benchmarks and summarise them (BENCH=. COUNT=5 PKG=./...)
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $(PKG) | tee bench.out
	$(LINT) benchstat bench.out

.PHONY: demo
demo: ## Show one noisy tenant and nineteen quiet ones, under FIFO and under Fairlead
	go run ./cmd/fairlead demo

.PHONY: vuln
vuln: ## Look for known vulnerabilities in the code that is called
	.ci/vuln

.PHONY: tidycheck
tidycheck: ## Check go.mod and go.sum
	go mod tidy -diff
	go mod verify

.PHONY: tools
tools: ## Build the pinned tools into Go's cache (minutes, once)
	$(LINT) golangci-lint version
	$(LINT) govulncheck -version
	$(BUF) --version

.PHONY: ci
ci: ## Run everything a change must pass, as CI does
	.ci/run

.PHONY: clean
clean: ## Remove what these commands made
	rm -f fairlead bench.out
