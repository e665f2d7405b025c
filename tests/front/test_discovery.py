"""What there is can be found: every setting has a meaning, tables fit a terminal, a start to write on, a page of all
flags."""

from __future__ import annotations

import pkgutil
import re
from dataclasses import fields
from pathlib import Path

import pytest
from docs.prose import site_pages

import almakit
from almakit import registry
from almakit.attacks.meanings import GENERAL, documented, meaning
from almakit.cli.arguments import parser_of
from almakit.cli.main import VERBS, main
from almakit.runs.spec import RunSpec

DOCS = Path(__file__).resolve().parents[2] / "docs"


def printed(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert main(list(command)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", registry.BUILT_IN["attacks"])
def test_all_about_an_attack(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = registry.get("attacks", name)
    text = printed(capsys, "ls", "attacks", name)
    assert text.startswith(f"{name}: ") and kind.paper in " ".join(text.split()) and kind.cost in " ".join(text.split())
    for setting in fields(kind):
        assert len(meaning(kind, setting.name)) > 10, f"write {setting.name} into the Args of {kind.__name__}"
        assert re.search(rf"^{setting.name}  ", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 100
    assert f"almakit.{kind.__name__}(" in text
    # The example in a text builds the attack, where it needs nothing else.
    if name not in ("search", "ensemble"):
        example = re.search(r'in a text  "(.*)"', text)
        assert example is not None and isinstance(almakit.attacks.get(example[1]), kind)


def test_no_meaning_without_a_setting() -> None:
    kinds = [registry.get("attacks", name) for name in registry.BUILT_IN["attacks"]]
    settings = {kind: {f.name for f in fields(kind)} for kind in kinds}
    assert all(set(documented(kind)) <= settings[kind] for kind in kinds), "a setting that is gone"
    assert set(GENERAL) <= set.union(*settings.values())


def test_names_as_people_write_them_and_wrong_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "ls", "attacks", "DDN") == printed(capsys, "ls", "attacks", "ddn")
    assert "adaptive=false" in printed(capsys, "ls", "attacks", "ddn")
    assert 'distance="l2"' in printed(capsys, "ls", "attacks", "alma")
    assert "Largest absolute difference" in printed(capsys, "ls", "distances", "Linf")
    assert "99.44 of 10000" in printed(capsys, "ls", "models", "mnist/smallcnn")
    assert "handwritten" in printed(capsys, "ls", "data", "mnist")
    for command, sentence in (
        (("attacks", "dnd"), "mean ddn"),
        (("goals", "top-l"), "mean top-k"),
        (("models", "mnist/smalcnn"), "mean mnist/smallcnn"),
        (("data", "mnits"), "mean mnist"),
    ):
        assert main(["ls", *command]) == 2 and sentence in capsys.readouterr().err


@pytest.mark.parametrize("what", ["attacks", "distances", "goals", "models", "data"])
def test_tables_fit_a_hundred_columns(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "ls", what)
    assert max(map(len, text.splitlines())) <= 100
    known = {
        "attacks": registry.names("attacks"),
        "distances": registry.names("distances"),
        "goals": registry.names("goals"),
        "models": almakit.models.names(),
        "data": almakit.data.names(),
    }
    assert all(re.search(rf"^{re.escape(name)} ", text, re.MULTILINE) for name in known[what])


def test_a_start_to_write_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "almakit run --config run.toml" in printed(capsys, "init")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my_attack.py", "my_model.py", "run.toml"]
    text = Path("run.toml").read_text()
    spec = RunSpec.from_toml("run.toml")
    assert spec.model == "my_model.py:build" and spec.limit == 32 and spec.seed == 0
    for field in fields(RunSpec):
        assert re.search(rf"^#?{field.name} =", text, re.MULTILINE) and field.metadata["help"] in text
    uncommented = re.sub(r"^#(\w+ = .+)$", r"\1", text, flags=re.MULTILINE)
    (tmp_path / "whole.toml").write_text(uncommented)
    assert RunSpec.from_toml(tmp_path / "whole.toml") == spec, "what stands there as a comment is the default"
    (tmp_path / "whole.toml").unlink()
    assert main(["run", "--config", "run.toml", "--limit", "12", "--quiet"]) in (0, 4)
    (place,) = Path("runs").iterdir()
    run = almakit.open(place)
    assert (
        len(run.attacks) == 2 and run.summary["complete"] and run.summary["attacks"][1]["success_rate"]["value"] > 0.8
    )
    assert Path("run.toml").read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my_attack.py", "my_model.py", "run.toml", "runs"]
    assert main(["init"]) == 2 and "run.toml is there already and is not overwritten" in capsys.readouterr().err
    assert main(["init", "other"]) == 0 and (tmp_path / "other" / "run.toml").is_file()
    assert main(["run", "--config", str(place / "run.toml"), "--quiet"]) in (0, 4)
    assert len(list(Path("runs").iterdir())) == 1, "a run's own goes on there"


def test_the_page_of_the_api_has_public_names_that_exist() -> None:
    """Names behind the package's own are for what has none."""
    pages = site_pages()
    listed = [path for name in pages.API for path in pages.api_objects(name)]
    public = {id(getattr(almakit, name)): name for name in almakit.__all__ if name != "__version__"}
    for name in listed:
        if name.startswith("almakit.bridges."):
            continue  # they import the other libraries, which need not be installed
        found = pkgutil.resolve_name(name)
        assert name in (f"almakit.{public.get(id(found))}", name if id(found) not in public else "", "almakit.open"), (
            f"{name} is almakit.{public[id(found)]}"
        )
    assert {"almakit.attack", "almakit.Result", "almakit.Run", "almakit.open"} <= set(listed)


def test_the_page_of_all_flags_lists_them() -> None:
    text = site_pages().commands()
    for verb in VERBS:
        assert f"### {verb}\n" in text
        for action in parser_of(verb, add_help=False)._actions:
            assert all(f"<code>{flag}" in text or f", {flag}" in text for flag in action.option_strings)
    assert "<!-- every command -->" in (DOCS / "cli.md").read_text()
