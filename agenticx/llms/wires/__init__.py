"""The provider protocols: one package each, and what they share."""
