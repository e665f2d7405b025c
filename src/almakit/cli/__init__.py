"""The command line: ``main.py`` finds the verb, one file per verb does it."""
