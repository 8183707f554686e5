"""The methods of a hub, apart from those for sessions and turns, in one base class per subject."""
