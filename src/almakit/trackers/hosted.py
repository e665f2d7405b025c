"""Trackers for TensorBoard, MLflow and Weights & Biases."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..errors import BadInput, Unavailable, optional
from .base import Numbers, Tracker


class TensorBoard(Tracker):
    """``tensorboard:<folder>``: event files for ``tensorboard --logdir <folder>``, flushed after every event."""

    def __init__(self, folder: str):
        if not folder:
            raise BadInput("say where TensorBoard's files go: tensorboard:<folder>.")
        kind = optional("torch.utils.tensorboard", "TensorBoard needs torch: pip install torch.").SummaryWriter
        place = Path(folder).expanduser()
        try:
            place.mkdir(parents=True, exist_ok=True)
            self.writer = kind(str(place))
        except OSError as error:
            raise Unavailable(
                f"cannot write to {place}: {error.strerror}; choose another folder for TensorBoard."
            ) from error

    def settings(self, values: dict[str, Any]) -> None:
        """Show the settings as text in the tab TEXT."""
        self.writer.add_text("settings", "\n".join(f"    {name} = {value!r}" for name, value in values.items()), 0)
        self.writer.flush()

    def numbers(self, values: Numbers, step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def picture(self, name: str, file: Path) -> None:
        from matplotlib.image import imread

        self.writer.add_image(name, imread(file)[..., :3], 0, dataformats="HWC")
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class MLflow(Tracker):
    """``mlflow:<experiment>``: parameters and metrics of an MLflow run, at MLflow's tracking URI."""

    def __init__(self, experiment: str):
        self.mlflow = optional("mlflow", "mlflow is not installed: pip install mlflow.")
        if experiment:
            self.mlflow.set_experiment(experiment)
        self.run = self.mlflow.start_run()

    def settings(self, values: dict[str, Any]) -> None:
        # MLflow's parameters hold 500 characters in older versions.
        self.mlflow.log_params({name: str(value)[:500] for name, value in values.items()})

    def numbers(self, values: Numbers, step: int) -> None:
        # MLflow allows letters, digits and _-./ and blanks in names.
        self.mlflow.log_metrics({re.sub(r"[^\w\-./ ]+", "_", name): value for name, value in values.items()}, step=step)

    def picture(self, name: str, file: Path) -> None:
        self.mlflow.log_artifact(str(file), "pictures")

    def close(self) -> None:
        self.mlflow.end_run()


class WandB(Tracker):
    """``wandb:<project>``: config and history of a Weights & Biases run; WANDB_MODE=offline keeps it on this
    machine."""

    def __init__(self, project: str):
        self.wandb = optional("wandb", "wandb is not installed: pip install wandb.")
        self.run = self.wandb.init(project=project or "almakit")

    def settings(self, values: dict[str, Any]) -> None:
        self.run.config.update(values)

    def numbers(self, values: Numbers, step: int) -> None:
        # W&B's step must increase, but an attack's steps start again at zero, so the step is logged as a number.
        self.run.log({**values, "step": step})

    def picture(self, name: str, file: Path) -> None:
        self.run.log({name: self.wandb.Image(str(file))})

    def close(self) -> None:
        self.run.finish()
