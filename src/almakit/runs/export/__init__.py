"""A run's records and images in other forms: one flat table, PNG files, AttackBench's results. No torch here."""
