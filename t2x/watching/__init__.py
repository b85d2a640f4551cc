"""Watching a training: its log, held-out measurements, sample pictures, alarms and report."""
