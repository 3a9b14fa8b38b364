"""Mechanics of training: encoding in chunks, gradients, steps, checkpoints. No loss and no file format lives here."""
