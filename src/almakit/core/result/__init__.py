"""What an attack found: numbers, pictures and files of it."""

from .result import ImageResult, Result, Status, best_of

__all__ = ["ImageResult", "Result", "Status", "best_of"]
