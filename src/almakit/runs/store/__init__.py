"""What a run leaves behind, and how it is kept: records and the one table of their fields, the database, the files of
images, certificates. No torch here."""

from .database import ATTACK, CHUNK_COLUMNS, CLEAN, ChunkKey, ChunkRow, FailureRow, Store, database_name, open_folder

__all__ = [
    "ATTACK",
    "CHUNK_COLUMNS",
    "CLEAN",
    "ChunkKey",
    "ChunkRow",
    "FailureRow",
    "Store",
    "database_name",
    "open_folder",
]
