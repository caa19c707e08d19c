"""Plug-ins of other packages: bridges and detectors that run in processes of their own and use `import swarmd`."""
