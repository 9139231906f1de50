"""The shipped recipes: `recipes/*.yaml` of a checkout, or the same files in an installed wheel, and those of papers."""

from functools import cache
from pathlib import Path

from mini_tf.recipe.kind_folders import own_folders


@cache
def main_folder() -> Path:
    """The folder of the shipped recipes: inside the package if installed from a wheel, else beside it."""
    package = Path(__file__).parents[1]
    inside = package / "recipes"
    return inside if inside.is_dir() else package.parent / "recipes"


def presets() -> dict[str, Path]:
    """Name and file of every shipped recipe, sorted by name."""
    folders = [main_folder(), *(path / "recipes" for paper in own_folders() for path in paper.paths)]
    return dict(sorted((file.stem, file) for folder in dict.fromkeys(folders) for file in folder.glob("*.yaml")))


def summary(file: Path) -> str:
    """The first comment line of a recipe."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ").rstrip() for line in lines if line.startswith("#")), "")
