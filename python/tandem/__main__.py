"""`python -m tandem`: the command line, the program `tandem` itself."""

import os
import pathlib
import sys


def program() -> pathlib.Path:
    """Where the program is that came with the package."""
    return pathlib.Path(__file__).parent.absolute() / "bin" / "tandem"


def main() -> None:
    path = program()
    sys.stdout.flush()
    try:
        os.execv(path, [str(path), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"tandem: error: {path}: {error.strerror}")


if __name__ == "__main__":
    main()
