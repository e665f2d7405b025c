"""Run folders that somebody else made with care: hashes that fit, and inside them paths, code, formulas, links and
values that almakit never writes."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save
from security.hostile_files import Payload, evil_py

from almakit.runs.spec import RunSpec
from almakit.runs.store import Store

Change = Callable[[Path], None]


def summed(folder: Path) -> None:
    """Makes every sum and hash fit what the folder holds now, as its author would."""
    with Store(folder / "records.sqlite") as store:
        spec = RunSpec.from_toml(folder / "run.toml")
        store.db.execute("UPDATE meta SET value = ? WHERE key = 'spec_sha256'", (spec.sha256,))
        store.db.execute("UPDATE meta SET value = ? WHERE key = 'spec'", (spec.to_toml(),))


def sql(statement: str, *values: object) -> Change:
    def change(folder: Path) -> None:
        with sqlite3.connect(folder / "records.sqlite", isolation_level=None) as db:
            db.execute(statement, values)
        db.close()

    return change


def toml(**values: str) -> Change:
    """Settings of run.toml, as TOML."""

    def change(folder: Path) -> None:
        file = folder / "run.toml"
        kept = [line for line in file.read_text().splitlines() if line.partition(" = ")[0] not in values]
        file.write_text("\n".join([*kept, *(f"{name} = {value}" for name, value in values.items())]) + "\n")

    return change


def file(name: str, content: bytes) -> Change:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    return change


def chunk_file(tensors: dict[str, object]) -> Change:
    """Other contents for the first file of adversarial images, its hash made to fit."""

    def change(folder: Path) -> None:
        content = save(tensors) if isinstance(tensors, dict) else tensors  # type: ignore[arg-type]
        place = next(iter(sorted(folder.glob("adversarials/*/*.safetensors"))))
        place.write_bytes(content)
        name = place.relative_to(folder).as_posix()
        sql("UPDATE chunks SET sha256 = ? WHERE file = ?", hashlib.sha256(content).hexdigest(), name)(folder)

    return change


def link(name: str, to: Path) -> Change:
    def change(folder: Path) -> None:
        place = folder / name
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(to)

    return change


def certificate(**values: object) -> Change:
    """A file of certified radii with these values in it, and the run's own hash of the weights."""

    def change(folder: Path) -> None:
        with sqlite3.connect(folder / "records.sqlite") as db:
            (weights,) = db.execute("SELECT value FROM meta WHERE key = 'weights_sha256'").fetchone()
        db.close()
        content = {"format": 1, "norm": "linf", "method": "ibp", "weights_sha256": weights, "radii": {"0": 0.001}}
        file("certificates/linf-ibp.json", json.dumps(content | values).encode())(folder)

    return change


