"""The commands of `agx`, one module each."""
