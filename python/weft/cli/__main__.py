"""`python -m weft.cli` is the `weft` command."""

import sys

from weft.cli import main

sys.exit(main())
