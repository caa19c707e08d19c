"""Recipes: how the zoo's models are made. `thermal` and `compose` also draw what `sim://` shows."""
