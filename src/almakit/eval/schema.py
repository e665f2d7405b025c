"""The tables of ``records.sqlite``. The comments are part of the database: ``sqlite3 records.sqlite .schema`` shows them.

No table but ``sessions`` and ``chunks`` holds a time: ``images``, ``results`` and ``traces`` of two runs of one spec are equal bit for bit.
"""

from __future__ import annotations

import sqlite3
from functools import cache

VERSION = 1

TABLES = """
CREATE TABLE meta (            -- facts of the run as a whole
  key   TEXT PRIMARY KEY,      -- schema_version, spec_sha256, spec (TOML), weights_sha256, data_sha256, images, class_names (JSON), shard, ...
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
CREATE TABLE attacks (
  attack   INTEGER PRIMARY KEY, -- place in the run's list, from 0
  text     TEXT NOT NULL UNIQUE, -- canonical, e.g. alma(distance=l2, steps=100)
  title    TEXT NOT NULL,      -- the method's name for people
  distance TEXT NOT NULL,      -- what it minimises or bounds
  minimal  INTEGER NOT NULL,   -- 1: smallest perturbation, 0: fixed epsilon
  targeted INTEGER NOT NULL,   -- 1: towards a class, 0: away from the label
  paper    TEXT NOT NULL,      -- where the method is from
  cost     TEXT NOT NULL,      -- what a step costs, in words
  settings TEXT NOT NULL       -- JSON of all settings, defaults included
);
CREATE TABLE images (          -- the clean images
  image      INTEGER PRIMARY KEY, -- place in the run, from 0
  id         TEXT NOT NULL,    -- the data set's name for it
  sha256     TEXT NOT NULL,    -- of its float32 values, little-endian, in memory order (C, H, W)
  label      INTEGER NOT NULL, -- true class
  target     INTEGER NOT NULL, -- class that targeted attacks aim at; -1: untargeted, or all others in turn
  chunk      INTEGER NOT NULL, -- place in the chunk grid; its row in originals/<chunk> is image - first image of the chunk
  prediction INTEGER NOT NULL, -- the model's class for it; -1: logits not finite
  top        TEXT NOT NULL,    -- JSON [[class, probability], ...], the largest first
  pixels     TEXT              -- segmentation: JSON [[class, pixels labelled so, predicted so, both], ...], unlabelled ones apart; NULL: one class per image
);
CREATE TABLE chunks (          -- finished pieces of work; a row appears only after its file is in place
  kind     TEXT NOT NULL,      -- clean or attack
  attack   INTEGER NOT NULL,   -- attacks.attack; -1 for kind clean
  chunk    INTEGER NOT NULL,   -- place in the chunk grid
  round    INTEGER NOT NULL,   -- 0; with targets=all one round for each other class
  file     TEXT,               -- relative to the run folder; NULL: no image to store
  sha256   TEXT,               -- of the file
  images   INTEGER NOT NULL,   -- images in the chunk
  batch    INTEGER NOT NULL,   -- images sent through the model at a time (smaller than the chunk after running out of memory)
  seconds  REAL NOT NULL,      -- wall time of attack and verdict
  session  INTEGER NOT NULL,   -- sessions.session that did it
  rows_sha256 TEXT,            -- of this row and its rows in images or results, as rowsums.py counts it; NULL: not taken
  PRIMARY KEY (kind, attack, chunk, round)
) WITHOUT ROWID;
CREATE TABLE results (         -- one row per attack, image and target
  attack       INTEGER NOT NULL, -- attacks.attack
  image        INTEGER NOT NULL, -- images.image
  target       INTEGER NOT NULL, -- class aimed at; -1: untargeted
  round        INTEGER NOT NULL, -- chunks.round: with attack and images.chunk it says which chunk, and so which file, it belongs to
  status       TEXT NOT NULL,  -- already-wrong, success, failed or invalid, as the attack says
  reason       TEXT,           -- why nothing was found
  distance     REAL,           -- in attacks.distance, as the attack says; 0: already wrong; NULL: nothing found, counts as infinite
  forwards     INTEGER NOT NULL, -- model passes of this image
  backwards    INTEGER NOT NULL, -- gradient passes of this image
  prediction   INTEGER,        -- verdict on the stored image: its class; NULL: nothing found
  top          TEXT NOT NULL,  -- verdict: JSON [[class, probability], ...] of the stored image
  fooled       INTEGER NOT NULL, -- verdict: 1 if the stored image reaches the goal (fresh forward, other batch size, full precision)
  measured     REAL,           -- verdict: attacks.distance of the stored image
  l0           REAL,           -- verdict: values that differ
  l1           REAL,           -- verdict: sum of absolute differences
  l2           REAL,           -- verdict: Euclidean norm
  linf         REAL,           -- verdict: largest absolute difference
  ssim         REAL,           -- verdict: 1 - SSIM; NULL: not defined for these images, or nothing found
  ciede2000    REAL,           -- verdict: l2 norm of the colour differences; NULL likewise
  fooled_8bit  INTEGER NOT NULL, -- verdict: 1 if it still reaches the goal after rounding to 8 bits
  measured_8bit REAL,          -- verdict: attacks.distance after rounding
  slot         INTEGER,        -- row in the chunk's file; NULL: no image stored
  pixels       TEXT,           -- verdict, segmentation: the counts of images.pixels on the stored image
  PRIMARY KEY (attack, image, target)
) WITHOUT ROWID;
CREATE TABLE traces (          -- the course of an attack on a few images
  attack INTEGER NOT NULL,
  image  INTEGER NOT NULL,
  target INTEGER NOT NULL,     -- -1: untargeted
  data   TEXT NOT NULL,        -- JSON {name: [value per step]}; null: not finite
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
LATER = (("chunks", "rows_sha256"), ("images", "pixels"), ("results", "pixels"))
"""Columns of text that databases begun by an earlier almakit lack and get when they are continued."""

RULES = (
    "SELECT 1 FROM meta WHERE key IN ('images', 'classes') AND (value = '' OR value GLOB '*[^0-9]*' OR length(value) > 15)",
    "SELECT 1 FROM attacks WHERE attack < 0",
    "SELECT 1 FROM images WHERE image < 0 OR image >= (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'images')",
    "SELECT 1 FROM chunks WHERE images < 1 OR batch < 1 OR (kind = 'attack' AND attack NOT IN (SELECT attack FROM attacks))",
    "SELECT 1 FROM results WHERE slot < 0 OR attack NOT IN (SELECT attack FROM attacks)",
)
"""What never has a row in a database that almakit wrote."""


@cache
def columns() -> dict[str, list[tuple[str, str]]]:
    """For each table its columns, each with an SQL expression that is true of a cell it cannot hold."""
    tests = {"INTEGER": "typeof({0}) != 'integer'", "TEXT": "typeof({0}) != 'text'", "REAL": "typeof({0}) != 'real' OR abs({0}) > 1.7976931348623157e308"}
    db = sqlite3.connect(":memory:")
    try:
        db.executescript(TABLES)
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        facts = {name: db.execute(f"PRAGMA table_info({name})").fetchall() for name in names}
    finally:
        db.close()
    # A key is never empty in what almakit writes, though SQLite would allow it.
    return {
        name: [(row[1], tests[row[2]].format(row[1]) if row[3] or row[5] else f"{row[1]} IS NOT NULL AND ({tests[row[2]].format(row[1])})") for row in found]
        for name, found in facts.items()
    }
