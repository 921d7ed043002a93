# Everything a contributor needs; each target sets up what it uses. Needs Python 3.11+, make and a
# C++20 compiler.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test lint stubs docs notebooks bench clean

# Sources that, when changed, need a new build.
NATIVE = CMakeLists.txt pyproject.toml $(shell find hipfile_arrays -name '*.?pp' -o -name CMakeLists.txt -o -name '*.map' -o -name '*.S' -o -name '*.cmake' -o -name '*.h' -o -path '*emulator/bin/*')

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/built: $(BIN)/python $(NATIVE)
	$(BIN)/python -m pip install --quiet --config-settings=cmake.define.HFA_WERROR=$(or $(WERROR),OFF) -e ".[test]"
	touch $@

$(VENV)/tools: $(VENV)/built
	$(BIN)/python -m pip install --quiet "ruff==0.17.*" "mypy==2.4.*" "clang-format==23.1.*" nanobind -e ".[docs,notebooks]"
	touch $@

# The main job on the emulated device: file -> GPU array -> file, with the numbers.
demo: $(VENV)/built
	HIPFILE_ARRAYS_EMULATE=1 $(BIN)/hipfile-arrays demo

test: $(VENV)/built
	$(BIN)/python -m pytest

lint: $(VENV)/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	find hipfile_arrays tests -name '*.?pp' -o -name '*.hip' | xargs $(BIN)/clang-format --dry-run --Werror

# The binding's stub is generated, and checked in.
stubs: $(VENV)/tools
	$(BIN)/python -m nanobind.stubgen -m hipfile_arrays._native._native -o hipfile_arrays/_native/_native.pyi
	$(BIN)/ruff format -q hipfile_arrays/_native/_native.pyi

docs: $(VENV)/tools
	HIPFILE_ARRAYS_EMULATE=1 $(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

notebooks: $(VENV)/tools
	HIPFILE_ARRAYS_EMULATE=1 $(BIN)/python tools/run_notebooks.py notebooks

bench: $(VENV)/built
	HIPFILE_ARRAYS_EMULATE=1 $(BIN)/python benchmarks/call_overhead.py

clean:
	rm -rf $(VENV) build docs/_build
