"""Models of the user's own, exported programs and foreign libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from almakit import models
from almakit.errors import BadInput, BadModel, Unavailable, UnknownName
from almakit.models.classifier import Classifier

X = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(0))


def test_importing_the_subpackages_is_light() -> None:
    code = "import sys, almakit.models, almakit.data; print({'torch', 'PIL', 'onnx', 'timm'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_users_function(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def module():\n    net = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(784, 3))\n    return "
        "net.train()\n"
        "def function():\n    return lambda x: x.flatten(1)[:, :4] * 2\n"
        "def wrapped():\n    net = module()\n    return lambda x: {'logits': net.eval()(x)}\n"
        "def nothing():\n    return None\n"
    )
    model = models.load(f"{tmp_path}/mine.py:module", normalisation=((0.5,), (0.25,)))
    assert isinstance(model, Classifier) and not model.network.training
    assert torch.equal(model(X), model.network((X - 0.5) / 0.25))
    assert torch.equal(models.load(f"{tmp_path}/mine.py:function")(X), X.flatten(1)[:, :4] * 2)
    assert models.load(f"{tmp_path}/mine.py:function").weights_sha256 is None
    assert models.load(f"{tmp_path}/mine.py:wrapped")(X).shape == (5, 3)
    with pytest.raises(BadModel, match="is a NoneType"):
        models.load(f"{tmp_path}/mine.py:nothing")
    with pytest.raises(BadInput, match="no function called 'other'"):
        models.load(f"{tmp_path}/mine.py:other")


def test_outputs_that_are_not_logits_are_a_sentence() -> None:
    two = Classifier(lambda x: (x, x), name="two")  # type: ignore[arg-type,return-value]
    assert len(two(X)) == 2  # for a goal to pick from
    with pytest.raises(BadModel, match="a list without tensors"):
        Classifier(lambda x: [], name="none")(X)  # type: ignore[arg-type,return-value]
    with pytest.raises(BadModel, match="must be positive"):
        Classifier(nn.Flatten(), name="zero", std=(0.0,))
    with pytest.raises(BadModel, match="one finite number per channel"):
        Classifier(nn.Flatten(), name="nan", mean=(float("nan"),))


@pytest.mark.parametrize("free", [True, False], ids=["any-batch", "fixed-batch"])
def test_an_exported_program_has_the_logits_and_gradients_of_the_original(tmp_path: Path, free: bool) -> None:
    original = models.load("mnist/smallcnn-tiny")
    dynamic = ({0: torch.export.Dim("batch")},) if free else None
    torch.export.save(torch.export.export(original.network, (X[:2],), dynamic_shapes=dynamic), tmp_path / "net.pt2")
    loaded = models.load(str(tmp_path / "net.pt2"), trust=True)
    x = X.clone().requires_grad_(True)
    torch.testing.assert_close(loaded(x), original(x))
    ours, theirs = (torch.autograd.grad(model(x)[:, 3].sum(), x)[0] for model in (loaded, original))
    torch.testing.assert_close(ours, theirs)
    assert loaded.shape == (None if free else (1, 28, 28))
    assert loaded.eval().train() is loaded
    assert {key.removeprefix("program.") for key in loaded.network.state_dict()} == set(original.network.state_dict())
    with pytest.raises(BadModel, match=r"exported for images of shape \(1, 28, 28\), not \(1, 20, 20\)"):
        loaded(X[:2, :, :20, :20])


def test_an_exported_program_is_read_only_with_trust_and_a_torn_one_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "torn.pt2").write_bytes(b"torn")
    with pytest.raises(BadModel, match=r"can run code of its author.*--trust"):
        models.load(str(tmp_path / "torn.pt2"))
    with pytest.raises(BadModel, match=r"cannot be read as a torch\.export file"):
        models.load(str(tmp_path / "torn.pt2"), trust=True)


LIBRARIES = [
    ("torchvision:resnet50", "torchvision", "pip install torchvision"),
    ("timm:resnet50", "timm", "pip install timm"),
    ("hf:owner/model", "transformers", "pip install transformers"),
    ("robustbench:cifar10/Linf/Carmon2019Unlabeled", "robustbench", "pip install git"),
]


def forget(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """As if the package had never been imported."""
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(("uri", "package", "message"), LIBRARIES)
def test_a_library_that_cannot_be_imported_names_the_torch_it_must_be_built_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, package: str, message: str
) -> None:
    """As torchvision does beside a torch it was not built for: RuntimeError, not ImportError. The extra would bring the
    same one again."""
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    monkeypatch.syspath_prepend(tmp_path)
    forget(monkeypatch, package)
    with pytest.raises(
        Unavailable, match=f"{package} is installed but cannot be imported .*operator torchvision::nms does not exist"
    ) as caught:
        models.load(uri)
    assert "almakit[zoo]" not in str(caught.value) and "built for your torch" in str(caught.value)


def test_a_library_that_lacks_another_names_that_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "__init__.py").write_text("import something_it_needs\n")
    monkeypatch.syspath_prepend(tmp_path)
    forget(monkeypatch, "timm")
    with pytest.raises(
        Unavailable, match=r"timm is installed but cannot be imported \(ModuleNotFoundError.*something_it_needs"
    ):
        models.load("timm:resnet50")


@pytest.mark.parametrize(("uri", "package", "message"), LIBRARIES)
def test_a_library_that_is_missing_says_so(
    monkeypatch: pytest.MonkeyPatch, uri: str, package: str, message: str
) -> None:
    forget(monkeypatch, package)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Unavailable, match=f"{package} is not installed: {message}") as caught:
        models.load(uri)
    assert ("almakit[zoo]" in str(caught.value)) == (package != "robustbench"), (
        "an extra is named where it brings the library, and only there"
    )


def test_robustbench_names_have_three_parts() -> None:
    with pytest.raises(UnknownName, match="as cifar10/Linf/Carmon2019Unlabeled"):
        models.load("robustbench:Carmon2019Unlabeled")


# Stand-ins with the few functions the adapters call, since the libraries themselves need a torchvision that fits torch;
# they record what they were asked and read their weights with torch.load as the real ones do.
STAND_INS = {
    "timm": """
