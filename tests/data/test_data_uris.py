"""Data sets by URI: images in [0, 1], labels from 0, ids and hashes that do not depend on how they were asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from almakit import data
from almakit.data import hub
from almakit.errors import BadInput, Unavailable, UnknownName

RNG = np.random.default_rng(0)


def test_mnist_is_the_canonical_one() -> None:
    test, train = data.load("mnist"), data.load("mnist", split="train", limit=5)
    assert (len(test), len(train)) == (10_000, 5)
    assert test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert train.labels.tolist() == [5, 0, 4, 1, 9]
    assert torch.bincount(test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    x, labels = data.load("mnist", limit=3, offset=9997).tensors()
    assert x.shape == (3, 1, 28, 28) and x.dtype == torch.float32 and labels.dtype == torch.int64
    assert float(x.min()) == 0 and float(x.max()) == 1
    assert test.class_names == tuple("0123456789")


def test_the_demo_digits_are_the_first_of_the_test_set_and_need_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = data.load("mnist", limit=256)
    with monkeypatch.context() as patch:
        patch.setenv("ALMAKIT_DATA", str(tmp_path))
        patch.setenv("ALMAKIT_HOME", str(tmp_path))
        patch.setenv("ALMAKIT_OFFLINE", "1")
        demo = data.load("mnist-demo")
        x, labels = demo.tensors()
    assert torch.equal(x, real.tensors()[0]) and torch.equal(labels, real.labels)
    assert demo.ids == real.ids
    assert demo.chunk([17]).sha256 == real.chunk([17]).sha256


@pytest.mark.shared_data
def test_cifar10_takes_the_small_file_when_it_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALMAKIT_HOME", str(tmp_path))
    monkeypatch.setenv("ALMAKIT_OFFLINE", "1")
    few = data.load("cifar10", limit=8, offset=2)
    assert few.ids == tuple(map(str, range(2, 10)))
    assert few.labels.tolist() == [8, 0, 6, 6, 1, 6, 3, 1]
    assert few.tensors()[0].shape == (8, 3, 32, 32)
    assert few.class_names is not None and few.class_names[8] == "ship"
    with pytest.raises(Unavailable, match="first 1000 test images are available: use limit=1000"):
        data.load("cifar10")


def test_cifar10_reads_batch_files_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same images from the small npz and from a batch file made of them."""
    with np.load(hub.path("cifar10/cifar10_test_first1000.npz")) as arrays:
        rows = np.concatenate([arrays["y"][:, None], arrays["x"].transpose(0, 3, 1, 2).reshape(1000, -1)], 1)
    expected = data.load("cifar10", limit=1000).chunk([0, 999])
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "test_batch.bin").write_bytes(rows.tobytes())
    file = hub.files_of("cifar10")[0]
    altered = type(file)(file.name, hashlib.sha256(rows.tobytes()).hexdigest(), file.size)
    monkeypatch.setitem(hub.COLLECTIONS, "cifar10", (hub.Source((altered,)),))
    monkeypatch.setenv("ALMAKIT_DATA", str(tmp_path))
    got = data.load("cifar10").chunk([0, 999])
    assert torch.equal(got.x, expected.x) and torch.equal(got.labels, expected.labels) and got.sha256 == expected.sha256


def test_a_data_set_is_the_same_however_it_is_cut() -> None:
    whole = data.load("mnist-demo")
    x, labels = whole.tensors()
    chunks = list(whole.chunks(100))
    assert [len(chunk) for chunk in chunks] == [100, 100, 56]
    assert torch.equal(torch.cat([chunk.x for chunk in chunks]), x)
    part = whole.select([5, 3, 250])
    assert part.ids == ("5", "3", "250") and torch.equal(part.labels, labels[[5, 3, 250]])
    assert torch.equal(part.tensors()[0], x[[5, 3, 250]])
    assert part.chunk([0]).sha256[0] == chunks[0].sha256[5] == hashlib.sha256(x[5].numpy().tobytes()).hexdigest()
    assert torch.equal(whole.chunk([-1]).x, x[255:])
    with pytest.raises(IndexError):
        whole.chunk([256])


