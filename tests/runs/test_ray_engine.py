"""The Ray engine: the local engine's numbers bit for bit, whatever dies or joins on the way; chunks that cannot be done
are given up, not the run."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch
from runs.ray_injections import Cluster, RayArena, Watcher
from runs.small_runs import ATTACKS, Net, contents, images, small_run, source_file

from almakit import Run
from almakit.cli.main import main
from almakit.errors import BadInput, BadModel
from almakit.runs import session
from almakit.runs.failures import NothingWorks
from almakit.runs.ray import RayExecutor


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    cluster = Cluster(nodes=2)
    yield RayArena(tmp_path_factory.mktemp("ray"), cluster)
    cluster.close()


@pytest.mark.slow  # a cluster of three nodes takes minutes to start on two busy cores
def test_a_worker_and_a_node_die_and_a_node_joins(arena):
    injected = arena.worker_killed()
    assert injected.survived, injected.why
    injected = arena.node_killed()
    assert injected.survived, injected.why
    # One node is left; another joins in mid-run and does its share.
    injected, _ = arena.run("node joins", lambda pids: arena.cluster.add(), 11, "changed: 3 nodes")
    assert injected.survived, injected.why
    pids = arena.place / f"pids-{arena.count}"
    assert len({*pids.read_text().split()} - {str(os.getpid())}) >= 2, "both nodes computed"


class Sick(Net):
    """Cannot do the chunk that holds a certain image."""

    def __init__(self, image: torch.Tensor, cure: Path):
        super().__init__()
        self.image, self.cure = image, str(cure)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (
            bool((x - self.image).flatten(1).abs().sum(1).lt(1e-6).any())
            and len(x) < 20
            and not os.path.exists(self.cure)
        ):
            raise RuntimeError("this image is more than I can bear")
        return super().forward(x)


@pytest.mark.slow  # a cluster of three nodes takes minutes to start on two busy cores
def test_a_chunk_that_fails_three_times_is_given_up_and_the_run_goes_on(arena, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "BACKOFF", 0.05)
    x, _ = images()
    model, watcher = Sick(x[17], tmp_path / "cure"), Watcher(-1, None)

    def go(out: Path) -> Run:
        with closing(RayExecutor("auto", progress=watcher)) as engine:
            return small_run(out, model=model, engine=engine, progress=watcher, preflight=False)

    run = go(tmp_path / "run")
    (failure,) = run.failures
    assert (failure.key.kind, failure.key.chunk, failure.tries, failure.images) == ("clean", 2, 3, 8)
    assert "RuntimeError: this image is more than I can bear" in failure.reason
    assert sum("It is tried again" in sentence for sentence in watcher.said) == 2 and any(
        "given up after 3 tries" in sentence for sentence in watcher.said
    )
    assert len(run.records) == 2 * 32 and not run.summary["complete"] and run.summary["missing_records"] == 16
    assert run.summary["failed_chunks"][0]["chunk"] == 2 and "more than I can bear" in run.table()
    (tmp_path / "cure").touch()
    assert go(tmp_path / "run").failures == []
    small_run(tmp_path / "local", model=model, preflight=False)
    assert contents(tmp_path / "run") == contents(tmp_path / "local")


@pytest.mark.slow  # needs the cluster
def test_a_mistake_ends_the_run_with_its_sentence(arena, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "BACKOFF", 0.02)
    x, labels = images()
    with (
        pytest.raises(NothingWorks, match=r"none of the first 3 chunks.*label 9 of image"),
        closing(RayExecutor("auto")) as engine,
    ):
        small_run(tmp_path, data=(x, torch.full_like(labels, 9)), engine=engine, preflight=False)


@pytest.mark.slow  # needs the cluster
def test_a_users_file_travels_and_the_command_line_knows_the_engine(arena, tmp_path, capsys):
    source = source_file(tmp_path)
    flags = [*f"run --model {source}:model --data {source}:data --batch-size 8".split(), "--attack", ATTACKS[0]]
    assert main([*flags, "--out", str(tmp_path / "ray"), "--engine", "ray", "--address", "auto"]) == 0
    assert "Ray: " in capsys.readouterr().err
    assert main([*flags, "--out", str(tmp_path / "local"), "--quiet"]) == 0
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert Run(tmp_path / "ray").sessions[0]["environment"]["engine"] == "ray"


TABLE = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

def lender():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Softsign(), torch.nn.Linear(8, 2))
"""


@pytest.mark.slow  # needs the cluster
@pytest.mark.parametrize("more", ["", "--surrogate net.py:lender", "--goal threshold(above=0.5)", "scenes"])
def test_tables_surrogates_goals_and_label_maps_travel(arena, tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(TABLE)
    rows = [f"{place},{place % 3},{10 - place},{place % 2}" for place in range(11)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,y", *rows]))
    flags = f"--model net.py:build --data table:rows.csv?label=y&integer=b --no-preflight {more}"
    if more == "scenes":
        flags = "--model scenes/unet-small --data scenes --limit 5 --goal pixels(share=0.5)"
    flags = f"run {flags} --attack ddn(steps=8) --batch-size 3 --quiet".split()
    assert main([*flags, "--out", "ray", "--engine", "ray", "--address", "auto"]) in (0, 4)
    assert main([*flags, "--out", "local"]) in (0, 4)
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


@pytest.mark.slow  # needs the cluster
def test_what_cannot_travel_is_a_sentence(arena, tmp_path):
    import threading

    lock = threading.Lock()
    net = Net()

    def model(x: torch.Tensor) -> torch.Tensor:
        with lock:
            return net(x)

    with pytest.raises(BadModel, match="cannot be sent to other processes"), closing(RayExecutor("auto")) as engine:
        small_run(tmp_path, model=model, engine=engine)


def test_mistakes_are_sentences(tmp_path, capsys):
    source = source_file(tmp_path)
    flags = f"run --model {source}:model --data {source}:data --attack ddn(steps=2) --out {tmp_path / 'a'}".split()
    assert main([*flags, "--address", "auto"]) == 2 and "--engine ray" in capsys.readouterr().err
    assert main([*flags, "--engine", "ray", "--workers", "0"]) == 2 and "at least 1" in capsys.readouterr().err
    with pytest.raises(BadInput, match="no engine 'spark'"):
        small_run(tmp_path / "b", engine="spark")
    with pytest.raises(BadInput, match="workers"):
        small_run(tmp_path / "c", workers=0)


@pytest.mark.slow  # imports Ray
def test_no_cluster_is_a_sentence(tmp_path):
    code = "from almakit.runs.ray import RayExecutor; RayExecutor('127.0.0.1:1')._connect()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "Unavailable: no Ray cluster answers at '127.0.0.1:1'" in done.stderr, done.stderr[-600:]
