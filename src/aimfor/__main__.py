"""`python -m aimfor`: the command line."""

from aimfor.cli import main

if __name__ == "__main__":
    main()
