"""At home in other libraries: their attacks in our engine, ours in their harnesses. One file per library, imported only
when it is named.

``almakit.attacks.get("foolbox:LinfFMNAttack(steps=100)")`` finds the file of ``foolbox``; nothing is imported here.
"""
