"""What combines attacks and goals: the text form, search over a radius, ensembles and the standard evaluation."""
