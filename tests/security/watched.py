"""Opens what it is told to in a process of its own while an audit hook watches: whatever runs, writes or reaches out is
reported.

python watched.py jobs.json        a list of [name, act, path]; prints a list of [name, outcome, what was said, what was
  noticed]
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIVE = {"os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn"}
LIVE |= {"socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request", "webbrowser.open"}
LIVE |= {"pickle.find_class", "ctypes.dlopen", "ctypes.dlsym", "code.__new__", "function.__new__"}
LIVE |= {"os.chown", "os.kill", "os.link", "os.symlink", "os.putenv", "shutil.rmtree", "sqlite3.load_extension"}
CHANGES = ("os.chmod", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")
HOMES = tuple(
    {str(Path(place).resolve()) for place in (*sysconfig.get_paths().values(), Path(__file__).parents[2] / "src")}
)
WRITERS = ("matplotlib", "jinja2", "collections", "dataclasses", "numpy", "importlib", "enum", "typing", "fontTools")
"""Libraries that write small functions of their own and compile them; torch and sympy, which compile what is in a file,
are not among them."""
QUIET = ("PYTHON", "TORCH_FORCE_WEIGHTS_ONLY_LOAD")


GENERATED: list[str] = []
"""Libraries that may compile code they wrote themselves right now."""


@contextlib.contextmanager
def generating(verb: str) -> Iterator[None]:
    """Certified radii are computed from a model's layers as torch.export reads them; it writes and compiles a function
    for them."""
    GENERATED.extend(["torch", "sympy"] if verb in ("certify", "verify") else [])
    try:
        yield
    finally:
        GENERATED.clear()


class Watch:
    """While it is armed, everything that only code, or a write outside the places allowed, can cause is noted."""

    def __init__(self) -> None:
        self.armed, self.allowed, self.seen = False, [], []  # type: bool, list[str], list[str]
        sys.addaudithook(self.note)

    def note(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        self.armed = False  # what the hook itself does does not count
        try:
            if self.counts(event, args):
                self.seen.append(f"{event} {args!r} by {sys._getframe(1).f_globals.get('__name__')}"[:300])
        finally:
            self.armed = True

    def counts(self, event: str, args: tuple[Any, ...]) -> bool:
        if event == "open":
            path, mode, flags = args
            writes = isinstance(mode, str) and set(mode) & set("wax+")
            writes = writes or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            return bool(writes) and not self.inside(path)
        if event in CHANGES:
            return not all(self.inside(path) for path in args[: 2 if event == "os.rename" else 1])
        if event == "exec":  # eval too
            whose = str(sys._getframe(3).f_globals.get("__name__", "")).partition(".")[0]
            own = str(getattr(args[0], "co_filename", "")).startswith((*HOMES, "<frozen"))
            return not own and whose not in (*WRITERS, *GENERATED)
        if event == "import":
            return False  # a module's code is seen when it is executed
        if event == "os.putenv":
            return not os.fsdecode(args[0]).startswith(QUIET)
        return event in LIVE

    def inside(self, path: object) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return True  # a number: opened, and seen, before
        place = str(Path(os.fsdecode(path)).resolve())
        return any(place == home or place.startswith(home + os.sep) for home in self.allowed)


def model(path: str) -> object:
    import torch

    from almakit import models

    loaded = models.load(path)
    return loaded(torch.rand(2, *(loaded.shape or (1, 8, 8)), generator=torch.Generator().manual_seed(0)))


def weights(path: str) -> object:
    import torch

    from almakit import models

    return models.load(f"mnist/smallcnn-tiny@{path}")(torch.rand(2, 1, 28, 28))


def npz(path: str) -> object:
    from almakit import data

    found = data.load(f"npz:{path}")
    return found.chunk(range(min(2, len(found))))


def archive(path: str) -> object:
    from almakit.data.hub import unpack

    return unpack(Path(path), Path(tempfile.mkdtemp(prefix="own-")), ["wanted"], 1 << 20)


def reader(path: str) -> object:
    """Every verb that reads a run folder; the first thing said counts."""
    from almakit.cli.main import main
    from almakit.errors import AlmakitError

    out, figures = f"{path}-out", [] if path.endswith("0") else ["--no-figures"]  # which take seconds: one in ten
    verbs = [
        ["verify", path, "--device", "cpu"],
        ["certify", path, "--method", "ibp", "--distance", "linf", "--quiet"],
        ["report", path, "--out", f"{out}/report", *figures],
        ["report", path, "--no-figures"],
        ["compare", path, path],
        ["export", path, "--out", f"{out}/records.csv"],
        ["export", path, "--format", "parquet"],
        ["export", path, "--format", "png"],
        ["export", path, "--format", "png", "--out", f"{out}/png"],
        ["merge", path, path, "--out", f"{out}/merged"],
        ["transfer", path, "--model", "mnist/smallcnn-tiny"],
        ["board", path, "--out", f"{out}/board"],
    ]
    said = []
    for verb in verbs:
        err, shown = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(shown), generating(verb[0]):
            code = main(verb)
        silent = code in (1, 2) and len(err.getvalue() + shown.getvalue()) < 20
        if "unexpected " in err.getvalue() or code not in (0, 1, 2, 4, 5) or silent:
            raise RuntimeError(f"{verb[0]}: {code} {err.getvalue()}")
        if code in (1, 2) or (code == 4 and verb[0] == "verify"):
            said.append(f"{verb[0]} ({code}): {(err.getvalue() or shown.getvalue())[:300]}")
    if said:
        raise AlmakitError("; ".join(said))
    return "read"


def control(path: str) -> object:
    """What the watch must see."""
    Path(path).write_text("x")
    return exec("1 + 1")


ACTS = {"control": control, "model": model, "weights": weights, "npz": npz, "archive": archive, "reader": reader}


def main() -> None:
    import torch

    from almakit.core.oracle import out_of_memory
    from almakit.errors import AlmakitError

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))  # a file that asks for all memory is told no
    given = json.loads(Path(sys.argv[1]).read_text())
    for act, good in given["warm"]:  # what is imported lazily is imported now
        with contextlib.suppress(AlmakitError):
            ACTS[act](good)
    watch, found = Watch(), []
    scratch = str(Path(tempfile.gettempdir()).resolve() / "almakit-watched")
    os.makedirs(scratch, exist_ok=True)
    tempfile.tempdir = scratch
    for name, act, path in given["jobs"]:
        watch.seen, watch.allowed = [], [scratch, os.devnull]
        if act == "reader":
            watch.allowed += [path, f"{path}-out"]
        watch.armed = True
        try:
            ACTS[act](path)
            outcome, said = "result", ""
        except AlmakitError as error:
            outcome, said = "sentence" if len(str(error)) > 20 else "silence", str(error)
        except Exception as error:
            outcome, said = "sentence" if out_of_memory(error) else "crash", f"{type(error).__name__}: {error}"
        watch.armed = False
        for left in os.listdir(scratch):
            if left.startswith("own-"):
                shutil.rmtree(f"{scratch}/{left}")
            else:
                watch.seen.append(f"left behind: {left}")
        found.append([name, outcome, said[:1500], watch.seen])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
