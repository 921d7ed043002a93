"""Run Python on the emulated device.

python -m hipfile_arrays.emulator [-c code | -m module | script.py] [arguments]
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from . import activate


def main() -> None:
    """Activate the emulated device, then run what Python would have run."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        raise SystemExit(0 if arguments else 2)
    activate()
    kind = arguments[0]
    if kind in ("-c", "-m"):
        if len(arguments) < 2:
            raise SystemExit(f"argument expected for the {kind} option")
        sys.argv = [kind, *arguments[2:]]
        if kind == "-c":
            sys.path[0] = ""
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = arguments
    sys.path[0] = str(Path(kind).resolve().parent)  # as Python does, not the current folder
    runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    main()
