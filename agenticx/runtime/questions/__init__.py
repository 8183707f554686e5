"""Questions to the user: confirmations with their text and digest, questions of agents, and those that wait."""
