"""``python -m cellblock``: what kernelspecs start. The command line for people is ``cellblock``."""

import sys

from cellblock.jupyter.start import main

if __name__ == "__main__":
    main(sys.argv[1:])
