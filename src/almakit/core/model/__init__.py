"""The only caller of the model: what it answers, how it is borrowed, laid out, filled up, timed and gone back
through."""

from .backward import Pass, in_calls
from .borrowing import Function, Model, borrowed, out_of_memory, predict
from .draws import Draws, seeded
from .filling import ACCELERATIONS, LEAST, NONE, FixedBatch, Graphed, accelerated, check_acceleration, filled, steady
from .layout import AUTO, CHANNELS_LAST, CONTIGUOUS, LAYOUTS, check_layout, faster_layout, laid_out, pass_seconds
from .oracle import Oracle, check_deterministic, check_outputs, guarded, outputs_alone, precision_and_device, probe_rows
from .outputs import described, first_rows, logits_of, picked

__all__ = [
    "ACCELERATIONS",
    "AUTO",
    "CHANNELS_LAST",
    "CONTIGUOUS",
    "LAYOUTS",
    "LEAST",
    "NONE",
    "Draws",
    "FixedBatch",
    "Function",
    "Graphed",
    "Model",
    "Oracle",
    "Pass",
    "accelerated",
    "borrowed",
    "check_acceleration",
    "check_deterministic",
    "check_layout",
    "check_outputs",
    "described",
    "faster_layout",
    "filled",
    "first_rows",
    "guarded",
    "in_calls",
    "laid_out",
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
