"""`headlab` and `python -m headlab`: hand the command line to headlab.cli."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from headlab.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
