"""Run a command of the package: `python -m nn COMMAND ...`."""

import sys

from .commands import main

sys.exit(main())
