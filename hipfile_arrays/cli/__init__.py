"""``hipfile-arrays``: argument parsing only; each command is a module of this package."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import HipFileArraysError
from . import bench, demo, doctor

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Returns
    -------
    int
        The exit status.
    """
    parser = argparse.ArgumentParser(
        prog="hipfile-arrays", description="Files to and from GPU arrays over AMD's hipFile."
    )
    commands = parser.add_subparsers(title="commands", required=True)
    for command in (demo, doctor, bench):
        name = command.__name__.rpartition(".")[2]
        summary = (command.__doc__ or "").partition("\n")[0]
        sub = commands.add_parser(name, help=summary, description=summary)
        command.configure(sub)
        sub.set_defaults(run=command.run)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except (HipFileArraysError, OSError) as error:
        print(f"hipfile-arrays: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
