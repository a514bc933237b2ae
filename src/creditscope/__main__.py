"""`python -m creditscope` is `creditscope`."""

import sys

from creditscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
