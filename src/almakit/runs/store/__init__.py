"""Storage of runs: records and the table of their fields, the database, the image files, and results computed
afterwards. No torch here."""

from .database import Store, database_name, only_writer, open_folder
from .records import ATTACK, CLEAN, ChunkKey, ChunkRow, FailureRow

__all__ = [
    "ATTACK",
    "CLEAN",
    "ChunkKey",
    "ChunkRow",
    "FailureRow",
    "Store",
    "database_name",
    "only_writer",
    "open_folder",
]
