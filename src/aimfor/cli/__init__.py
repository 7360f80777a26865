"""The command line, `aimfor`. It needs the extra `cli`, and says so if that is missing."""

import sys


def main() -> None:
    """Run the command that the arguments ask for; without the extra, say how to install it and exit with 1."""
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
