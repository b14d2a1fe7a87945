"""`tandem`, or `python -m tandem`: the command line, which is the program itself."""

import importlib.util
import os
import pathlib
import ssl
import sys
from typing import Dict


def program() -> pathlib.Path:
    """The path of the program that came with the package."""
    return pathlib.Path(__file__).parent.absolute() / "bin" / "tandem"


def environment() -> Dict[str, str]:
    """The program's environment. `tandem fetch` downloads with pip, so if this Python has pip, its
    folder comes first in PATH: the environment of the package need not be activated. The program
    trusts the certificates that Python does: a libcurl that came with the package may have been
    built for a system that has them elsewhere."""
    variables = dict(os.environ)
    trusted = ssl.get_default_verify_paths()
    for name, path in {"SSL_CERT_FILE": trusted.cafile, "SSL_CERT_DIR": trusted.capath}.items():
        if path is not None:
            variables.setdefault(name, path)
    if importlib.util.find_spec("pip") is not None:
        folders = [os.path.dirname(sys.executable), variables.get("PATH", os.defpath)]
        variables["PATH"] = os.pathsep.join(folders)
    return variables


def main() -> None:
    path = program()
    sys.stdout.flush()
    try:
        os.execve(path, [str(path), *sys.argv[1:]], environment())
    except OSError as error:
        sys.exit(f"tandem: error: {path}: {error.strerror}")


if __name__ == "__main__":
    main()
