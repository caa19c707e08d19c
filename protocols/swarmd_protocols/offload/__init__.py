"""Borrowed inference: who may think for whom, and what becomes of each request. No file here sees a tensor."""
