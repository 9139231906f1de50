"""The notebook of minitf in Python: its cells are the page's text and blocks.

`python -m tests.notebook` writes it anew.
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE, NOTEBOOK = ROOT / "mini_tf" / "api" / "README.md", ROOT / "recipes" / "notebook.ipynb"
LINK = "What follows is also a notebook,\n[recipes/notebook.ipynb](../../recipes/notebook.ipynb). "


def notebook() -> dict[str, Any]:
    """The notebook as JSON, without outputs."""
    parts = re.split(r"```python\n(.*?)```\n", PAGE.read_text().replace(LINK, ""), flags=re.DOTALL)
    cells: list[dict[str, Any]] = []
    for number, part in enumerate(parts):
        if not (text := part.strip("\n")):
            continue
        cell: dict[str, Any] = {"cell_type": ("markdown", "code")[number % 2], "id": f"cell-{number}", "metadata": {}}
        code: dict[str, Any] = {"execution_count": None, "outputs": []} if number % 2 else {}
        cells.append({**cell, **code, "source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def text() -> str:
    return json.dumps(notebook(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(text())
