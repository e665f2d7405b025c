"""The published numbers of the paper: ``tables.csv``, one line per data set, model, distance, attack and budget."""
