"""The paper's experiments: its published numbers (``tables.csv``), its grid (``grid.csv``, ``models.csv``), and
`almakit reproduce`.

``tables.csv`` has one line per data set, model, distance, attack and budget. ``grid.csv`` says which attack of almakit,
with the settings of the paper's runs, stands for each of those cells; ``models.csv`` which network of the zoo is which
of the paper's.
"""
