"""The command line: ``main.py`` selects the verb, and each verb has its own module."""
