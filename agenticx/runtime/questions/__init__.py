"""Questions to the user: confirmations, with their text and digest, and those of agents."""
