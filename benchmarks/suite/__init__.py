"""The estimator beside tuned log-loss on public sets."""
