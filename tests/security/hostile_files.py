"""Model files that try to run code when they are opened or asked for logits: each leaves a mark where it succeeds."""

from __future__ import annotations

import zipfile
from pathlib import Path

import torch

Parts = dict[str, bytes]
"""An archive: member -> contents."""


class Payload:
    """Unpickled, it leaves a file: proof that code ran."""

    def __init__(self, mark: Path):
        self.mark = str(mark)

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (self.mark, "w"))


class Small(torch.nn.Module):
    """A convolution, a normalisation, a split, a lifted constant: what exported classifiers are made of."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.norm, self.linear = (
            torch.nn.Conv2d(1, 4, 3),
            torch.nn.BatchNorm2d(4),
            torch.nn.Linear(144, 5),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = torch.relu(self.norm(self.convolution(x))).chunk(2, 1)
        found: torch.Tensor = self.linear(torch.cat([second, first], 1).flatten(1)) + torch.tensor(0.5)
        return found


def pack(path: Path, parts: Parts | list[tuple[str, bytes]]) -> Path:
    """Writes an archive; a list may hold a member twice."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items() if isinstance(parts, dict) else parts:
            archive.writestr(name, content)
    return path


def evil_py(folder: Path, mark: Path) -> Path:
    """A Python file that leaves a mark when it is imported, and when its function is called."""
    path = folder / "evil.py"
    path.write_text(f"open({str(mark)!r}, 'w')\ndef f(*a, **k):\n    open({str(mark)!r}, 'w')\n")
    return path
