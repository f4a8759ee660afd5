"""What all tests have in common: a place for the flight records of groups that they make fail."""

import os
import tempfile

_records = tempfile.TemporaryDirectory(prefix="weft-tests-", ignore_cleanup_errors=True)
os.environ.setdefault("WEFT_FLIGHT_DIR", _records.name)
