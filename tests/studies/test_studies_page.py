"""The page docs/studies.md: its example runs as a file of its own, prints what it says, and resumes."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import probssl.studies
from probssl.studies import Store

PAGE = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
EXAMPLE, TOLD = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL).groups()


def execute(folder):
    return subprocess.run(
        [sys.executable, "example.py"],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "LOKY_MAX_CPU_COUNT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_example_runs_and_runs_again(tmp_path, monkeypatch, capsys):
    (tmp_path / "example.py").write_text(EXAMPLE)
    first = execute(tmp_path)
    bar, *rows = TOLD.splitlines()
    assert [line.split()[:2] for line in first.stdout.splitlines()] == [row.split()[:2] for row in rows]
    for line, row in zip(first.stdout.splitlines(), rows, strict=True):
        assert abs(float(line.split()[2]) - float(row.split()[2])) < 0.03
    assert bar.split()[-2:] == first.stderr.splitlines()[-1].split()[-2:] == ["6/6", "trials"]
    with Store(tmp_path / "width" / "store.sqlite") as store:
        before = [trial.finished for trial in store.trials("mine/width")]
    assert len(before) == 6
    monkeypatch.chdir(tmp_path)
    runpy.run_path("example.py", run_name="__main__")
    assert capsys.readouterr().out == first.stdout
    with Store(tmp_path / "width" / "store.sqlite") as store:
        assert [trial.finished for trial in store.trials("mine/width")] == before


def test_it_has_about_twenty_lines():
    body = EXAMPLE[EXAMPLE.index("class ") : EXAMPLE.index("if __name__")]
    assert sum(bool(line.strip()) for line in body.splitlines()) <= 20


def test_columns_of_the_store_are_those_of_the_page():
    shown = re.search(r"\| column \| holds \|\n(.*?)\n\n", PAGE, flags=re.DOTALL).group(1)
    named = re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in shown.splitlines()[1:]))
    assert set(named) == set(probssl.grids.store.Trial.__dataclass_fields__)


def test_methods_of_the_contract_are_those_of_the_page():
    shown = re.search(r"\| a study writes \| what it is \|\n(.*?)\n\n", PAGE, flags=re.DOTALL).group(1)
    for name in re.findall(r"^\| `(\w+)", shown, flags=re.MULTILINE):
        assert hasattr(probssl.studies.Study, name)
