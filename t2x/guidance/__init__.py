"""Reward guidance of frozen diffusers pipelines while they sample."""
