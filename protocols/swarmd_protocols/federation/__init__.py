"""Swarms above swarms: what a gateway tells a region and a region a gateway. Rules and bytes: docs/federation.md."""
