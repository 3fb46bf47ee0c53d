"""``python -m headrace``."""

import contextlib
from pathlib import Path

from headrace.cli import main

if __name__ == "__main__":
    # As the installed command: for `ps`, and so that our I/O is not taken for another program's.
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("headrace")
    main()
