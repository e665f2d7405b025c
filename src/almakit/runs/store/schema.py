"""The tables of ``records.sqlite``. The comments are part of the database: ``sqlite3 records.sqlite .schema`` shows
them.

No table but ``sessions`` and ``chunks`` holds a time: ``images``, ``results`` and ``traces`` of two runs of one spec
are equal bit for bit.
"""

from __future__ import annotations

import sqlite3
from functools import cache

from .fields import columns, table
from .records import AttackInfo, ImageInfo, Record

VERSION = 1

RECORDED = (
    table("attacks", AttackInfo, "the run's attacks", "PRIMARY KEY (attack), UNIQUE (text))")
    + table("images", ImageInfo, "the clean images", "PRIMARY KEY (image))")
    + table(
        "results", Record, "one row per attack, image and target", "PRIMARY KEY (attack, image, target)) WITHOUT ROWID"
    )
)
TABLES = f"""
CREATE TABLE meta (            -- facts of the run as a whole
  key   TEXT PRIMARY KEY,      -- schema_version, spec_sha256, spec (TOML), weights_sha256, data_sha256, images, ...
  value TEXT NOT NULL
);
CREATE TABLE sessions (        -- every start of the program on this run
  session     INTEGER PRIMARY KEY,
  started     TEXT NOT NULL,   -- UTC, ISO 8601
  ended       TEXT,            -- UTC; NULL: still running, or killed
  outcome     TEXT,            -- done, interrupted, or the error's sentence
  environment TEXT NOT NULL    -- JSON: versions, git commit, hardware, threads
);
CREATE TABLE findings (        -- what preflight said before the run
  name     TEXT PRIMARY KEY,   -- e.g. low-clean-accuracy; what --allow takes
  severity TEXT NOT NULL,      -- refuse, warn or note
  sentence TEXT NOT NULL,      -- what was noticed
  way_out  TEXT NOT NULL       -- what to do about it
);
{RECORDED}CREATE TABLE chunks (          -- finished pieces of work; a row appears only after its file is in place
  kind     TEXT NOT NULL,      -- clean or attack
  attack   INTEGER NOT NULL,   -- attacks.attack; -1 for kind clean
  chunk    INTEGER NOT NULL,   -- place in the chunk grid
  round    INTEGER NOT NULL,   -- 0; with targets=all one round for each other class
  file     TEXT,               -- relative to the run folder; NULL: no image to store
  sha256   TEXT,               -- of the file
  images   INTEGER NOT NULL,   -- images in the chunk
  batch    INTEGER NOT NULL,   -- images sent through the model at a time (fewer after running out of memory)
  seconds  REAL NOT NULL,      -- wall time of attack and verdict
  session  INTEGER NOT NULL,   -- sessions.session that did it
  rows_sha256 TEXT,            -- of this row and its rows in images or results (rows.py); NULL: not taken
  PRIMARY KEY (kind, attack, chunk, round)
) WITHOUT ROWID;
CREATE TABLE traces (          -- the course of an attack on a few images
  attack INTEGER NOT NULL,
  image  INTEGER NOT NULL,
  target INTEGER NOT NULL,     -- -1: untargeted
  data   TEXT NOT NULL,        -- JSON {{name: [value per step]}}; null: not finite
  PRIMARY KEY (attack, image, target)
) WITHOUT ROWID;
CREATE TABLE failures (        -- pieces of work that were given up; the next start of the program tries them again
  kind    TEXT NOT NULL,       -- clean or attack
  attack  INTEGER NOT NULL,    -- attacks.attack; -1 for kind clean
  chunk   INTEGER NOT NULL,    -- place in the chunk grid
  round   INTEGER NOT NULL,    -- as in chunks
  images  INTEGER NOT NULL,    -- images in the chunk: they have no results
  tries   INTEGER NOT NULL,    -- how often it was tried
  reason  TEXT NOT NULL,       -- what happened the last time
  session INTEGER NOT NULL,    -- sessions.session that gave it up
  PRIMARY KEY (kind, attack, chunk, round)
) WITHOUT ROWID;
"""
LATER = [
    ("chunks", "rows_sha256", "TEXT"),
    *(
        (name, column.name, column.kind)
        for name, of in (("images", ImageInfo), ("results", Record))
        for column in columns(of)
        if column.later
    ),
]
"""Columns that databases begun by an earlier almakit lack: table, name, kind."""

RULES = (
    "SELECT 1 FROM meta WHERE key IN ('images', 'classes') AND (value = '' OR value GLOB '*[^0-9]*' OR length(value) "
    "> 15)",
    "SELECT 1 FROM attacks WHERE attack < 0",
    "SELECT 1 FROM images WHERE image < 0 OR image >= (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'images')",
    "SELECT 1 FROM chunks WHERE images < 1 OR batch < 1 OR (kind = 'attack' AND attack NOT IN (SELECT attack FROM "
    "attacks))",
    "SELECT 1 FROM results WHERE slot < 0 OR attack NOT IN (SELECT attack FROM attacks)",
)
"""What never has a row in a database that almakit wrote."""


@cache
def cells() -> dict[str, list[tuple[str, str]]]:
    """For each table its columns, each with an SQL expression that is true of a cell it cannot hold."""
    tests = {
        "INTEGER": "typeof({0}) != 'integer'",
        "TEXT": "typeof({0}) != 'text'",
        "REAL": "typeof({0}) != 'real' OR abs({0}) > 1.7976931348623157e308",
    }
    db = sqlite3.connect(":memory:")
    try:
        db.executescript(TABLES)
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        facts = {name: db.execute(f"PRAGMA table_info({name})").fetchall() for name in names}
    finally:
        db.close()
    # A key is never empty in what almakit writes, though SQLite would allow it.
    return {
        name: [
            (
                row[1],
                tests[row[2]].format(row[1])
                if row[3] or row[5]
                else f"{row[1]} IS NOT NULL AND ({tests[row[2]].format(row[1])})",
            )
            for row in found
        ]
        for name, found in facts.items()
    }