import torch
def is_model(name): return name == "tiny"
def create_model(name, pretrained):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5))
    net.load_state_dict(torch.load(FILE, weights_only=False))
    net.pretrained_cfg, net.num_classes = {"mean": (0.5,) * 3, "std": (0.2,) * 3, "input_size": (3, 2, 2)}, 5
    return net
""",
    "robustbench.utils": """
import torch
def load_model(model_name, dataset, threat_model, model_dir):
    assert (model_name, dataset, threat_model) == ("tiny", "cifar10", "Linf")
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5))
    net.load_state_dict(torch.load(FILE, weights_only=False))
    return net
""",
}


@pytest.mark.parametrize(
    ("uri", "module"), [("timm:tiny", "timm"), ("robustbench:cifar10/Linf/tiny", "robustbench.utils")]
)
def test_foreign_models_normalise_inside_and_unpickle_only_when_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, module: str
) -> None:
    file = tmp_path / "weights.pt"
    target = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"FILE = {str(file)!r}\n{STAND_INS[module]}")
    monkeypatch.syspath_prepend(tmp_path)
    forget(monkeypatch, module.split(".")[0])
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    torch.save(network.state_dict(), file)
    x = torch.rand(4, 3, 2, 2)
    model = models.load(uri)
    assert torch.allclose(model(x), network((x - 0.5) / 0.2 if module == "timm" else x), atol=1e-6)
    torch.save(dict(network.state_dict()) | {"more": Path("x")}, file)
    with pytest.raises(BadModel, match="trust=True"):
        models.load(uri)
    with pytest.raises(Unavailable, match="Unexpected key"):
        models.load(uri, trust=True)
    if module == "timm":
        with pytest.raises(UnknownName, match="timm has no model 'other'"):
            models.load("timm:other")


def test_a_zoo_models_preprocessing_is_taken_over_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Photos of any size are cut to the size the model was made for, its normalisation is folded in; a resume says
    nothing of it."""
    from PIL import Image

    import almakit

    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)).state_dict(), tmp_path / "weights.pt")
    (tmp_path / "timm.py").write_text(f"FILE = {str(tmp_path / 'weights.pt')!r}\n{STAND_INS['timm']}")
    monkeypatch.syspath_prepend(tmp_path)
    forget(monkeypatch, "timm")
    for number in range(4):
        (tmp_path / "photos" / "cat").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (7 + number, 9), (40 * number, 90, 10)).save(tmp_path / "photos" / "cat" / f"{number}.png")
    (tmp_path / "photos" / "classes.txt").write_text("cat\n")

    def evaluate() -> tuple[almakit.Run, str]:
        run = almakit.evaluate(
            "timm:tiny", f"folder:{tmp_path / 'photos'}", "ddn(steps=3)", out=tmp_path / "run", progress=True
        )
        return run, capsys.readouterr().err

    run, said = evaluate()
    assert run.originals().shape == (4, 3, 2, 2)
    inside = "timm:tiny normalises inside (mean 0.5 0.5 0.5, std 0.2 0.2 0.2): images are given in [0, 1]."
    assert said.count(inside) == said.count("Photos are cut to 2 x 2, the size the model was made for.") == 1
    assert "normalises" not in evaluate()[1]
    assert models.load("mnist/smallcnn-tiny").preprocessing is None