def cases(mark: Path, victim: Path) -> dict[str, list[Change]]:
    """Hostile folders by name: what is done to a good one. ``mark`` is made by whatever executes, ``victim`` is a
    folder nobody may write to."""
    code = evil_py(mark.parent, mark)
    evil, checkpoint = f"{code}:f", mark.parent / "evil.pt"
    torch.save({"state_dict": {}, "more": Payload(mark)}, checkpoint)
    pickled, secret = pickle.dumps(Payload(mark)), victim / "secret"
    meta, text = "INSERT OR REPLACE INTO meta VALUES", "UPDATE attacks SET text = ? WHERE attack = 0"
    names = json.dumps(["<script>alert(1)</script>", "=1+1", "\ud800", "../x", "{{7*7}}"])
    settings = '{"__class__": "os.system", "steps": {"a": [1, {}]}, "x": "\\ud800"}'
    large, chunks = np.zeros((40, 1, 28, 28), dtype=np.float32), "WHERE kind = 'attack'"
    made: dict[str, list[Change]] = {
        "an attack that is a file": [sql(text, f"{evil}(steps=3)")],
        "an attack inside an attack": [sql(text, f"search(attack={evil})")],
        "an attack of a library": [sql(text, "evil:Attack(steps=3)")],
        "an attack in quotes": [sql(text, f'"{evil}"(steps=3)')],
        "an attack in both": [sql(text, evil), toml(attacks=json.dumps([evil]))],
        "a model that is a file": [toml(model=json.dumps(evil)), sql(f"{meta} ('model', ?)", evil)],
        "trust and a checkpoint": [toml(trust="true", model=json.dumps(f"mnist/smallcnn-tiny@{checkpoint}"))],
        "trust and a program": [toml(trust="true", model=json.dumps(str(mark.parent / "evil.pt2")))],
        "data that are a file": [toml(data=json.dumps(evil)), sql(f"{meta} ('data', ?)", evil)],
        "targets that are a file": [toml(targets=json.dumps("/etc/hostname.csv"))],
        "a model on the network": [toml(model='"hf:evil/model"')],
        "a model from Python": [toml(model='"python:Evil"')],
        "a distance that is a file": [sql("UPDATE attacks SET distance = ?", evil)],
        "a distance that is a path": [sql("UPDATE attacks SET distance = ?", "../../../victim")],
        "a distance without a name": [sql("UPDATE attacks SET distance = ''")],
        "code files": [file(f"{name}.py", code.read_bytes()) for name in ("almakit", "sitecustomize", "conftest")],
        "a setting nobody knows": [toml(__class__='"x"')],
        "settings of JSON": [sql("UPDATE attacks SET settings = ?", settings)],
        "class names": [sql(f"{meta} ('class_names', ?)", names)],
        "class names of numbers": [sql(f"{meta} ('class_names', '[1, null, {{}}]')")],
        "class names that are no list": [sql(f"{meta} ('class_names', '3')")],
        "class names that are no JSON": [sql(f"{meta} ('class_names', '[')")],
        "a formula for an image": [sql("UPDATE images SET id = '=cmd|''/C calc''!A' || image")],
        "a formula for an attack": [sql("UPDATE attacks SET title = '@SUM(1)'")],
        "a name of many bytes": [sql("UPDATE attacks SET text = ? || attack, title = ?", "a" * 100000, "b" * 100000)],
        "bytes for a name": [sql("UPDATE images SET id = CAST(x'fffe' AS TEXT) WHERE image = 0")],
        "a blob for a name": [sql("UPDATE images SET id = x'fffe' WHERE image = 0")],
        "a trigger": [sql("CREATE TRIGGER evil AFTER INSERT ON chunks BEGIN DELETE FROM results; END")],
        "a view": [sql("ALTER TABLE traces RENAME TO t"), sql("CREATE VIEW traces AS SELECT * FROM t")],
        "a virtual table": [sql("DROP TABLE traces"), sql("CREATE VIRTUAL TABLE traces USING fts5(attack, image)")],
        "a default that is a function": [sql("CREATE TABLE extra (a DEFAULT (randomblob(9)), b AS (abs(a)))")],
        "labels below zero": [sql("UPDATE images SET label = -7")],
        "labels beyond every class": [sql("UPDATE images SET label = 9223372036854775807")],
        "text for a number": [sql("UPDATE results SET target = '../../x' WHERE image = 0")],
        "text for a distance": [sql("UPDATE results SET measured = 'x', l2 = 'y'")],
        "infinite distances": [sql("UPDATE results SET measured = 9e999, distance = -9e999")],
        "predictions beyond every class": [sql("UPDATE results SET prediction = 1 << 62, top = '[[1e99, \"x\"]]'")],
        "top classes that are no list": [sql("UPDATE results SET top = '{}'"), sql("UPDATE images SET top = '7'")],
        "slots beyond the file": [sql("UPDATE results SET slot = 1000 WHERE slot IS NOT NULL")],
        "slots below zero": [sql("UPDATE results SET slot = -1 WHERE slot IS NOT NULL")],
        "images not there": [sql(f"UPDATE {table} SET image = image + 1000") for table in ("images", "results")],
        "attacks not there": [sql("UPDATE attacks SET attack = attack + 50")],
        "an attack below zero": [
            sql(f"UPDATE {table} SET attack = -3 WHERE attack = 0") for table in ("attacks", "results", "chunks")
        ],
        "a chunk of no images": [sql("UPDATE chunks SET images = 0, batch = 0")],
        "a file outside": [sql(f"UPDATE chunks SET file = '../victim/secret' {chunks}")],
        "a file of an absolute name": [sql(f"UPDATE chunks SET file = ? {chunks}", str(secret))],
        "a file with a null byte": [sql(f"UPDATE chunks SET file = 'a' || char(0) || 'b' {chunks}")],
        "a file that is a link": [link("originals/00000.safetensors", secret)],
        "a report that is a link": [link("report", victim)],
        "pictures that are a link": [link("png", victim)],
        "a table that is a link": [link("records.parquet", secret)],
        "images of another kind": [chunk_file({"images": np.zeros((40, 2), dtype=np.int64)})],
        "images without a name": [chunk_file({"other": large})],
        "images that are not finite": [chunk_file({"images": large * np.float32("nan")})],
        "images that are a pickle": [chunk_file(pickled)],
        "traces of anything": [
            sql('INSERT OR REPLACE INTO traces VALUES (0, 0, -1, \'{"step": ["x", {}], "<b>": [1e400]}\')')
        ],
        "traces that are no JSON": [sql("INSERT OR REPLACE INTO traces VALUES (0, 0, -1, '{{')")],
        "an environment of anything": [
            sql("UPDATE sessions SET environment = ?", '{"python": [], "<b>": {"a": "\\\\ud800"}}')
        ],
        "an environment that is no JSON": [sql("UPDATE sessions SET environment = '[['")],
        "certificates that are a link": [link("certificates", victim)],
        "a certificate that is a link": [link("certificates/linf-ibp.json", secret)],
        "certificates of nowhere": [link("certificates", victim / "new")],
        "a certificate of another place": [certificate(norm="../../victim/x")],
        "a certificate of anything": [certificate(radii={"0": "<script>", "1": [], "-7": 1})],
        "a certificate of impossible radii": [certificate(radii={"0": -1, "1": 1e308, "99999": 3})],
        "a certificate that is a pickle": [file("certificates/linf-ibp.json", pickled)],
        "a certificate of many brackets": [file("certificates/linf-ibp.json", b"[" * 200000)],
        "a certificate that lies": [certificate(radii={str(image): 0.9 for image in range(12)})],
        "a summary of somebody else": [file("summary.json", b'{"__proto__": 1}')],
        "counts that are text": [sql("UPDATE meta SET value = 'many' WHERE key IN ('images', 'classes')")],
        "a batch size that is auto": [toml(batch_size='"auto"')],
        "a run of a later format": [toml(format="99")],
        "a config that is no TOML": [file("run.toml", b"model = [\xff")],
        "a database that is none": [file("records.sqlite", b"SQLite format 3\0" + bytes(100))],
        "a database that is a program": [file("records.sqlite", code.read_bytes())],
        "findings": [
            sql("INSERT OR REPLACE INTO findings VALUES ('<script>', 'refuse', '=1+1', 'javascript:alert(1)')")
        ],
    }
    return made


def hostile(good: Path, place: Path, changes: list[Change]) -> Path:
    """A copy of a good folder with the changes made and, where the folder can still be summed, sums that fit."""
    shutil.copytree(good, place)
    for change in changes:
        change(place)
    try:
        summed(place)
    except Exception:  # its author could not either: then it is as it is
        for left in place.glob("records.sqlite-*"):
            os.remove(left)
    return place
