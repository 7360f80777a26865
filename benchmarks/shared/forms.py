"""Forms of the bare loss that tables name, so that they stay what they were when the defaults move."""

# The form with the paper's guarantee: the hinge bounds every rate, and nothing stands beside the aim.
BOUNDING = {"surrogate": "hinge", "constraint": "surrogate", "log_loss": 0.0}

# For the pages: what their numbers are of.
TOLD = '`aimfor.Loss` is in its bounding form here: `constraint="surrogate"` and `log_loss=0`.'
