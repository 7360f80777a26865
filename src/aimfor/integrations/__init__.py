"""Trainers of others: one module for each that needs more than `aimfor.Loss` itself.

Nothing else imports this package, and each module imports its trainer, so import the one you need:
`from aimfor.integrations.huggingface import trainer_loss`.
"""
