"""The agent's file changes: snapshots before each edit, and putting files back."""
