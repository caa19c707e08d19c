"""Deltas between two versions of a model file: tensor-aware where the file is a `.tflite`, block copies elsewhere."""
