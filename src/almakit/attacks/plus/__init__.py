"""The phases of ALMA-plus: an augmented-Lagrangian search, a polish for each norm, and free steps for every other distance."""
