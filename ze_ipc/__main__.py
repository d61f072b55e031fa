"""``python -m ze_ipc`` is the program ``ze-ipc``."""

import sys

from ze_ipc.cli import main

sys.exit(main())
