"""``python -m pytest_rlserve`` is ``rlserve``."""

import sys

from pytest_rlserve.cli import main

sys.exit(main())
