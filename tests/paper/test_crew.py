"""Cells done beside each other by worker processes: the numbers of one process, the sentences too, and a process that
dies costs its cell alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from almakit.cli.main import main
from almakit.paper.crew import Crew, Lost, Order
from almakit.paper.estimate import estimate, unfinished
from almakit.paper.reproduce import Settings, crowd, plan
from almakit.runs.failures import SpecChanged
from almakit.runs.spec import RunSpec

FLAGS = ["reproduce", "mnist", "--limit", "2", "--budget", "small", "--attacks", "alma,ddn", "--distances", "l2"]
FLAGS += ["--model", "mnist/smallcnn-tiny-ibp", "--no-figures"]


def numbers(out: Path) -> dict[str, list[tuple[object, ...]]]:
    found = {}
    for place in sorted(out.glob("runs/*/*/records.sqlite")):
        with sqlite3.connect(place) as db:
            found[place.parent.name] = [
                row
                for table in ("images", "results", "traces", "findings")
                for row in db.execute(f"SELECT * FROM {table} ORDER BY 1, 2")
            ] + db.execute("SELECT kind, attack, chunk, sha256 FROM chunks ORDER BY 1, 2, 3").fetchall()
    return found


def test_two_processes_give_the_bits_of_one_and_certify_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*FLAGS, "--workers", "1", "--quiet", "--out", str(tmp_path / "one")]) == 0
    capsys.readouterr()
    assert main([*FLAGS, "--workers", "2", "--out", str(tmp_path / "two")]) == 0
    assert numbers(tmp_path / "one") == numbers(tmp_path / "two") != {}
    said = capsys.readouterr().err
    assert "[2/2]" in said and "few-images" in said, "what the runs said is passed on"
    assert said.count("2 of 2 images certified") == 1, "the second cell has the same images"
    bands = [path.read_text() for path in sorted((tmp_path / "two").glob("runs/*/*/certificates/*.json"))]
    assert len(bands) == 2 and bands[0] == bands[1]


def test_errors_come_back_as_they_are_and_a_dead_process_costs_its_cell(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import os, torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.zeros(10, 784))\n"
        "    def forward(self, x):\n"
        "        os.kill(os.getpid(), 9)\n"
        "def net():\n"
        "    return Net()\n"
    )
    good = RunSpec(model="mnist/smallcnn-tiny", data="mnist-demo", attacks=("ddn(steps=3)",), limit=4, batch_size=4)
    bad = RunSpec(model=f"{tmp_path}/net.py:net", data="mnist-demo", attacks=("ddn(steps=3)",), limit=4, batch_size=4)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.toml").write_text(RunSpec.from_dict({**good.to_dict(), "seed": 7}).to_toml())
    orders = [Order(bad, tmp_path / "a", False, 1), Order(good, tmp_path / "b", False, 1)]
    found = dict(Crew([*orders, Order(good, tmp_path / "c", False, 1)], workers=1))
    assert isinstance(found[0], Lost) and "ended under it 3 times (signal 9)" in str(found[0])
    assert isinstance(found[1], SpecChanged) and found[2] == []
    assert (tmp_path / "c" / "summary.json").is_file()


def test_the_estimate_grows_with_the_work_and_falls_with_the_workers(tmp_path: Path) -> None:
    def made(limit: int, attacks: tuple[str, ...]) -> float:
        settings = Settings("mnist", tmp_path, "small", attacks, ("l2",), ("mnist/smallcnn-tiny",), limit=limit)
        return estimate(plan(settings))

    assert made(500, ("ddn",)) > 4 * made(20, ("ddn",)), "32 images are tried, and 500 take longer"
    assert made(20, ("cw",)) > 5 * made(20, ("ddn",)), "a fifth of the images, 58 times the forwards"
    whole = plan(Settings("mnist", tmp_path, "small", models=("mnist/smallcnn-tiny",), limit=20))
    assert crowd(whole, 3) == (3, 1) and len(unfinished(whole)) == len(whole.tasks) == 14
    few = plan(Settings("mnist", tmp_path, "small", ("ddn",), models=("mnist/smallcnn-tiny",), limit=2))
    assert crowd(few)[0] == 1, "processes are not worth starting for a second of work"
