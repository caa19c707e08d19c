"""OpenTelemetry: one trace from a frame at one device to the object at its neighbour."""
