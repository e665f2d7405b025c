"""Run by test_real_zoo.py where torchvision, timm, transformers and datasets are installed: one randomly initialised
model of each."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import torch

# Beside a CPU torch the torchvision of PyPI lacks its compiled operators: declared, never called.
try:
    import torchvision
except RuntimeError:
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision
import datasets
import timm
from transformers import ViTConfig, ViTForImageClassification

import almakit
from almakit.data.coerce import dataset_of

torch.manual_seed(0)
x = torch.rand(2, 3, 32, 32)


def attacked(name: str, model: object, expected: torch.Tensor) -> None:
    """The model answers as the library's own does on images normalised by hand, and is attacked."""
    with torch.no_grad():
        answer = model(x)  # type: ignore[operator]
    logits = getattr(answer, "logits", answer)
    assert torch.allclose(logits, expected, atol=1e-5), f"{name}: {float((logits - expected).abs().max())}"
    found = almakit.attack(model, x, expected.argmax(1), steps=10)
    assert found.success.all() and int(found.forwards.max()) <= 10, found
    print(name, found)


def normalised(mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    return (x - torch.tensor(mean).reshape(3, 1, 1)) / torch.tensor(std).reshape(3, 1, 1)


# torchvision and timm: their own networks, weights' facts and constructors; only the download is a random
# initialisation.
weights = torchvision.models.ResNet18_Weights.IMAGENET1K_V1
network = torchvision.models.resnet18().eval()
type(weights).get_state_dict = lambda self, **_: network.state_dict()
facts = weights.transforms()
with torch.no_grad():
    attacked("torchvision", almakit.models.load("torchvision:resnet18"), network(normalised(facts.mean, facts.std)))

made = timm.create_model("resnet10t", pretrained=False).eval()
create = timm.create_model
timm.create_model = lambda name, pretrained: made
with torch.no_grad():
    expected = made(normalised(made.pretrained_cfg["mean"], made.pretrained_cfg["std"]))
attacked("timm", almakit.models.load("timm:resnet10t"), expected)
timm.create_model = create

# transformers: a folder as save_pretrained writes it, with the processor's settings beside it; outputs have .logits.
small = partial(ViTConfig, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
vit = ViTForImageClassification(small(image_size=32, patch_size=8, num_labels=4)).eval()
vit.save_pretrained("vit")
settings = {"do_normalize": True, "image_mean": [0.4] * 3, "image_std": [0.2] * 3, "size": {"height": 32, "width": 32}}
Path("vit/preprocessor_config.json").write_text(json.dumps(settings))
with torch.no_grad():
    attacked("transformers", almakit.models.load("hf:vit"), vit(normalised((0.4,) * 3, (0.2,) * 3)).logits)
    attacked("transformers, as it is", lambda images: vit(images), vit(x).logits)

# Data sets: Hugging Face's and torchvision's, as they are.
pictures = (torch.rand(4, 32, 32, 3) * 255).byte().numpy()
kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=4)})
hugging = datasets.Dataset.from_dict({"image": list(pictures), "label": [0, 1, 2, 3]}, features=kinds)
assert dataset_of(hugging.with_format("torch"), last=3).labels.tolist() == [0, 1, 2]
found = almakit.attack(vit, hugging, steps=5)
assert found.originals is not None and found.labels is not None and found.labels.tolist() == [0, 1, 2, 3]
assert torch.equal((found.originals * 255).round().byte().permute(0, 2, 3, 1), torch.from_numpy(pictures))
fake = torchvision.datasets.FakeData(4, (3, 32, 32), 4, transform=torchvision.transforms.ToTensor())
for place, name in enumerate(("cat", "dog")):
    Path("photos", name).mkdir(parents=True)
    torchvision.transforms.functional.to_pil_image(x[place]).save(f"photos/{name}/0.png")
photos = almakit.data.load("hf-dataset:photos@train", limit=2, size=8)
assert photos.class_names == ("cat", "dog") and photos.tensors()[0].shape == (2, 3, 8, 8)
try:
    almakit.data.load("hf-dataset:photos")
except almakit.AlmakitError as error:
    assert "has the splits train" in str(error), error
run = almakit.evaluate(vit, fake, ["ddn(steps=5)"], out="runs/fake", allow=["wrong-labels-or-range"])
assert [image.label for image in run.images] == [int(fake[place][1]) for place in range(4)]
print("all done")