@pytest.mark.shared_data
def test_imagenet_photos_from_their_csv() -> None:
    photos = data.load("imagenet", limit=4)
    assert photos.ids[0] == "0c7ac4a8c9dfa802.png"
    assert photos.labels.tolist() == [305, 883, 243, 559]
    assert photos.targets is not None and photos.targets.tolist() == [778, 377, 122, 740]
    chunk = photos.chunk([1, 0])
    assert chunk.x.shape == (2, 3, 299, 299) and chunk.targets is not None and chunk.targets.tolist() == [377, 778]
    assert photos.class_names is not None and photos.class_names[243] == "bull mastiff"
    with Image.open(hub.folders()[0] / "imagenet" / photos.ids[0]) as image:
        stored = np.asarray(image.convert("RGB"))
    assert np.array_equal((chunk.x[1] * 255).round().byte().permute(1, 2, 0).numpy(), stored)
    small = data.load(f"imagenet:{hub.folders()[0] / 'imagenet'}", limit=1, size=224)
    assert small.tensors()[0].shape == (1, 3, 224, 224)


def paint(path: Path, colour: tuple[int, ...] | int, size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(path)


def test_class_folders_take_turns(tmp_path: Path) -> None:
    for name, count in (("cat", 3), ("ape", 1), ("dog", 2)):
        for number in range(count):
            paint(tmp_path / name / f"{number}.png", (number, 100, 255))
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    found = data.load(f"folder:{tmp_path}")
    assert found.class_names == ("ape", "cat", "dog")
    assert found.ids == ("ape/0.png", "cat/0.png", "dog/0.png", "cat/1.png", "dog/1.png", "cat/2.png")
    assert found.labels.tolist() == [0, 1, 2, 1, 2, 1]
    x, _ = found.tensors()
    assert x.shape == (6, 3, 4, 6)
    assert torch.allclose(x[5, :, 0, 0], torch.tensor([2 / 255, 100 / 255, 1.0]))
    assert data.load(f"folder:{tmp_path}", size=8).tensors()[0].shape == (6, 3, 8, 8)


def test_grey_folders_stay_grey_and_sizes_must_agree(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "0.png", 51)
    paint(tmp_path / "b" / "0.png", 255, size=(5, 5))
    grey = data.load(f"folder:{tmp_path}")
    assert grey.chunk([0]).x.shape == (1, 1, 4, 6) and float(grey.chunk([0]).x.max()) == pytest.approx(0.2)
    assert data.load(f"folder:{tmp_path}", channels=3).chunk([0]).x.shape == (1, 3, 4, 6)
    with pytest.raises(BadInput, match=r"different sizes.*size=224"):
        grey.tensors()


def test_csv_with_names(tmp_path: Path) -> None:
    for name in ("one", "two"):
        paint(tmp_path / "images" / f"{name}.png", (9, 9, 9))
    (tmp_path / "a.csv").write_text("path, Label, target\nimages/one.png, zebra, ant\nimages/two.png, ant, zebra\n")
    named = data.load(f"folder:{tmp_path / 'a.csv'}")
    assert named.class_names == ("ant", "zebra") and named.labels.tolist() == [1, 0]
    assert named.targets is not None and named.targets.tolist() == [0, 1]
    (tmp_path / "b.csv").touch()
    with pytest.raises(BadInput, match="2 csv files; give the one to use"):
        data.load(f"folder:{tmp_path}")
    (tmp_path / "c.csv").write_text("file,label\nimages/three.png,1\n")
    with pytest.raises(Unavailable, match="1 files that do not exist"):
        data.load(f"folder:{tmp_path / 'c.csv'}")
    (tmp_path / "d.csv").write_text("name,kind\none,1\n")
    with pytest.raises(BadInput, match="needs file and label"):
        data.load(f"folder:{tmp_path / 'd.csv'}")


@pytest.mark.shared_data
def test_imagenets_training_images_are_never_its_test_photos(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="has no folder train"):
        data.load("imagenet", limit=4, split="train")
    for part in ("val", "train"):
        (tmp_path / part / "n01440764").mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(tmp_path / part / "n01440764" / f"{part}.png")
    for uri in (f"imagenet:{tmp_path}", f"imagenet:{tmp_path / 'train'}"):
        assert data.load(uri, split="train").ids == ("n01440764/train.png",)
    with pytest.raises(Unavailable, match="has no folder train"):
        data.load(f"imagenet:{tmp_path / 'val'}", split="train")


def test_imagenet_folders_go_by_wordnet_id_even_if_there_are_few(tmp_path: Path) -> None:
    for wnid in ("n02123045", "n01440764"):
        paint(tmp_path / "val" / wnid / "x.JPEG", (9, 9, 9), size=(300, 260))
    found = data.load(f"imagenet:{tmp_path}")
    assert found.labels.tolist() == [0, 281] and found.class_names is not None and found.class_names[281] == "tabby"
    assert found.tensors()[0].shape == (2, 3, 224, 224)
    paint(tmp_path / "val" / "cats" / "x.png", (9, 9, 9))
    with pytest.raises(BadInput, match="none of ImageNet's thousand"):
        data.load(f"imagenet:{tmp_path}")


def test_npz_in_every_shape(tmp_path: Path) -> None:
    images, labels = RNG.integers(0, 256, (5, 8, 9, 3), dtype=np.uint8), np.arange(5)
    np.savez(tmp_path / "last.npz", x=images, y=labels, targets=labels[::-1].copy(), ids=np.array(list("abcde")))
    np.savez(tmp_path / "first.npz", images=images.transpose(0, 3, 1, 2).astype(np.float64) / 255, labels=labels)
    np.savez(tmp_path / "grey.npz", x=images[..., 0], y=labels)
    last, first = data.load(f"npz:{tmp_path / 'last.npz'}"), data.load(f"npz:{tmp_path / 'first.npz'}")
    assert last.ids == tuple("abcde") and last.targets is not None and last.targets.tolist() == [4, 3, 2, 1, 0]
    assert torch.allclose(last.tensors()[0], first.tensors()[0]) and last.tensors()[0].shape == (5, 3, 8, 9)
    assert data.load(f"npz:{tmp_path / 'grey.npz'}", size=16).tensors()[0].shape == (5, 1, 16, 16)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"x": np.zeros((2, 4, 4), np.uint8)}, "must hold x"),
        ({"x": np.full((2, 4, 4), 7.0), "y": np.zeros(2, int)}, "range from 7 to 7; they must lie in"),
        ({"x": np.zeros((2, 4, 4), np.int32), "y": np.zeros(2, int)}, "give uint8"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": np.zeros(3, int)}, "2 images and 3 labels"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": np.array([0.5, np.nan])}, "needs finite ones"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": np.array([0, -1])}, "counted from 0"),
        ({"x": np.zeros(4, np.uint8), "y": np.zeros(4, int)}, "they must be"),
        ({"x": np.array([{}, {}]), "y": np.zeros(2, int)}, "plain arrays"),
        (
            {"x": np.zeros((2, 4, 4), np.uint8), "y": np.zeros(2, int), "ids": np.array(["a", "a"])},
            "lists an image twice",
        ),
    ],
)
def test_a_wrong_npz_is_a_sentence(tmp_path: Path, arrays: dict[str, np.ndarray], reason: str) -> None:
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(BadInput, match=reason):
        data.load(f"npz:{tmp_path / 'wrong.npz'}")


