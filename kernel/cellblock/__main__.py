"""``python -m cellblock``: what kernelspecs start, or ``cellblock`` where a command is given."""

import sys

if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        from cellblock.cli.main import main as run_command

        run_command()
    else:
        from cellblock.jupyter.start import main

        main(sys.argv[1:])
