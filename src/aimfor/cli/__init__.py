"""The command line, `aimfor`. It needs the extra `cli`, and says so if that is missing."""

import atexit
import gc
import sys


def main() -> None:
    """Run the command that the arguments ask for; without the extra, say how to install it and exit with 1."""
    # Imports make half a million objects that all stay. To look for garbage among them, while they are made and again
    # at the end, would take longer than to score a table.
    gc.set_threshold(50_000, 20, 20)
    atexit.register(_leave)
    try:
        from aimfor.cli._commands import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit("the aimfor command needs its extra: pip install 'aimfor[cli]'")
    try:
        app(prog_name="aimfor")
    except KeyboardInterrupt:  # before a command began
        sys.exit(130)


def _leave() -> None:
    """End without a last search for garbage, unless a library is loaded that complains about what it left."""
    if "triton" not in sys.modules:
        gc.freeze()
