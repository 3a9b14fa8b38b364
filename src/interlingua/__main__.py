"""`python -m interlingua` is `interlingua`."""

import sys

from interlingua.cli import main

sys.exit(main())
