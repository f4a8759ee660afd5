"""Start of a training script under any launcher: `mpirun -n 4 python -m weft.torch.run train.py`.

torch looks for its rank in variables that only torchrun sets. This sets them from those of Open
MPI, MPICH, Intel MPI or Slurm, and then becomes `python` with the arguments: a script, or -m and a
module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from weft import config
from weft.errors import ConfigError

_USAGE = "usage: python -m weft.torch.run SCRIPT|-m MODULE [ARGUMENT ...]"


def main(arguments: Sequence[str]) -> None:
    """Sets the variables, and replaces this process by the interpreter."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{_USAGE}\n\n{__doc__}", file=sys.stdout if arguments else sys.stderr)
        raise SystemExit(0 if arguments else 2)
    try:
        config.set_launch_variables()
    except ConfigError as error:
        raise SystemExit(f"weft.torch.run: {error}") from None
    os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
