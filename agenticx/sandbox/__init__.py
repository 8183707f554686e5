"""The sandbox for commands of agents: its probe, its profiles, and the failures that it causes."""
