"""Tell: the command line, `aimfor`. It needs the extra `cli`, and says so when it is missing."""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated


def main() -> None:
    """Run the command that the arguments ask for; without the extra, say how to install it and exit with 1."""
    try:
        import typer
    except ModuleNotFoundError:
        sys.exit("the aimfor command needs its extra: pip install 'aimfor[cli]'")

    app = typer.Typer(no_args_is_help=True, add_completion=False, help="Train for the number you are judged by.")

    def show_version(asked: bool) -> None:
        if asked:
            typer.echo(f"aimfor {version('aimfor')}")
            raise typer.Exit

    @app.callback()
    def aimfor(
        show: Annotated[
            bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
        ] = False,
    ) -> None:
        pass

    @app.command()
    def demo(
        out: Annotated[Path, typer.Option(help="Folder for the picture; made when absent.")] = Path("demo"),
        seed: Annotated[int, typer.Option(min=0, help="Seed of the data, the splits and the models.")] = 0,
    ) -> None:
        """Train log-loss and aimfor side by side on two small problems: tables and a picture, in about a minute."""
        import torch

        from aimfor.demo import run

        torch.set_num_threads(1)  # its batches are small: a second thread would cost more than it brings
        try:
            run(out, seed)
        except (ModuleNotFoundError, OSError) as error:
            sys.exit(str(error))

    app(prog_name="aimfor")


if __name__ == "__main__":
    main()
