"""A two-tower model, as in CLIP: an image has the class of the nearest prompt. In this example, prompts are mean
embeddings of other digits of a class."""

from __future__ import annotations

import torch

import almakit

model = almakit.models.load("mnist/smallcnn-tiny")
x, digits = almakit.data.load("mnist-demo").tensors()


def image_tower(images: torch.Tensor) -> torch.Tensor:
    """Embeddings of shape (B, 64): the activations before the last layer."""
    features = model.network.feature_extractor(images).flatten(1)
    return model.network.classifier[:-1](features)


with torch.no_grad():
    embedded = torch.nn.functional.normalize(image_tower(x[32:]), dim=1)
prompts = torch.stack([embedded[digits[32:] == digit].mean(0) for digit in range(10)])

few, labels = x[:16], digits[:16]
nearest = torch.nn.functional.normalize(prompts, dim=1)


def similarities(images: torch.Tensor) -> torch.Tensor:
    """Logits of shape (B, prompts) of the zero-shot classifier."""
    return 100 * torch.nn.functional.normalize(image_tower(images), dim=1) @ nearest.T


result = almakit.attack(similarities, few, labels, distance="l2", steps=50)
print(
    f"another prompt is nearer: clean accuracy {result.clean_accuracy:.0%}, {result.success_rate:.0%} reached, median "
    f"l2 {result.median:.3f}"
)

aim = prompts[(labels + 1) % 10]
goal = almakit.goals.embedding(target=aim, above=0.8)
result = almakit.attack(image_tower, few, goal=goal, distance="l2", steps=50)
print(f"like the next digit by 0.8 or more: {result.success_rate:.0%} reached, median l2 {result.median:.3f}")
