"""``python -m headrace``."""

import contextlib
from pathlib import Path

from headrace.cli import main

if __name__ == "__main__":
    # The name that the installed command has: in `ps`, and where headrace's own I/O is told from other programs'.
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("headrace")
    main()
