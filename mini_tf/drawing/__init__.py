"""Figures for files and pictures for the terminal; no torch."""

import os

# Figures are written to files. A notebook exports a backend that matplotlib would fail to import in this environment.
os.environ["MPLBACKEND"] = "agg"
