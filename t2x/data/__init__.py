"""Data sets to train rewriters on: pairs for fine-tuning, preferences, prompts for reinforcement
learning; made by ``t2x data``, read by ``t2x.training.data.load_rows``."""
