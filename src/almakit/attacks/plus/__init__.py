"""The phases of ALMA-plus: scan, Lagrangian searches, starts from outside and a polish for l1 and l2; searches for linf and l0; free steps for all else."""
