"""What an attack found: numbers, pictures and files of it."""

from .image import ImageResult, Status
from .result import Result, best_of

__all__ = ["ImageResult", "Result", "Status", "best_of"]
