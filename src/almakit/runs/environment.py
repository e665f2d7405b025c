"""Versions, source commit and hardware of a run, which are recorded and are not part of its identity; and a setting of
the C library's allocator."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..version import VERSION

PACKAGES = ("torch", "numpy", "safetensors", "torchvision", "timm", "onnx", "robustbench", "transformers")
TRIM_THRESHOLD, MMAP_MAX = -1, -4  # glibc's malloc.h
MOST = 2**31 - 1


def environment(device: str = "cpu") -> dict[str, Any]:
    """The versions, commit and hardware, as JSON values."""
    import torch

    facts: dict[str, Any] = {
        "almakit": VERSION,
        "commit": commit(),
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }
    if device.startswith("cuda"):
        facts["device"] = torch.cuda.get_device_name(device)
        facts["cuda"] = torch.version.cuda
    facts["torch"], facts["numpy"] = torch.__version__, _version("numpy")
    return facts


def commit() -> str | None:
    """The git commit of almakit's own source, with ``+changes`` if files differ; None for an installed package."""
    here = Path(__file__).resolve().parent
    if "site-packages" in here.parts:
        return None

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + "+changes" * bool(git("status", "--porcelain", "-uno", "--", "."))
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or sys.platform


_kept = False


def keep_memory() -> bool:
    """Makes glibc keep freed memory in its heap, for the whole process; returns whether it does.

    By default glibc returns the memory of each large tensor to the system and gets it back page by page. Only programs
    should change this setting: ``almakit run`` and ``reproduce`` call this function, the library does not. Settings in
    the environment (``GLIBC_TUNABLES``, ``MALLOC_MMAP_MAX_``) take precedence.
    """
    global _kept
    if sys.platform.startswith("linux") and not {"GLIBC_TUNABLES", "MALLOC_MMAP_MAX_"} & os.environ.keys():
        try:
            mallopt = ctypes.CDLL(None).mallopt
        except (AttributeError, OSError):  # another C library
            return False
        _kept = bool(mallopt(MMAP_MAX, 0) and mallopt(TRIM_THRESHOLD, MOST))
    return _kept


def keeps_memory() -> bool:
    """Whether ``keep_memory`` took effect in this process."""
    return _kept
