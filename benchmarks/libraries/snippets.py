"""The snippets of ``six_tasks.py``: each library as its own documents use it."""

from __future__ import annotations

TASKS = {
    "minimal": "smallest ℓ2 change of each image",
    "robust": "robust accuracy at ℓ∞ 8/255",
    "own-model": "own model and arrays of bytes",
    "own-distance": "own distance",
    "compare": "compare two attacks",
    "resume": "resume after an interruption",
}

# adv-lib imports torchvision, whose compiled operators may be absent beside a CPU torch; peers.library declares them.
PEERS = """
from benchmarks import peers
try:
    peers.library("adv_lib.attacks")
except SystemExit:
    pass
"""
PRELUDE = """
import almakit
import torch
model = almakit.models.load("mnist/smallcnn-tiny")
x, labels = almakit.data.load("mnist-demo", limit=16).tensors()
images = (x * 255).round().byte().permute(0, 2, 3, 1).numpy()       # (B, H, W, C) bytes, as image libraries give them
network = lambda normalised: model(normalised * 0.3081 + 0.1307)    # wants normalised images
"""

SNIPPETS: dict[str, dict[str, str]] = {
    "minimal": {
        "almakit": """
import almakit
result = almakit.attack(model, x, labels, distance="l2", steps=100)
print(result)
""",
        "foolbox": """
import foolbox
fmodel = foolbox.PyTorchModel(model, bounds=(0, 1))
raw, _, success = foolbox.attacks.DDNAttack(steps=100)(fmodel, x, labels, epsilons=None)
distances = (raw - x).flatten(1).norm(dim=1)
distances[~success] = float("inf")
print(success.float().mean().item(), distances.quantile(0.5).item())
""",
        "adv-lib": """
from adv_lib.attacks import ddn
adversarials = ddn(model, x, labels, steps=100)
success = model(adversarials).argmax(1) != labels
distances = (adversarials - x).flatten(1).norm(dim=1)
distances[~success] = float("inf")
print(success.float().mean().item(), distances.quantile(0.5).item())
""",
    },
    "robust": {
        "almakit": """
import almakit
result = almakit.attack(model, x, labels, distance="linf", steps=100)
print(result.robust_accuracy(8 / 255), result.robust_accuracy(0.1))
""",
        "foolbox": """
import foolbox
fmodel = foolbox.PyTorchModel(model, bounds=(0, 1))
_, _, success = foolbox.attacks.LinfPGD(steps=100)(fmodel, x, labels, epsilons=[8 / 255, 0.1])
print((1 - success.float().mean(1)).tolist())
""",
        "AutoAttack": """
from pyautoattack import AutoAttack
adversarials, _ = AutoAttack(model, norm="Linf", eps=8 / 255).run_standard_evaluation(x, labels, batch_size=16)
print((model(adversarials).argmax(1) == labels).float().mean().item())
""",
        "adv-lib": """
from adv_lib.attacks import apgd
adversarials = apgd(model, x, labels, eps=8 / 255, norm=float("inf"), n_iter=100)
print((model(adversarials).argmax(1) == labels).float().mean().item())
""",
    },
    "own-model": {
        "almakit": """
import almakit
own = lambda x: network((x - 0.1307) / 0.3081)
result = almakit.attack(own, images, labels, distance="l2", steps=50)
print(result)
""",
        "foolbox": """
import foolbox
import torch
x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
class Own(torch.nn.Module):
    def forward(self, x):
        return network(x)
fmodel = foolbox.PyTorchModel(Own().eval(), bounds=(0, 1), preprocessing=dict(mean=0.1307, std=0.3081))
raw, _, success = foolbox.attacks.DDNAttack(steps=50)(fmodel, x, labels, epsilons=None)
print(success.float().mean().item(), (raw - x).flatten(1).norm(dim=1).quantile(0.5).item())
""",
        "AutoAttack": """
import torch
from pyautoattack import AutoAttack
x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
class Own(torch.nn.Module):
    def forward(self, x):
        return network((x - 0.1307) / 0.3081)
adversarials, _ = AutoAttack(Own().eval(), norm="L2", eps=1.0).run_standard_evaluation(x, labels, batch_size=16)
print((Own()(adversarials).argmax(1) == labels).float().mean().item())
""",
        "adv-lib": """
import torch
from adv_lib.attacks import ddn
x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
own = lambda x: network((x - 0.1307) / 0.3081)
adversarials = ddn(own, x, labels, steps=50)
success = own(adversarials).argmax(1) != labels
print(success.float().mean().item(), (adversarials - x).flatten(1).norm(dim=1).quantile(0.5).item())
""",
    },
    "own-distance": {
        "almakit": """
import almakit
distance = lambda x, y: ((1 + 4 * (x < 0.1)) * (y - x).abs()).flatten(1).sum(1)
print(almakit.attack(model, x, labels, distance=distance, steps=100))
"""
    },
    "compare": {
        "almakit": """
import almakit
run = almakit.evaluate(model, (x, labels), ["ddn(steps=50)", "fmn(distance=l2, steps=50)"], budget=50)
print(run.table())
""",
        "foolbox": """
import foolbox
fmodel = foolbox.PyTorchModel(model, bounds=(0, 1))
for attack in (foolbox.attacks.DDNAttack(steps=50), foolbox.attacks.L2FMNAttack(steps=50)):
    raw, _, success = attack(fmodel, x, labels, epsilons=None)
    distances = (raw - x).flatten(1).norm(dim=1)
    distances[~success] = float("inf")
    print(attack, success.float().mean().item(), distances.quantile(0.5).item())
""",
        "AutoAttack": """
from pyautoattack import AutoAttack
for name in ("apgd-ce", "apgd-dlr"):
    evaluation = AutoAttack(model, norm="L2", eps=1.0, version="custom", attacks=[name])
    adversarials, _ = evaluation.run_standard_evaluation(x, labels, batch_size=16)
    print(name, (model(adversarials).argmax(1) == labels).float().mean().item())
""",
        "adv-lib": """
from adv_lib.attacks import ddn, fmn
attacks = {"ddn": lambda: ddn(model, x, labels, steps=50), "fmn": lambda: fmn(model, x, labels, norm=2, steps=50)}
for name, attack in attacks.items():
    adversarials = attack()
    success = model(adversarials).argmax(1) != labels
    distances = (adversarials - x).flatten(1).norm(dim=1)
    distances[~success] = float("inf")
    print(name, success.float().mean().item(), distances.quantile(0.5).item())
""",
    },
    "resume": {
        "almakit": """
import almakit
run = almakit.evaluate(model, (x, labels), ["ddn(steps=50)"], out="runs/a")      # the same call again goes on
print(len(run.records), run.robust_accuracy(1.0))
""",
        "AutoAttack": """
from pathlib import Path
from pyautoattack import AutoAttack
evaluation = AutoAttack(model, norm="L2", eps=1.0)
adversarials, _ = evaluation.run_standard_evaluation(x, labels, batch_size=16, state_path=Path("state.json"))
print((model(adversarials).argmax(1) == labels).float().mean().item())
""",
    },
}

NOT_OFFERED = {
    (
        "minimal",
        "AutoAttack",
    ): "not offered. It tests whether an adversarial image exists within one ε. Its FAB minimises "
    "the distance, but the evaluation keeps only what lies within ε.",
    ("own-distance", "foolbox"): "not offered. Each attack minimises its own norm; another distance can be measured "
    "afterwards, not minimised.",
    ("own-distance", "AutoAttack"): "not offered: l1, l2 and linf.",
    ("own-distance", "adv-lib"): "not offered by a call: `alma` takes the name of one of its distances (l1, l2, SSIM, "
    "CIEDE2000, LPIPS); your own needs a change of its source.",
    ("resume", "foolbox"): "not offered: write a loop over batches that stores each.",
    ("resume", "adv-lib"): "not offered: write a loop over batches that stores each.",
}
