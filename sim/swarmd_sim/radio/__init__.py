"""The modelled radio and network."""
