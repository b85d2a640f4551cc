"""What several rewards share: resizing, encoders, the ensemble."""
