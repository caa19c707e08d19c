"""How the zoo's models are made: recipes, training, export. Needs a checkout and `swarmd[train]`; no device has it."""
