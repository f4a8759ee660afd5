"""Entry point of `python -m weft.cli`, equivalent to the command `weft`."""

import sys

from weft.cli import main

sys.exit(main())
