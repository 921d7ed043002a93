"""``python -m hipfile_arrays.cli``."""

from . import main

raise SystemExit(main())
