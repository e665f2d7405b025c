"""The command line: sentences and exit codes, flags and configs that mean the same, models and data of the user's
own."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from runs.small_runs import ATTACKS, Net, contents, images, source_file

import almakit
from almakit import Run
from almakit.cli.main import main

ONE = ["--attack", ATTACKS[0]]


def run_of(source, *more):
    """The command of a run on the model and data of a file."""
    return ["run", "--model", f"{source}:model", "--data", f"{source}:data", *more]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return source_file(tmp_path_factory.mktemp("mine"))


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "a"
    two = [*ONE, "--attack", ATTACKS[1]]
    assert main(run_of(source, *two, "--batch-size", "8", "--out", str(out))) == 0
    return out


def test_the_help_of_every_verb_imports_no_torch():
    code = (
        "import sys; from almakit.cli.main import main, VERBS\n"
        "for verb in VERBS: assert main([verb, '--help']) == 0 and 'torch' not in sys.modules, verb"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_a_run_prints_its_table_and_a_second_does_nothing(folder, source, capsys, tmp_path, monkeypatch):
    passes = tmp_path / "passes"
    monkeypatch.setenv("PASSES", str(passes))
    assert main(["run", "--config", str(folder / "run.toml")]) == 0
    assert passes.read_text() == "8\n8\n", "the second run asked the model more than whether it is the same"
    out = capsys.readouterr()
    assert "ALMA 12" in out.out and "clean accuracy 97.5" in out.out and "Nothing is left to do" in out.err
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["complete"] and len(summary["attacks"]) == 2


def test_flags_config_and_python_are_the_same_run(folder, source, tmp_path):
    config = tmp_path / "my.toml"
    config.write_text(
        f'model = "{source}:model"\ndata = "{source}:data"\nbatch_size = 8\nattacks = {json.dumps(ATTACKS)}\n'
    )
    assert main(["run", "--config", str(config), "--out", str(tmp_path / "b"), "--quiet"]) == 0
    assert contents(tmp_path / "b") == contents(folder)
    run = almakit.evaluate(f"{source}:model", f"{source}:data", ATTACKS, out=tmp_path / "c", batch_size=8)
    assert contents(tmp_path / "c") == contents(folder)
    assert run.spec == Run(folder).spec


def test_without_out_the_folder_is_named_after_the_run(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(run_of(source, *ONE, "--limit", "4", "--json", "--quiet")) == 0
        assert json.loads(capsys.readouterr().out)["images"] == 4
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run"], 2, "give --model"),
        (["run", "--model", "mnist/smallcnn", "--attack", "ddn"], 2, "give --data"),
        (["run", "--model", "x", "--data", "mnist", "--attack", "alma(stps=3)"], 2, "has no setting 'stps'"),
        (["run", "--model", "x", "--data", "mnist", "--attack", "alna"], 2, "did you mean alma"),
        (["run", "--model", "mnist/smalcnn", "--data", "mnist-demo", *ONE], 2, "did you mean mnist/smallcnn"),
        (["run", "--model", "mnist/smallcnn-tiny", "--data", "mnits", *ONE], 2, "did you mean mnist"),
        (["run", "--model", "gone.onnx", "--data", "mnist-demo", *ONE], 1, "no file gone.onnx"),
        (["run", "--model", "m", "--data", "d", *ONE, "--limit", "0"], 2, "limit=0"),
        (["run", "--model", "m", "--data", "d", *ONE, "--limit", "x"], 2, "invalid int"),
        (["run", "--model", "m", "--data", "d", *ONE, "--shard", "3/2"], 2, "0/4 to 3/4"),
        (
            ["run", "--model", "m", "--data", "d", *ONE, "--shard", "0/2", "--batch-size", "auto"],
            2,
            "same for all shards",
        ),
        (["run", "--config", "gone.toml"], 2, "no config file"),
        (
            ["run", "--model", "mnist/smallcnn-tiny", "--data", "mnist-demo", *ONE, "--device", "cuda:7"],
            1,
            "choose --device cpu",
        ),
        (["verify", "nowhere"], 1, "no run folder"),
        (["merge", "nowhere"], 1, "no run folder"),
        (["export", "nowhere"], 1, "no run folder"),
        (["fetch"], 2, "say what to fetch"),
        (["fetch", "mnits"], 2, "did you mean mnist"),
        (["ls", "things"], 2, "invalid choice"),
        (["rum"], 2, "did you mean run"),
    ],
)
def test_mistakes_are_sentences_with_an_exit_code(arguments, code, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == code
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said
    assert not list(tmp_path.iterdir()), "a mistake leaves nothing behind"


def test_an_unexpected_error_is_short_unless_asked(source, tmp_path, capsys, monkeypatch):
    file = tmp_path / "odd.py"
    file.write_text(
        "import torch\n\n\ndef model():\n    def f(x):\n        raise RuntimeError('the wheels came off')\n    return "
        "f\n"
    )
    arguments = [
        "run",
        "--model",
        f"{file}:model",
        "--data",
        f"{source}:data",
        *ONE,
        "--out",
        str(tmp_path / "a"),
        "--no-preflight",
    ]
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert "the wheels came off" in said and "ALMAKIT_DEBUG" in said and "Traceback" not in said


def test_preflight_refuses_with_its_own_code(source, tmp_path, capsys):
    file = tmp_path / "bad.py"
    file.write_text(
        "import torch\n\n\ndef data():\n    x = torch.rand(40, 1, 8, 8)\n    return x, torch.arange(40) % 5\n\n\n"
        "def model():\n    return lambda x: (x.flatten(1)[:, :5] > 0.5).float()\n"
    )
    arguments = ["--model", f"{file}:model", "--data", f"{file}:data", "--attack", "alma(distance=l2, steps=3)"]
    assert main(["run", *arguments, "--out", str(tmp_path / "a")]) == 3
    assert "--allow" in capsys.readouterr().err and not (tmp_path / "a").exists()
    assert main(["doctor", *arguments]) == 3
    assert "refuse: non-differentiable" in capsys.readouterr().out


def test_failed_images_have_their_own_code(source, tmp_path, capsys):
    arguments = run_of(source, *ONE, "--budget", "1", "--out", str(tmp_path / "a"), "--quiet")
    assert main(arguments) == 4
    assert "Nothing was found for 39 attacked images" in capsys.readouterr().out


def test_a_changed_setting_is_refused_and_named(folder, capsys):
    assert main(["run", "--config", str(folder / "run.toml"), "--seed", "3"]) == 1
    assert "seed is 3 now and was 0" in capsys.readouterr().err


def test_shards_and_merge(folder, source, tmp_path, capsys):
    flags = run_of(source, *ONE, "--attack", ATTACKS[1], "--batch-size", "8", "--quiet")
    for number in range(3):
        assert main([*flags, "--out", str(tmp_path / "a"), "--shard", f"{number}/3"]) == 0
    assert "almakit merge" in capsys.readouterr().out
    assert main(["merge", str(tmp_path / "a")]) == 0
    assert "ALMA 12" in capsys.readouterr().out
    assert contents(tmp_path / "a") == contents(folder)


def test_verify_a_run_and_a_damaged_one(folder, source, tmp_path, capsys):
    assert main(["verify", str(folder)]) == 2
    assert f"--model {source}:model" in capsys.readouterr().err
    assert main(["verify", str(folder), "--model", f"{source}:model"]) == 0
    assert "Every claimed success fools the model" in capsys.readouterr().out
    shutil.copytree(folder, tmp_path / "copy")
    file = next((tmp_path / "copy").glob("adversarials/*/*.safetensors"))
    file.write_bytes(file.read_bytes()[:-3])
    assert main(["verify", str(tmp_path / "copy")]) == 1
    assert "damaged" in (said := capsys.readouterr().out) and "almakit run --config" in said


def test_exported_tables_and_images(source, tmp_path, capsys):
    out = tmp_path / "a"
    flags = run_of(source, *ONE, "--batch-size", "8", "--out", str(out), "--quiet")
    assert main(flags) == 0
    run = Run(out)
    assert main(["export", str(out)]) == 0 and main(["export", str(out), "--format", "parquet"]) == 0
    with (out / "records.csv").open() as opened:
        rows = list(csv.DictReader(opened))
    assert [float(row["distance"]) for row in rows] == [record.distance for record in run.records]
    from pyarrow import parquet

    table = parquet.read_table(out / "records.parquet").to_pydict()
    assert table["measured"] == [record.measured for record in run.records]
    assert table["id"] == [row["id"] for row in rows]
    assert main(["export", str(out), "--format", "png", "--out", str(tmp_path / "png")]) == 0
    survivors = sum(record.fooled_8bit and record.slot is not None for record in run.records)
    said = capsys.readouterr().out
    assert f"{survivors} images" in said and len(list((tmp_path / "png").glob("*/*.png"))) == survivors > 10
    assert f"{sum(record.slot is not None for record in run.records) - survivors} were left out" in said
    assert main(["verify", str(tmp_path / "png")]) == 1 and "no run folder" in capsys.readouterr().err
    assert main(["export", str(out), "--format", "png", "--out", str(tmp_path / "png")]) == 1


def test_lists(capsys):
    for what, words in (
        ("attacks", "minimal"),
        ("distances", "ciede2000"),
        ("models", "mnist/smallcnn-trades"),
        ("data", "cifar10"),
    ):
        assert main(["ls", what]) == 0
        assert words in capsys.readouterr().out
    assert main([]) == 2 and main(["--help"]) == 0 and main(["--version"]) == 0


@pytest.mark.shared_data
def test_fetch_says_what_is_at_hand(capsys):
    assert main(["fetch", "--list"]) == 0
    assert "mnist: 4 of 4 files in the cache" in capsys.readouterr().out
    assert main(["fetch", "mnist"]) == 0


def test_an_exported_program_is_evaluated_like_the_network(tmp_path, capsys):
    net, (x, labels) = Net().eval(), images(16)
    np.savez(tmp_path / "images.npz", x=x.numpy(), y=labels.numpy())
    file, out = tmp_path / "net.pt2", tmp_path / "run"
    torch.export.save(torch.export.export(net, (x[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},)), file)
    direct = almakit.evaluate(net, (x, labels), ATTACKS[0], batch_size=8)
    flags = ["run", "--model", str(file), "--data", f"npz:{tmp_path / 'images.npz'}", *ONE, "--batch-size", "8"]
    flags += ["--out", str(out), "--quiet"]
    assert main(flags) == 1 and "--trust" in capsys.readouterr().err
    assert main([*flags, "--trust"]) == 0
    run = Run(out)
    assert run.meta["code_sha256"] and [r.status for r in run.records] == [r.status for r in direct.records]
    assert [r.distance for r in run.records] == pytest.approx([r.distance for r in direct.records], rel=0.02)
    assert main(["verify", str(out), "--trust"]) == 0
    file.write_bytes(file.read_bytes() + b" ")
    assert main([*flags, "--trust"]) == 1, "a changed model file is refused"


def test_a_model_that_is_only_in_python_says_so(tmp_path, capsys):
    almakit.evaluate(Net(), images(8), ATTACKS[0], out=tmp_path, batch_size=8)
    assert main(["run", "--config", str(tmp_path / "run.toml")]) == 1
    assert "almakit.evaluate" in capsys.readouterr().err


def test_the_demo_runs_without_any_data_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("ALMAKIT_DATA", raising=False)
    monkeypatch.setenv("ALMAKIT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ALMAKIT_OFFLINE", "1")
    assert main(["demo", "--attack", "alma(distance=l2, steps=30)", "--out", str(tmp_path / "demo")]) == 0
    assert "64 images" in capsys.readouterr().out
    assert len(Run(tmp_path / "demo").records) == 64
    assert os.listdir(tmp_path / "demo")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "--eps", "8/255"], "--epsilon linf=8/255 adds robust accuracy at a radius"),
        (["run", "--steps=20"], 'steps is part of an attack\'s text, --attack "ddn(steps=100)"'),
        (["run", "--norm", "l2"], "distance is part of an attack's text"),
        (["run", "--dataset", "mnist"], "did you mean --data?"),
        (["run", "--batch_size", "4"], "did you mean --batch-size?"),
        (["doctor", "--zzzzzz"], "almakit doctor --help lists all flags"),
        (["report", "a", "-x"], "has no argument '-x'"),
    ],
)
def test_an_unknown_flag_is_answered_with_the_right_one(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_the_doctor_estimates_the_time_of_each_attack(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["doctor", "--model", "mnist/smallcnn-tiny", "--data", "mnist-demo", "--limit", "64"]
    attacks = ["--attack", "soft-walk(distance=l2)", "--attack", "soft-walk(distance=ssim)"]
    assert main([*flags, *attacks]) == 0
    said = capsys.readouterr().out
    times = [float(part.split(" passes")[0]) for part in said.split("the time of ")[1:]]
    assert len(times) == 2 and min(times) > 0 and said.count("about ") == 2, said
