"""The versions that are promised are those that are tried (`python -m tests.versions`), by tests that exist."""

import re

import pytest
import versions


def test_every_file_that_a_trial_runs_exists() -> None:
    files = {file for trial in versions.trials("python") for file in trial.tests}
    assert [file for file in sorted(files) if not (versions.ROOT / "tests" / file).is_file()] == []


def test_all_promised_versions_and_all_lower_bounds_are_tried() -> None:
    trials = {trial.name: trial for trial in versions.trials("python")}
    text = (versions.ROOT / "pyproject.toml").read_text()
    assert f'requires-python = ">={versions.PYTHONS[0]}"' in text
    first, end = map(int, re.findall(r'"torch>=2\.(\d+),<2\.(\d+)"', text)[0])
    assert [name for name in trials if name.startswith("torch")] == [f"torch-2.{n}" for n in range(first, end)]
    before_tests = text[text.index("dependencies = [") : text.index("bench = [")]
    bounds = re.findall(r'"([\w-]+)>=([\d.]+)"', before_tests)
    assert sorted(trials["lowest"].constraints) == sorted(f"{name}=={bound}" for name, bound in bounds)


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--only", "torch-2.1"], "invalid choice: 'torch-2.1'"), (["--tests", "no.py"], "tests/no.py: not there")],
)
def test_a_trial_or_file_that_does_not_exist_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        versions.main(words)
    assert said in capsys.readouterr().err
