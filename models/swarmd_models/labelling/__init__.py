"""Corrected labels on their way back: from the files of labelling tools to a training set with its lineage."""
