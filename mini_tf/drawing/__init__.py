"""Numbers to pictures; no torch."""

import os

# Figures are drawn into files and need no screen. A notebook names a backend of its own, which matplotlib would fail to find here.
os.environ["MPLBACKEND"] = "agg"
