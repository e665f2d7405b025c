"""Other libraries: their attacks in almakit's runs, almakit's attacks in their harnesses.

One file per library, imported only when it is named.

``almakit.attacks.get("foolbox:LinfFMNAttack(steps=100)")`` finds the file of ``foolbox``; nothing is imported here.
"""
