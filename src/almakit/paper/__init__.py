"""The paper's experiments: its published numbers (``tables.csv``), its grid (``grid.csv``, ``attacks.csv``,
``models.csv``), and `almakit reproduce`.

``grid.csv`` names the attack of almakit, with the settings of the paper's runs, for each line of the paper's tables;
``attacks.csv`` gives the attacks' titles, ``models.csv`` the network of the zoo for each of its models. Each cell is an
ordinary run in a folder of its own.
"""
