"""The only caller of the model: what it answers, how it is borrowed, laid out, filled up, timed and gone back
through."""

from ...goals.outputs import described, first_rows, logits_of, picked
from .backward import Pass, in_calls
from .borrowing import Function, Model, borrowed, out_of_memory, pass_seconds, predict
from .draws import Draws, seeded
from .filling import LEAST, filled, steady
from .oracle import Oracle, check_deterministic, check_outputs, outputs_alone, precision_and_device, probe_rows

__all__ = [
    "LEAST",
    "Draws",
    "Function",
    "Model",
    "Oracle",
    "Pass",
    "borrowed",
    "check_deterministic",
    "check_outputs",
    "described",
    "filled",
    "first_rows",
    "in_calls",
    "logits_of",
    "out_of_memory",
    "outputs_alone",
    "pass_seconds",
    "picked",
    "precision_and_device",
    "predict",
    "probe_rows",
    "seeded",
    "steady",
]
