"""The history of a session, derived from its log: transcript, forks, rebuilds, recovery, exports."""
