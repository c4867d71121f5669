"""``python -m cellblock``: a kernel if options follow, as in kernelspecs; else ``cellblock``."""

import sys

if __name__ == "__main__":
    first = sys.argv[1:2]
    if first in (["--help"], ["--version"]) or not "".join(first).startswith("-"):
        from cellblock.cli.main import main as run_command

        run_command()
    else:
        from cellblock.jupyter.start import main

        main(sys.argv[1:])
