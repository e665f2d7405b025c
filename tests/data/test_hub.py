"""The hub: local folders first, then the cache, then the source; nothing is used whose contents are not as pinned."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load as load_safetensors

from almakit.data import hub
from almakit.data.hub import COLLECTIONS, CONVERSIONS, File, Source, unpack
from almakit.errors import Unavailable, UnknownName

WORDS = b"forty-two bytes of the greatest importance"
PIN = hashlib.sha256(WORDS).hexdigest()
WORDS_FILE = File("words/words.txt", PIN, 42)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data folders, an empty cache."""
    monkeypatch.delenv("ALMAKIT_DATA", raising=False)
    monkeypatch.delenv("ALMAKIT_OFFLINE", raising=False)
    monkeypatch.setenv("ALMAKIT_HOME", str(tmp_path / "home"))
    return tmp_path


def offer(monkeypatch: pytest.MonkeyPatch, *sources: Source) -> None:
    monkeypatch.setitem(COLLECTIONS, "words", sources or (Source((WORDS_FILE,)),))


def tar_of(path: Path, members: dict[str, bytes], link: tuple[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        if link:
            info = tarfile.TarInfo(link[0])
            info.type, info.linkname = tarfile.SYMTYPE, link[1]
            archive.addfile(info)
    return path


def from_file(path: Path, limit: int = 10_000, sha256: str | None = None, conversion: str = "as_is") -> Source:
    """A source that is a file or an archive on this machine, read through urllib as any address."""
    members = ("words.txt",) if path.name.endswith((".tgz", ".zip")) else ()
    return Source((File("words/words.txt", PIN, 42, conversion, members),), path.as_uri(), limit, sha256)


def test_the_first_folder_of_almakit_data_wins(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch)
    for folder in ("one", "two"):
        (elsewhere / folder / "words").mkdir(parents=True)
        (elsewhere / folder / "words" / "words.txt").write_bytes(WORDS)
    monkeypatch.setenv("ALMAKIT_DATA", hub.os.pathsep.join(str(elsewhere / name) for name in ("none", "two", "one")))
    assert hub.path("words/words.txt") == elsewhere / "two" / "words" / "words.txt"
    # An altered file is passed over for the next good one.
    (elsewhere / "two" / "words" / "words.txt").write_bytes(WORDS[::-1])
    assert hub.path("words/words.txt") == elsewhere / "one" / "words" / "words.txt"


def test_a_fetched_file_is_kept_and_not_fetched_again(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tar_of(elsewhere / "words.tgz", {"words.txt": WORDS, "other.txt": b"?"})
    seen: list[tuple[str, int, int | None]] = []
    offer(monkeypatch, from_file(source))
    assert hub.local("words/words.txt") is None
    (kept,) = hub.fetch("words", lambda *step: seen.append(step))
    assert kept == elsewhere / "home" / "words" / "words.txt"
    assert kept.read_bytes() == WORDS
    assert seen[-1] == (source.as_uri(), source.stat().st_size, source.stat().st_size)
    source.unlink()
    assert hub.path("words/words.txt") == hub.local("words/words.txt") == kept
    # Nothing but the file itself is left in the cache.
    assert [path for path in (elsewhere / "home").rglob("*") if path.is_file()] == [kept]


def test_every_broken_download_ends_in_a_sentence(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("altered.txt", WORDS[:-1] + b"!"), ("long.txt", WORDS * 500), ("good.txt", WORDS)):
        (elsewhere / name).write_bytes(content)
    whole = tar_of(elsewhere / "words.tgz", {"words.txt": WORDS, "filler": bytes(range(256)) * 400})
    (elsewhere / "torn.tgz").write_bytes(whole.read_bytes()[:60])
    with zipfile.ZipFile(elsewhere / "torn.zip", "w") as archive:
        archive.writestr("words.txt", WORDS)
    content = bytearray((elsewhere / "torn.zip").read_bytes())
    content[45] ^= 255
    (elsewhere / "torn.zip").write_bytes(content)
    for source, reason in (
        (from_file(elsewhere / "missing.txt"), "not reachable"),
        (from_file(elsewhere / "altered.txt"), f"not {PIN}"),
        (from_file(elsewhere / "long.txt"), "more than the 10000 bytes"),
        (from_file(elsewhere / "good.txt", sha256="0" * 64), f"not {'0' * 64}"),
        (from_file(elsewhere / "torn.tgz"), "EOFError"),
        (from_file(elsewhere / "torn.zip"), "BadZipFile: Bad CRC"),
        (from_file(elsewhere / "good.txt", conversion="checkpoint"), "UnpicklingError"),
    ):
        offer(monkeypatch, source)
        with pytest.raises(Unavailable) as caught:
            hub.path("words/words.txt")
        told = str(caught.value)
        assert all(part in told for part in (reason, "no such file", "ALMAKIT_DATA", "almakit fetch words")), told
        assert not [path for path in (elsewhere / "home").rglob("*") if path.is_file()]
    offer(monkeypatch, from_file(elsewhere / "good.txt"))
    assert hub.path("words/words.txt").read_bytes() == WORDS


def test_offline_asks_nobody(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = elsewhere / "good.txt"
    good.write_bytes(WORDS)
    offer(monkeypatch, from_file(good))
    monkeypatch.setenv("ALMAKIT_OFFLINE", "1")
    with pytest.raises(Unavailable, match="ALMAKIT_OFFLINE is set"):
        hub.path("words/words.txt")


def test_compression_does_not_matter_but_contents_do(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, Source((File("words/words.gz", PIN, 42),)))
    monkeypatch.setenv("ALMAKIT_DATA", str(elsewhere))
    (elsewhere / "words").mkdir()
    file = elsewhere / "words" / "words.gz"
    for level in (1, 9):
        file.write_bytes(gzip.compress(WORDS, level, mtime=level))
        assert hub.path("words/words.gz") == file
    # A bomb is given up after the bytes it should have, a torn file is told apart.
    for content, reason in (
        (gzip.compress(bytes(10**7)), "more than the 42 bytes"),
        (gzip.compress(WORDS)[:-9], "cannot be read"),
    ):
        file.write_bytes(content)
        with pytest.raises(Unavailable, match=reason):
            hub.path("words/words.gz")


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"did you mean mnist/t10k-images-idx3-ubyte\.gz"):
        hub.path("mnist/t10k-images.gz")
    with pytest.raises(UnknownName, match="did you mean mnist"):
        hub.fetch("minst")


@pytest.mark.parametrize("name", ["../evil.txt", "/evil.txt", "a/../../evil.txt", "C:/evil.txt", "..\\evil.txt"])
def test_no_name_in_an_archive_becomes_a_path(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "deep" / "inside"
    inside.mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("words.txt", WORDS)
        info = zipfile.ZipInfo("x")
        info.filename = name
        archive.writestr(info, b"evil")
    for archive_path in (tmp_path / "evil.zip", tar_of(tmp_path / "evil.tgz", {name: b"evil", "words.txt": WORDS})):
        copies = unpack(archive_path, inside, {"words.txt", name}, 1000)
        assert copies["words.txt"].read_bytes() == WORDS and all(copy.parent == inside for copy in copies.values())
    assert not list(tmp_path.rglob("evil.txt"))


def test_links_bombs_and_missing_members_are_refused(tmp_path: Path) -> None:
    linked = tar_of(tmp_path / "linked.tgz", {}, link=("words.txt", "/etc/hostname"))
    with pytest.raises(Unavailable, match=r"does not hold the file words\.txt"):
        unpack(linked, tmp_path, {"words.txt"}, 1000)
    bomb = tar_of(tmp_path / "bomb.tgz", {"words.txt": bytes(10**6)})
    with pytest.raises(Unavailable, match="more than the 1000 bytes"):
        unpack(bomb, tmp_path, {"words.txt"}, 1000)
    (tmp_path / "none.tgz").write_bytes(b"no archive")
    with pytest.raises(Unavailable, match="is damaged or no archive"):
        unpack(tmp_path / "none.tgz", tmp_path, {"words.txt"}, 1000)


def test_every_file_of_the_catalogue_can_be_made() -> None:
    for file in (file for name in hub.collections() for file in hub.files_of(name)):
        assert len(file.sha256) == 64 and file.conversion.split()[0] in CONVERSIONS


def test_a_cifar_batch_comes_out_of_its_picture(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    Image.fromarray(images.reshape(4, 1024, 3)).save(tmp_path / "batch.png")
    (tmp_path / "labels.json").write_text(json.dumps([9, 9, 1, 2, 3, 4]))
    batch = hub.cifar_batch(tmp_path / "batch.png", tmp_path / "labels.json", first="2")
    rows = np.frombuffer(batch, dtype=np.uint8).reshape(4, 3073)
    assert rows[:, 0].tolist() == [1, 2, 3, 4]
    assert (rows[:, 1:].reshape(4, 3, 32, 32) == images.transpose(0, 3, 1, 2)).all()


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("evil-was-here",)


def test_code_in_a_checkpoint_never_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(pickle.UnpicklingError):
        hub.checkpoint(tmp_path / "evil.pt")
    assert not (tmp_path / "evil-was-here").exists()


@pytest.mark.parametrize(
    ("prefix", "wrap"),
    [
        ("", lambda state: state),
        ("module.", lambda state: {"state_dict": state, "epoch": 3}),
        ("module.model.", lambda state: {"model": [state]}),
    ],
)
def test_checkpoints_lose_their_wrapping(tmp_path: Path, prefix: str, wrap: object) -> None:
    weights = torch.randn(2, 3, dtype=torch.float64)
    state = {f"{prefix}a.weight": weights, f"{prefix}bn.num_batches_tracked": torch.tensor(7)}
    torch.save(wrap(state), tmp_path / "net.pt")  # type: ignore[operator]
    tensors = load_safetensors(hub.checkpoint(tmp_path / "net.pt"))
    assert list(tensors) == ["a.weight"] and torch.equal(tensors["a.weight"], weights.float())


def test_a_checkpoint_without_weights_is_a_sentence() -> None:
    with pytest.raises(Unavailable, match="no dictionary of weights"):
        hub.state_dict_of([1, 2, 3])


def test_large_downloads_are_announced(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for count, said in ((6_000_000, "downloading words/words.txt (6 MB) from file:"), (100, "")):
        content = bytes(count)
        (elsewhere / "large.txt").write_bytes(content)
        file = File("words/words.txt", hashlib.sha256(content).hexdigest(), count)
        offer(monkeypatch, Source((file,), (elsewhere / "large.txt").as_uri(), 10**7))
        hub.path("words/words.txt")
        err = capsys.readouterr().err
        assert err.startswith(said) and bool(err) == bool(said)