def test_a_function_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "helper_of_mine.py").write_text("import torch\nimages = torch.rand(4, 3, 5, 5)\n")
    (tmp_path / "mine.py").write_text(
        "def make():\n    from helper_of_mine import images\n    return images, [0, 1, 2, 1], [1, 0, 0, 0]\n"
        "def wrong():\n    return 7\n"
        "def raises():\n    raise KeyError('oh')\n"
    )
    found = data.load(f"{tmp_path}/mine.py:make", limit=3)
    assert found.labels.tolist() == [0, 1, 2] and found.targets is not None and found.targets.tolist() == [1, 0, 0]
    for name, reason in (
        ("wrong", "returned int"),
        ("raises", "failed with KeyError"),
        ("nothing", "no function called 'nothing'"),
    ):
        with pytest.raises(BadInput, match=reason):
            data.load(f"{tmp_path}/mine.py:{name}")
    with pytest.raises(Unavailable, match="there is no file"):
        data.load(f"{tmp_path}/yours.py:make")


def test_mistakes_are_answered_with_sentences(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean"):
        data.load("mnists")
    with pytest.raises(BadInput, match="splits test and train"):
        data.load("mnist", split="validation")
    with pytest.raises(BadInput, match="256 images; offset 300"):
        data.load("mnist-demo", offset=300)
    with pytest.raises(BadInput, match="limit and size 1 or more"):
        data.load("mnist-demo", limit=0)
    with pytest.raises(Unavailable, match="there is no folder"):
        data.load(f"folder:{tmp_path}/none")
    with pytest.raises(BadInput, match="neither sub-folders"):
        data.load(f"folder:{tmp_path}")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "torn.png").write_bytes(b"no image")
    with pytest.raises(BadInput, match="cannot be read as an image"):
        data.load(f"folder:{tmp_path}")
