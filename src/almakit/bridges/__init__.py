"""Other libraries: their attacks in almakit's runs, almakit's attacks in their harnesses.

``almakit.attacks.get("foolbox:LinfFMNAttack(steps=100)")`` finds the class of ``foolbox`` in ``libraries``; nothing is
imported here.
"""
