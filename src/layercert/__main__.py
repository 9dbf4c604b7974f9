"""`python -m layercert`: the command line where the script `layercert` is not on the path."""

import sys

from layercert.cli import main

sys.exit(main())
