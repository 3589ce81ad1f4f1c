"""Pure: answers to fleet questions from merged checkpoints."""
